//! The revisions of the protocol, and what each can do. The only place that compares them.

use std::fmt;

use serde::{Deserialize, Serialize};

crate::named_enum! {
    /// A revision of the Model Context Protocol, by its date.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    pub enum Revision {
        /// The first one: HTTP+SSE and stdio.
        #[serde(rename = "2024-11-05")]
        V2024_11_05 = "2024-11-05",
        /// Streamable HTTP, sessions, batches.
        #[serde(rename = "2025-03-26")]
        V2025_03_26 = "2025-03-26",
        /// Structured results, elicitation, resource links.
        #[serde(rename = "2025-06-18")]
        V2025_06_18 = "2025-06-18",
        /// Icons, URL elicitation, experimental tasks.
        #[serde(rename = "2025-11-25")]
        V2025_11_25 = "2025-11-25",
        /// No sessions: each request stands alone.
        #[serde(rename = "2026-07-28")]
        V2026_07_28 = "2026-07-28",
    }
    /// Returns the date that names the protocol version.
    pub fn as_str;
    /// Parses the date that names a protocol version.
    pub fn parse;
    /// All, from old to new.
    pub const ALL;
}

impl Revision {
    /// The newest revision that begins with a handshake; offered to clients that ask for an unknown one.
    pub const NEWEST_WITH_SESSIONS: Self = Self::V2025_11_25;

    /// Returns true if clients open a session with `initialize`.
    pub fn has_sessions(self) -> bool {
        self < Self::V2026_07_28
    }

    /// Returns true if one array may contain several messages.
    pub fn has_batches(self) -> bool {
        self == Self::V2025_03_26
    }

    /// Returns true if `Last-Event-ID` resumes a broken stream.
    pub fn can_resume_streams(self) -> bool {
        Self::V2025_03_26 <= self && self.has_sessions()
    }

    /// Returns true if a stream begins with an event that only has an id, and may end before the response.
    pub fn has_priming_events(self) -> bool {
        Self::V2025_11_25 <= self && self.has_sessions()
    }

    /// Returns true if tools have annotations and content may be audio.
    pub fn has_annotations(self) -> bool {
        Self::V2025_03_26 <= self
    }

    /// Returns true if there are structured results, output schemas, titles and resource links.
    pub fn has_structured_results(self) -> bool {
        Self::V2025_06_18 <= self
    }

    /// Returns true if a structured result may be any JSON value.
    pub fn has_structured_values_of_any_kind(self) -> bool {
        Self::V2026_07_28 <= self
    }

    /// Returns true if tools and servers have icons, and servers a description.
    pub fn has_icons(self) -> bool {
        Self::V2025_11_25 <= self
    }

    /// Returns true if servers declare completions.
    pub fn announces_completions(self) -> bool {
        Self::V2025_03_26 <= self
    }

    /// Returns true if sampling may have tools, and messages several blocks.
    pub fn has_sampling_tools(self) -> bool {
        Self::V2025_11_25 <= self
    }

    /// Returns true if servers can send elicitation requests.
    pub fn has_elicitation(self) -> bool {
        Self::V2025_06_18 <= self
    }

    /// Returns true if elicitation has modes, defaults of every type, titled choices and multiple choice.
    pub fn has_rich_forms(self) -> bool {
        Self::V2025_11_25 <= self
    }

    /// Returns true if URL elicitation has an id, by which the client learns of its completion.
    pub fn has_elicitation_ids(self) -> bool {
        self == Self::V2025_11_25
    }

    /// Returns true if clients may request tasks without an extension.
    pub fn has_core_tasks(self) -> bool {
        self == Self::V2025_11_25
    }

    /// Returns true if a missing resource has its own error code.
    pub fn has_resource_not_found(self) -> bool {
        self < Self::V2026_07_28
    }

    /// Returns true if invalid arguments are a tool result for the model, not a JSON-RPC error.
    pub fn shows_invalid_arguments_to_the_model(self) -> bool {
        Self::V2025_11_25 <= self
    }

    /// Returns true if every result contains its type, the server's identity and its cache lifetime.
    pub fn has_result_type(self) -> bool {
        Self::V2026_07_28 <= self
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_read_back_and_nothing_else_does() {
        for revision in Revision::ALL {
            assert_eq!(Revision::parse(revision.as_str()), Some(revision));
        }
        for date in ["", "2025-11-26", "2026-07-28 ", "1.0", "draft"] {
            assert_eq!(Revision::parse(date), None);
        }
    }
}
