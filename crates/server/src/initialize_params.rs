//! Parameters of `initialize`.

use std::borrow::Cow;

use serde::Deserialize;

use crate::catalog::strict;
use crate::protocol::ClientCapabilities;
use crate::protocol::scan::{Key, ScanError, Scanner};

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InitializeParams<'a> {
    #[serde(borrow)]
    pub(super) protocol_version: Cow<'a, str>,
    #[serde(default)]
    pub(super) capabilities: ClientCapabilities,
    #[serde(borrow, default)]
    pub(super) client_info: ClientInfo<'a>,
}

#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(expecting = "an object")]
pub(super) struct ClientInfo<'a> {
    #[serde(borrow, default)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) version: Cow<'a, str>,
}

impl<'a> InitializeParams<'a> {
    /// Reads the text of the object, which was scanned with its message.
    ///
    /// # Errors
    ///
    /// A member that is missing, occurs twice, or has another type.
    pub(super) fn read(object: &'a str) -> serde_json::Result<Self> {
        match Self::read_usual(object) {
            Some(params) => Ok(params),
            None => strict::from_str(object),
        }
    }

    /// Reads what most clients send, in a third of the instructions: members that occur once, and strings without escapes.
    /// `None` for anything else, also if it is wrong.
    fn read_usual(object: &'a str) -> Option<Self> {
        let (mut protocol_version, mut capabilities, mut client_info) = (None, None, None);
        let mut scanner = Scanner::new(object);
        let read = scanner.object(|scanner, key| match key {
            Param::ProtocolVersion => set(&mut protocol_version, text(scanner)?, scanner),
            Param::Capabilities => {
                let declared = match scanner.value()? {
                    "{}" => ClientCapabilities::default(),
                    declared => strict::from_str(declared).map_err(|_| unusual(scanner))?,
                };
                set(&mut capabilities, declared, scanner)
            }
            Param::ClientInfo => {
                let client = ClientInfo::read_usual(scanner)?;
                set(&mut client_info, client, scanner)
            }
            Param::Other => scanner.value().map(drop),
        });
        read.ok()?;
        Some(Self {
            protocol_version: protocol_version?,
            capabilities: capabilities.unwrap_or_default(),
            client_info: client_info.unwrap_or_default(),
        })
    }
}

impl<'a> ClientInfo<'a> {
    fn read_usual(scanner: &mut Scanner<'a>) -> Result<Self, ScanError> {
        let (mut name, mut version) = (None, None);
        scanner.peek();
        scanner.object(|scanner, key| match key {
            ClientMember::Name => set(&mut name, text(scanner)?, scanner),
            ClientMember::Version => set(&mut version, text(scanner)?, scanner),
            ClientMember::Other => scanner.value().map(drop),
        })?;
        Ok(Self {
            name: name.unwrap_or_default(),
            version: version.unwrap_or_default(),
        })
    }
}

/// Reads a string without escapes.
fn text<'a>(scanner: &mut Scanner<'a>) -> Result<Cow<'a, str>, ScanError> {
    if scanner.peek() != Some(b'"') {
        return Err(unusual(scanner));
    }
    let text = scanner.scanned_string()?.as_written();
    text.map(Cow::Borrowed).ok_or_else(|| unusual(scanner))
}

/// Stores the value of a member that occurs once.
fn set<T>(slot: &mut Option<T>, value: T, scanner: &Scanner<'_>) -> Result<(), ScanError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(unusual(scanner)),
    }
}

/// Ends the reading. The reason is not shown to anyone.
#[cold]
fn unusual(scanner: &Scanner<'_>) -> ScanError {
    ScanError {
        reason: "unusual",
        at: scanner.at(),
    }
}

/// Members of the parameters.
enum Param {
    ProtocolVersion,
    Capabilities,
    ClientInfo,
    Other,
}

impl Key for Param {
    #[inline(always)]
    fn likely(scanner: &mut Scanner<'_>, first: u8) -> Option<Self> {
        Some(match first {
            b'p' if scanner.reads(br#""protocolVersion":"#) => Self::ProtocolVersion,
            b'c' if scanner.reads(br#""capabilities":"#) => Self::Capabilities,
            b'c' if scanner.reads(br#""clientInfo":"#) => Self::ClientInfo,
            _ => return None,
        })
    }

    fn of(text: &str) -> Self {
        match text {
            "protocolVersion" => Self::ProtocolVersion,
            "capabilities" => Self::Capabilities,
            "clientInfo" => Self::ClientInfo,
            _ => Self::Other,
        }
    }
}

/// Members of `clientInfo`.
enum ClientMember {
    Name,
    Version,
    Other,
}

impl Key for ClientMember {
    #[inline(always)]
    fn likely(scanner: &mut Scanner<'_>, first: u8) -> Option<Self> {
        Some(match first {
            b'n' if scanner.reads(br#""name":"#) => Self::Name,
            b'v' if scanner.reads(br#""version":"#) => Self::Version,
            _ => return None,
        })
    }

    fn of(text: &str) -> Self {
        match text {
            "name" => Self::Name,
            "version" => Self::Version,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_parameters_are_read_without_serde() {
        for params in [
            r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}"#,
            r#"{"clientInfo" : {"title":"A","version":"1"}, "capabilities" : {"roots":{}}, "protocolVersion" : "x", "_meta":{}}"#,
            r#"{"protocolVersion":""}"#,
        ] {
            let read = InitializeParams::read_usual(params);
            assert!(read.is_some(), "{params}");
            assert_eq!(read, strict::from_str(params).ok(), "{params}");
        }
    }

    #[test]
    fn other_parameters_are_read_as_serde_reads_them() {
        let escaped = r#"{"protocolVersion":"2025\u002d06-18","clientInfo":{"name":"\n"}}"#;
        assert_eq!(InitializeParams::read_usual(escaped), None);
        let read = InitializeParams::read(escaped).expect("valid");
        assert_eq!(read.protocol_version, "2025-06-18");
        assert_eq!(read.client_info.name, "\n");
        for empty in ["[]", "null"] {
            let empty = format!(r#"{{"protocolVersion":"a","capabilities":{empty}}}"#);
            let read = InitializeParams::read(&empty).expect("valid");
            assert_eq!(read.capabilities, ClientCapabilities::default());
        }
        for wrong in [
            "{}",
            r#"{"protocolVersion":1}"#,
            r#"{"protocolVersion":"a","protocolVersion":"a"}"#,
            r#"{"protocolVersion":"a","capabilities":1}"#,
            r#"{"protocolVersion":"a","clientInfo":[]}"#,
            r#"{"protocolVersion":"a","clientInfo":{"name":"a","name":"a"}}"#,
        ] {
            let error = InitializeParams::read(wrong).expect_err(wrong).to_string();
            assert!(!error.contains("struct"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_read_that_serde_reads_otherwise(
            params in r#"\{("(protocolVersion|capabilities|clientInfo|a)":("[a-c\\n]{0,3}"|1|null|\{\}|\{"(name|version|roots|sampling)":("a"|1|\{\})\}),?){0,4}\} ?"#
        ) {
            if let Some(read) = InitializeParams::read_usual(&params) {
                let by_serde = strict::from_str::<InitializeParams<'_>>(params.trim_end());
                prop_assert_eq!(Some(read), by_serde.ok());
            }
        }
    }
}
