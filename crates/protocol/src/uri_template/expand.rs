//! Expansion of templates to URIs.

use super::{Atom, Operator, UriTemplate, is_encoded, is_reserved};

impl UriTemplate {
    /// Expands the template. Variables without a value are left out.
    pub fn expand<'v>(&self, mut value: impl FnMut(&str) -> Option<&'v str>) -> String {
        let mut uri = String::with_capacity(self.text.len());
        for atom in &self.atoms {
            match atom {
                Atom::Literal(text) => uri.push_str(text),
                Atom::Value { variable, reserved } => {
                    let text = value(&self.variables[*variable]).unwrap_or_default();
                    push_encoded(&mut uri, text, *reserved);
                }
                Atom::Optional {
                    operator,
                    variables,
                } => {
                    let mut mark = operator.prefix();
                    for name in &self.variables[variables.clone()] {
                        let Some(text) = value(name) else { continue };
                        uri.push(char::from(mark));
                        mark = operator.separator();
                        if operator.is_named() {
                            uri.push_str(name);
                            if !text.is_empty() || *operator != Operator::Parameter {
                                uri.push('=');
                            }
                        }
                        if *operator != Operator::Segments {
                            push_encoded(&mut uri, text, *operator == Operator::Fragment);
                            continue;
                        }
                        for (at, segment) in text.split('/').enumerate() {
                            uri.push_str(if at > 0 { "/" } else { "" });
                            push_encoded(&mut uri, segment, false);
                        }
                    }
                }
            }
        }
        uri
    }
}

fn push_encoded(uri: &mut String, text: &str, reserved: bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for (at, byte) in text.bytes().enumerate() {
        let is_kept = || is_reserved(byte) || byte == b'%' && is_encoded(text, at);
        if is_unreserved(byte) || reserved && is_kept() {
            uri.push(char::from(byte));
        } else {
            uri.push('%');
            uri.push(char::from(DIGITS[usize::from(byte >> 4)]));
            uri.push(char::from(DIGITS[usize::from(byte & 0xf)]));
        }
    }
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}
