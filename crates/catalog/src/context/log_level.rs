//! Severity of log messages.

use serde::{Deserialize, Serialize};

longshore_protocol::named_enum! {
    /// Severity of a log message (RFC 5424), from lowest to highest.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    #[repr(u8)]
    pub enum LogLevel {
        /// Details for debugging.
        Debug = "debug",
        /// A normal event.
        Info = "info",
        /// A normal but significant event.
        Notice = "notice",
        /// A condition that can become an error.
        Warning = "warning",
        /// A failed operation.
        Error = "error",
        /// A failed component.
        Critical = "critical",
        /// A condition that requires immediate action.
        Alert = "alert",
        /// The system is unusable.
        Emergency = "emergency",
    }
    /// The name on the wire.
    pub fn as_str;
    /// Parses the name on the wire.
    pub fn parse;
}
