//! Results of tools.

use std::error::Error;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::catalog::protocol_error::item_error;
use crate::catalog::{ClientRequestError, InvalidArguments, ProtocolError};
use crate::net::with_causes;
use crate::protocol::{ClientAbility, Content, ErrorObject};

/// Result of a call: content for the model, and optionally a structured value.
///
/// Most tools return a `String`, a serialisable value or content blocks, and never name this type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    #[doc(hidden)]
    pub content: OutputContent,
    /// JSON text of `structuredContent`.
    #[doc(hidden)]
    pub structured: Option<String>,
    #[doc(hidden)]
    pub meta: Option<Box<Map<String, Value>>>,
    /// JSON text of `_meta` in place of `meta`, which would round its numbers. An object that is not empty.
    #[doc(hidden)]
    pub exact_meta: Option<Box<str>>,
    /// `isError`: the content says why it failed.
    #[doc(hidden)]
    pub is_error: bool,
}

/// Content in the form that costs least to send.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputContent {
    /// A single text block.
    Text(String),
    /// A single text block with the JSON of the structured value.
    Structured,
    Blocks(Vec<Content>),
}

impl Default for OutputContent {
    fn default() -> Self {
        Self::Blocks(Vec::new())
    }
}

impl Output {
    /// A lower bound for the size of the result as it is sent, as far as that takes no time to find.
    #[inline]
    pub fn weight(&self) -> usize {
        let structured = self.structured.as_ref().map_or(0, String::len);
        match &self.content {
            OutputContent::Text(text) => text.len() + structured,
            OutputContent::Structured => 2 * structured,
            OutputContent::Blocks(_) => structured,
        }
    }

    /// Creates a result with one text block.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            content: OutputContent::Text(text.into()),
            ..Self::default()
        }
    }

    /// Content blocks.
    pub fn blocks(blocks: impl Into<Vec<Content>>) -> Self {
        Self {
            content: OutputContent::Blocks(blocks.into()),
            ..Self::default()
        }
    }

    /// A structured value, and the same as JSON in a text block for clients that read only text.
    ///
    /// Clients of revisions before 2025-06-18 see only the text, and so do those before
    /// 2026-07-28 if the value is no object.
    ///
    /// # Errors
    ///
    /// The value's own `Serialize` failed, or it has a map whose keys are not strings.
    pub fn structured<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        Ok(Self {
            content: OutputContent::Structured,
            structured: Some(serde_json::to_string(value)?),
            ..Self::default()
        })
    }

    /// Replaces the content blocks, and keeps the structured value. Clients whose revision has no such values see it as text,
    /// unless one of the blocks is a text.
    #[must_use]
    pub fn with_content(mut self, blocks: impl Into<Vec<Content>>) -> Self {
        self.content = OutputContent::Blocks(blocks.into());
        self
    }

    /// Makes it a failure that the model reads (`isError: true`). For failures that more than a text tells; others
    /// are a [`ToolError`].
    #[must_use]
    pub fn into_error(mut self) -> Self {
        self.is_error = true;
        self
    }

    /// Adds `_meta` to the result. Keys need a prefix of their owner's, for example `com.example/cost`.
    #[must_use]
    pub fn with_meta(mut self, meta: Map<String, Value>) -> Self {
        self.meta = Some(Box::new(meta));
        self
    }
}

item_error! {
    /// Error of a call. It becomes a result with `isError: true`, which the model reads and may act on.
    ///
    /// Any [`Error`] converts into one with `?`; its `Display` is what the model is told. `anyhow::Error` and `Box<dyn Error>` do
    /// not implement that trait: a function with `#[tool]` returns them as its own error type instead. Where the text would tell
    /// too much, say it in your own words and keep the cause for the log:
    ///
    /// ```
    /// use longshore::ToolError;
    ///
    /// fn lookup() -> Result<String, ToolError> {
    ///     std::fs::read_to_string("/nonexistent")
    ///         .map_err(|e| ToolError::new("the station's data is not there yet; try again tomorrow").caused_by(e))
    /// }
    /// assert_eq!(lookup().unwrap_err().message(), "the station's data is not there yet; try again tomorrow");
    /// ```
    ToolError: ToolErrorKind, InvalidArguments
}

/// Category of the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ToolErrorKind {
    /// The tool ran, and could not do what it was asked to do.
    Failed,
    /// The arguments do not match the schema. Clients up to 2025-06-18 receive the JSON-RPC error -32602; later ones a
    /// result from which the model can correct itself.
    InvalidArguments,
    /// The client has not declared a required capability. 2026-07-28 has the error -32021 for it; earlier clients
    /// receive an ordinary error result.
    MissingCapability(ClientAbility),
    /// The client's person has to visit a page first. 2025-11-25 has the error -32042 for that; no other revision comes
    /// to it.
    UrlElicitationRequired,
    /// The caller may not make this call: the JSON-RPC error 403, with the message.
    Forbidden,
    /// The tool is at fault, not the caller: a broken promise of its own. The caller learns that it
    /// failed (-32603), the log learns why.
    Internal,
    /// Another server that the tool has called responded with a JSON-RPC error. The caller receives its code, message
    /// and data. `-32602` is handled as [`InvalidArguments`](Self::InvalidArguments).
    Protocol,
}

impl ToolError {
    /// Converts any error.
    pub(crate) fn from_boxed(error: Box<dyn Error + Send + Sync>) -> Self {
        match error.downcast::<InvalidArguments>() {
            Ok(invalid) => Self::of(ToolErrorKind::InvalidArguments, invalid.to_string()),
            Err(error) => Self::converted(error),
        }
    }
}
