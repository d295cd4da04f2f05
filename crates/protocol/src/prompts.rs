//! Prompt messages and arguments.

use serde::{Deserialize, Serialize};

use super::{Content, Role, lenient};

/// A message of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PromptMessage {
    /// Sender.
    pub role: Role,
    /// Content.
    pub content: Content,
}

impl PromptMessage {
    /// Creates a message of the user.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::of(Role::User, content)
    }

    /// Creates a message of the model.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::of(Role::Assistant, content)
    }

    fn of(role: Role, content: impl Into<Content>) -> Self {
        Self {
            role,
            content: content.into(),
        }
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::text(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::text(text)
    }
}

/// An argument of a prompt, as `prompts/list` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PromptArgument {
    /// Name for programs.
    pub name: String,
    /// Name for people; known from 2025-06-18 on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// True if the argument is required. Default: false.
    #[serde(
        default,
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub required: bool,
}

impl PromptArgument {
    /// An argument that has to be given.
    pub fn required(name: impl Into<String>) -> Self {
        Self {
            required: true,
            ..Self::optional(name)
        }
    }

    /// Creates an optional argument.
    pub fn optional(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Says what it is.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }

    /// Gives it a name for people.
    #[must_use]
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = Some(title.into());
        self
    }
}
