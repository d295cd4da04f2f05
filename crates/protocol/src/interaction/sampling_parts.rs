//! Parts of a sampling request: the choice of tools, the context and the preferences.

use serde::Serialize;

crate::named_enum! {
    /// Controls the model's use of tools.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ToolChoice {
        /// As it likes.
        Auto = "auto",
        /// The model must call a tool.
        Required = "required",
        /// The model must not call a tool.
        None = "none",
    }
    pub(super) fn as_str;
}

crate::named_enum! {
    /// Context that the client adds for its model. Sent only to clients that declared `sampling.context`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ContextInclusion {
        /// No context.
        None = "none",
        /// Earlier messages of this server.
        ThisServer = "thisServer",
        /// Earlier messages of all servers of the client.
        AllServers = "allServers",
    }
    pub(super) fn as_str;
}

/// Model preferences. The client decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelPreferences {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hints: Vec<ModelHint>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost_priority: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    speed_priority: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    intelligence_priority: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ModelHint {
    name: String,
}

impl ModelPreferences {
    /// No preferences.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a model name, or a part of one. Earlier names are preferred.
    #[must_use]
    pub fn hint(mut self, name: impl Into<String>) -> Self {
        self.hints.push(ModelHint { name: name.into() });
        self
    }

    /// Sets the priority of low cost, from 0 to 1.
    #[must_use]
    pub fn cost(mut self, priority: f64) -> Self {
        self.cost_priority = Some(priority.clamp(0.0, 1.0));
        self
    }

    /// Sets the priority of speed, from 0 to 1.
    #[must_use]
    pub fn speed(mut self, priority: f64) -> Self {
        self.speed_priority = Some(priority.clamp(0.0, 1.0));
        self
    }

    /// Sets the priority of intelligence, from 0 to 1.
    #[must_use]
    pub fn intelligence(mut self, priority: f64) -> Self {
        self.intelligence_priority = Some(priority.clamp(0.0, 1.0));
        self
    }
}
