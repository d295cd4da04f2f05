//! Prompts and their definitions.

use std::error::Error;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::catalog::definition::definition_setters;
use crate::catalog::protocol_error::item_error;
use crate::catalog::{
    CallContext, ClientRequestError, CompletionRequest, Completions, InvalidParameter, Parameters,
    ProtocolError, Provided, Unprovided,
};
use crate::net::with_causes;
use crate::protocol::{ClientAbility, Content, ErrorObject, Icon, PromptArgument, PromptMessage};

/// The future of a prompt's messages.
pub type PromptFuture =
    Pin<Box<dyn Future<Output = Result<PromptOutput, PromptError>> + Send + 'static>>;

/// The future of suggestions for an argument.
pub type ArgumentFuture =
    Pin<Box<dyn Future<Output = Result<Completions, PromptError>> + Send + 'static>>;

/// Messages that a person can start a conversation with.
///
/// Implemented by `#[prompt]` functions, by [`prompt_fn`](crate::catalog::prompt_fn), and by own types.
///
/// Its future is dropped, and its panics end, as those of a [`Tool`](crate::Tool) do.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a prompt",
    label = "a function becomes one by `#[prompt]`",
    note = "put `#[longshore::prompt]` on the function, or use `longshore::prompt_fn` for a closure"
)]
pub trait Prompt: Send + Sync + 'static {
    /// The definition that `prompts/list` returns. It does not change.
    fn definition(&self) -> &PromptDefinition;

    /// Makes the messages. `arguments` are among those of the definition, and those it requires are there.
    ///
    /// # Errors
    ///
    /// A JSON-RPC error; see [`PromptError`].
    fn get(&self, context: Arc<CallContext>, arguments: Parameters) -> PromptFuture;

    /// Returns true if there are suggestions for an argument. Default: false.
    fn completes(&self, argument: &str) -> bool {
        let _ = argument;
        false
    }

    /// Suggests values for an argument. Called only for arguments that it [completes](Self::completes).
    ///
    /// # Errors
    ///
    /// A JSON-RPC error; see [`PromptError`].
    fn complete(&self, context: Arc<CallContext>, request: CompletionRequest) -> ArgumentFuture {
        let _ = (context, request);
        Box::pin(ready(Ok(Completions::default())))
    }

    /// The prompt that is served in place of this one, made with the values of `App::provide`; `None`
    /// to serve this one. Called once, at start. Default: `None`.
    ///
    /// # Errors
    ///
    /// A value that it needs was not provided. The server does not start then.
    fn bind(&self, provided: &Provided) -> Result<Option<Arc<dyn Prompt>>, Unprovided> {
        let _ = provided;
        Ok(None)
    }
}

/// Definition of a prompt.
///
/// ```
/// use longshore::{PromptArgument, PromptDefinition};
///
/// let definition = PromptDefinition::new("review")
///     .description("Asks for a review of some code.")
///     .argument(PromptArgument::required("code").description("The code."))
///     .argument(PromptArgument::optional("language"));
/// assert_eq!(definition.name(), "review");
/// ```
#[derive(Clone, Debug)]
pub struct PromptDefinition {
    #[doc(hidden)]
    pub name: String,
    #[doc(hidden)]
    pub title: Option<String>,
    #[doc(hidden)]
    pub description: Option<String>,
    #[doc(hidden)]
    pub arguments: Vec<PromptArgument>,
    #[doc(hidden)]
    pub icons: Vec<Icon>,
    #[doc(hidden)]
    pub meta: Map<String, Value>,
    #[doc(hidden)]
    pub timeout: Option<Duration>,
}

impl PromptDefinition {
    /// A prompt without arguments, until [`argument`](Self::argument) adds one.
    ///
    /// Names have 1 to 128 characters, none of them a control character; others are refused when the prompt is
    /// registered.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            title: None,
            description: None,
            arguments: Vec::new(),
            icons: Vec::new(),
            meta: Map::new(),
            timeout: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: PromptArgument) -> Self {
        self.arguments.push(argument);
        self
    }

    /// The name it is asked for by.
    pub fn name(&self) -> &str {
        &self.name
    }
}

definition_setters!(PromptDefinition, "person who chooses a prompt", "prompt");

/// Messages of a prompt.
///
/// Most prompts return a `String` or messages, and never name this type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PromptOutput {
    pub description: Option<String>,
    pub messages: Vec<PromptMessage>,
    pub meta: Option<Map<String, Value>>,
}

impl PromptOutput {
    /// These messages, in order.
    pub fn new(messages: impl Into<Vec<PromptMessage>>) -> Self {
        Self {
            messages: messages.into(),
            ..Self::default()
        }
    }

    /// Says what it is good for, where that is not what the definition says.
    #[must_use]
    pub fn with_description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Adds `_meta` to the result. Keys need a prefix of their owner's, for example `com.example/cost`.
    #[must_use]
    pub fn with_meta(mut self, meta: Map<String, Value>) -> Self {
        self.meta = Some(meta);
        self
    }
}

/// A type that a prompt may return: text or content of the user, or whole messages.
#[diagnostic::on_unimplemented(
    message = "a prompt cannot return `{Self}`",
    label = "needs to be a `String`, `Content`, `PromptMessage`, a `Vec` of the latter two, or `PromptOutput`"
)]
pub trait IntoMessages {
    /// The value as messages.
    fn into_messages(self) -> PromptOutput;
}

impl IntoMessages for PromptOutput {
    fn into_messages(self) -> PromptOutput {
        self
    }
}

impl IntoMessages for Vec<PromptMessage> {
    fn into_messages(self) -> PromptOutput {
        PromptOutput::new(self)
    }
}

impl<const N: usize> IntoMessages for [PromptMessage; N] {
    fn into_messages(self) -> PromptOutput {
        PromptOutput::new(self)
    }
}

impl IntoMessages for PromptMessage {
    fn into_messages(self) -> PromptOutput {
        PromptOutput::new([self])
    }
}

impl IntoMessages for Vec<Content> {
    fn into_messages(self) -> PromptOutput {
        let messages: Vec<_> = self.into_iter().map(PromptMessage::user).collect();
        PromptOutput::new(messages)
    }
}

impl IntoMessages for Content {
    fn into_messages(self) -> PromptOutput {
        PromptMessage::user(self).into_messages()
    }
}

impl IntoMessages for String {
    fn into_messages(self) -> PromptOutput {
        PromptMessage::user(self).into_messages()
    }
}

impl IntoMessages for &'static str {
    fn into_messages(self) -> PromptOutput {
        PromptMessage::user(self).into_messages()
    }
}

item_error! {
    /// The error of a prompt. It becomes a JSON-RPC error.
    ///
    /// Any error converts into one with `?`; the caller gets its `Display` text. A [parameter](Parameters) that
    /// cannot be parsed is an invalid argument.
    PromptError: PromptErrorKind, InvalidParameter
}

/// Kind of a [`PromptError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PromptErrorKind {
    /// An argument is not what it should be: -32602, with the message.
    InvalidArguments,
    /// The prompt failed: -32603, with the message.
    Failed,
    /// The client would have to be able to do something that it has not declared: -32021, before 2026-07-28 -32603
    /// with the message.
    MissingCapability(ClientAbility),
    /// The client's person has to visit a page first. 2025-11-25 has the error -32042 for that; no other revision comes
    /// to it.
    UrlElicitationRequired,
    /// The caller may not get it: the JSON-RPC error 403, with the message.
    Forbidden,
    /// The prompt is at fault: -32603, without details. The log has them.
    Internal,
    /// Another server responded with a JSON-RPC error. The caller receives its code, message and data.
    Protocol,
}

impl PromptError {
    /// An invalid argument, with a message for the caller.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::of(PromptErrorKind::InvalidArguments, message)
    }

    /// Converts any error.
    pub(crate) fn from_boxed(error: Box<dyn Error + Send + Sync>) -> Self {
        match error.downcast::<InvalidParameter>() {
            Ok(invalid) => Self::invalid(invalid.to_string()),
            Err(error) => Self::converted(error),
        }
    }
}
