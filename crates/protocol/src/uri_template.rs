//! URI templates of RFC 6570, levels 1 to 3, `{a*}` and `{/a*}`: expanded to URIs, and matched against them.
//!
//! Matching is the inverse of expansion: it reads a URI once and never goes back. That works for templates in which
//! each variable can be told from what follows it, and only those are accepted.

mod expand;
mod plan;

use std::borrow::Cow;
use std::fmt;

use plan::{NEVER_IN_VALUES, Plan};

/// URIs and templates longer than this are refused.
pub const URI_MAX_BYTES: usize = 8 * 1024;

/// A template of URIs, for example `git://repo/{branch}/file{?line}`.
///
/// ```
/// use longshore::protocol::UriTemplate;
///
/// let template = UriTemplate::parse("git://repo/{branch}/file{?line}").expect("a template");
/// assert_eq!(
///     template.matches("git://repo/fix%2F7/file").expect("it fits"),
///     [("branch", "fix/7".to_owned())]
/// );
/// let uri = template.expand(|name| (name == "branch").then_some("fix/7"));
/// assert_eq!(uri, "git://repo/fix%2F7/file");
/// ```
#[derive(Clone)]
pub struct UriTemplate {
    text: Box<str>,
    variables: Vec<Box<str>>,
    atoms: Vec<Atom>,
    plan: Plan,
}

/// Error of an unusable template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template is too long.
    #[error("it has more than {URI_MAX_BYTES} bytes")]
    TooLong,
    /// A brace without its partner.
    #[error("the brace at byte {at} has no counterpart")]
    Brace {
        /// Position of the error, in bytes.
        at: usize,
    },
    /// A character that a URI does not have.
    #[error("{character:?} at byte {at} must be percent-encoded in a URI")]
    Literal {
        /// The invalid character.
        character: char,
        /// Position of the character, in bytes.
        at: usize,
    },
    /// The braces contain no expression of levels 1 to 3.
    #[error("`{{{expression}}}` is not an expression: {problem}")]
    Expression {
        /// Content of the braces.
        expression: String,
        /// Description of the problem.
        problem: &'static str,
    },
    /// A variable that appears twice.
    #[error("the variable `{name}` appears twice")]
    Repeated {
        /// Its name.
        name: String,
    },
    /// The end of a variable is ambiguous.
    #[error(
        "the end of the variable `{name}` is ambiguous: put a character such as `/` or `:` behind it, which its values do not contain"
    )]
    Ambiguous {
        /// Its name.
        name: String,
    },
}

/// Part of a template. Expressions of the first two kinds are split.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Atom {
    Literal(Box<str>),
    /// A variable that has to have a value.
    Value {
        variable: usize,
        reserved: bool,
    },
    /// Optional variables with a prefix character.
    Optional {
        operator: Operator,
        variables: std::ops::Range<usize>,
    },
}

/// The operators that announce optional variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Fragment,
    Label,
    Path,
    /// Any number of path segments in one variable.
    Segments,
    Parameter,
    Query,
    Continuation,
}

impl Operator {
    fn prefix(self) -> u8 {
        match self {
            Self::Fragment => b'#',
            Self::Label => b'.',
            Self::Path | Self::Segments => b'/',
            Self::Parameter => b';',
            Self::Query => b'?',
            Self::Continuation => b'&',
        }
    }

    fn separator(self) -> u8 {
        match self {
            Self::Fragment => b',',
            Self::Query => b'&',
            other => other.prefix(),
        }
    }

    fn is_named(self) -> bool {
        matches!(self, Self::Parameter | Self::Query | Self::Continuation)
    }
}

impl UriTemplate {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it. Of the modifiers of level 4 only `{a*}` is understood, as `{+a}`, and `{/a*}`, as a path
    /// of any number of segments.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.len() > URI_MAX_BYTES {
            return Err(TemplateError::TooLong);
        }
        let mut parser = Parser::default();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            let at = text.len() - rest.len() + open;
            parser.literal(&rest[..open], at - open)?;
            let (Some(after), true) = (rest.get(open + 1..), rest[open..].starts_with('{')) else {
                return Err(TemplateError::Brace { at });
            };
            let close = after.find(['{', '}']).unwrap_or(after.len());
            if !after[close..].starts_with('}') {
                return Err(TemplateError::Brace { at });
            }
            parser.expression(&after[..close])?;
            rest = &after[close + 1..];
        }
        parser.literal(rest, text.len() - rest.len())?;
        let Parser { variables, atoms } = parser;
        let plan = Plan::new(&atoms).map_err(|variable| TemplateError::Ambiguous {
            name: variables[variable].to_string(),
        })?;
        Ok(Self {
            text: text.into(),
            variables,
            atoms,
            plan,
        })
    }

    /// The template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names of its variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|name| &**name)
    }

    /// Returns true if the template has no variable, so that it is a URI.
    pub fn is_uri(&self) -> bool {
        self.variables.is_empty()
    }

    /// Returns true if two templates differ only in the names of variables, so that they match the same URIs.
    pub fn matches_the_same_as(&self, other: &Self) -> bool {
        let named = |template: &Self, atom: &Atom| match atom {
            Atom::Optional {
                operator,
                variables,
            } if operator.is_named() => template.variables[variables.clone()].to_vec(),
            _ => Vec::new(),
        };
        self.atoms.len() == other.atoms.len()
            && self
                .atoms
                .iter()
                .zip(&other.atoms)
                .all(|(one, two)| one == two && named(self, one) == named(other, two))
    }
}

#[derive(Default)]
struct Parser {
    variables: Vec<Box<str>>,
    atoms: Vec<Atom>,
}

impl Parser {
    fn literal(&mut self, text: &str, at: usize) -> Result<(), TemplateError> {
        if let Some((offset, character)) = not_in_uris(text) {
            return Err(TemplateError::Literal {
                character,
                at: at + offset,
            });
        }
        if !text.is_empty() {
            self.atoms.push(Atom::Literal(text.into()));
        }
        Ok(())
    }

    fn expression(&mut self, text: &str) -> Result<(), TemplateError> {
        let problem = |problem| {
            Err(TemplateError::Expression {
                expression: text.chars().take(64).collect(),
                problem,
            })
        };
        let (operator, names) = match text.as_bytes().first() {
            None => return problem("it names no variable"),
            Some(b'+') => (None, &text[1..]),
            Some(b'#') => (Some(Operator::Fragment), &text[1..]),
            Some(b'.') => (Some(Operator::Label), &text[1..]),
            Some(b'/') => (Some(Operator::Path), &text[1..]),
            Some(b';') => (Some(Operator::Parameter), &text[1..]),
            Some(b'?') => (Some(Operator::Query), &text[1..]),
            Some(b'&') => (Some(Operator::Continuation), &text[1..]),
            Some(b'=' | b',' | b'!' | b'@' | b'|') => {
                return problem("its first character is reserved by RFC 6570");
            }
            Some(_) => (None, text),
        };
        let (operator, names) = match names.strip_suffix('*') {
            Some(name) if operator == Some(Operator::Path) && !name.contains(',') => {
                (Some(Operator::Segments), name)
            }
            _ => (operator, names),
        };
        let first = self.variables.len();
        for name in names.split(',') {
            let several = name.strip_suffix('*').filter(|_| operator.is_none());
            let name = several.unwrap_or(name);
            if name.ends_with('*') || name.contains(':') {
                return problem("modifiers other than `{a*}` and `{/a*}` are not supported");
            }
            if !is_variable_name(name) {
                return problem("the names of variables have letters, digits, `_` and single dots");
            }
            if self.variables.iter().any(|known| **known == *name) {
                return Err(TemplateError::Repeated {
                    name: name.to_owned(),
                });
            }
            if operator.is_none() {
                if self.variables.len() > first {
                    self.atoms.push(Atom::Literal(",".into()));
                }
                self.atoms.push(Atom::Value {
                    variable: self.variables.len(),
                    reserved: several.is_some() || text.starts_with('+'),
                });
            }
            self.variables.push(name.into());
            if self.variables.len() > VARIABLES_MAX {
                return problem("the template has more than 64 variables");
            }
        }
        if let Some(operator) = operator {
            self.atoms.push(Atom::Optional {
                operator,
                variables: first..self.variables.len(),
            });
        }
        Ok(())
    }
}

const VARIABLES_MAX: usize = 64;

fn is_variable_name(name: &str) -> bool {
    name.split('.').all(|part| {
        !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// The first character that may not stand in a URI, other than braces.
fn not_in_uris(text: &str) -> Option<(usize, char)> {
    text.char_indices().find(|(at, character)| match character {
        '%' => !is_encoded(text, *at),
        other => is_excluded(*other) || !other.is_ascii_graphic(),
    })
}

/// Returns true if two hexadecimal digits follow the `%` at this position.
fn is_encoded(text: &str, at: usize) -> bool {
    let digits = text.as_bytes()[at + 1..].first_chunk::<2>();
    digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
}

/// Returns true for visible characters that a URI does not have.
fn is_excluded(character: char) -> bool {
    matches!(
        character,
        '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}'
    )
}

/// Describes the problem of a URI that names a resource; `None` if it is valid. Characters beyond ASCII are
/// tolerated.
pub fn fault_of_uri(uri: &str) -> Option<&'static str> {
    if uri.len() > URI_MAX_BYTES {
        return Some("it has more than 8192 bytes");
    }
    let has_scheme = uri.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    });
    if !has_scheme {
        return Some("it does not begin with a scheme, such as `file:`");
    }
    uri.contains(must_be_encoded)
        .then_some("it has a character that must be percent-encoded")
}

fn must_be_encoded(character: char) -> bool {
    character.is_control() || character == ' ' || is_excluded(character)
}

/// Percent-encodes what [`fault_of_uri`] rejects.
pub fn encoded_uri(uri: &str) -> Cow<'_, str> {
    if !uri.contains(must_be_encoded) {
        return Cow::Borrowed(uri);
    }
    let mut encoded = String::with_capacity(uri.len() + 16);
    for character in uri.chars() {
        match must_be_encoded(character) {
            true => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    encoded.push_str(&format!("%{byte:02X}"));
                }
            }
            false => encoded.push(character),
        }
    }
    Cow::Owned(encoded)
}

fn is_reserved(byte: u8) -> bool {
    b":/?#[]@!$&'()*+,;=".contains(&byte)
}

// === Matching ===

impl UriTemplate {
    /// Extracts the variables' values from a URI, percent-decoded. Absent ones are left out. `None` if the URI does
    /// not match.
    ///
    /// Takes time in proportion to the URI's length. Values are a stranger's text: they may be `..`, and decoded ones
    /// may hold slashes.
    pub fn matches(&self, uri: &str) -> Option<Vec<(&str, String)>> {
        if uri.len() > URI_MAX_BYTES {
            return None;
        }
        let mut values: Vec<Option<&str>> = vec![None; self.variables.len()];
        let mut rest = uri;
        for step in &self.plan.left {
            rest = step.read_start(rest, &self.variables, &mut values)?;
        }
        for step in &self.plan.right {
            rest = step.read_end(rest, &mut values)?;
        }
        match self.plan.open {
            Some((variable, reserved)) => {
                let fits = !rest.is_empty()
                    && (reserved || !rest.bytes().any(|b| NEVER_IN_VALUES.contains(&b)));
                values[variable] = Some(rest).filter(|_| fits);
                values[variable]?;
            }
            None if rest.is_empty() => {}
            None => return None,
        }
        let mut decoded = Vec::with_capacity(values.len());
        for (name, value) in self.variables.iter().zip(values) {
            if let Some(value) = value {
                decoded.push((&**name, percent_decoded(value)?.into_owned()));
            }
        }
        Some(decoded)
    }
}

/// Undoes percent-encoding. `None` if a `%` has no two digits, or the result is not UTF-8.
pub fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            decoded.push(*first);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>()?;
        let [high, low] = digits.map(|d| char::from(d).to_digit(16));
        decoded.push(u8::try_from(high? * 16 + low?).ok()?);
        rest = after;
    }
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

impl fmt::Debug for UriTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UriTemplate").field(&self.text).finish()
    }
}

impl fmt::Display for UriTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses a template and a URI, separated by a line break, and matches them.
///
/// # Panics
///
/// If what was found does not expand to something that is read the same way.
#[cfg(any(fuzzing, test, feature = "testing"))]
pub fn template_holds(bytes: &[u8]) {
    let Some((text, uri)) = std::str::from_utf8(bytes)
        .ok()
        .and_then(|t| t.split_once('\n'))
    else {
        return;
    };
    let _ = fault_of_uri(uri);
    let Ok(template) = UriTemplate::parse(text) else {
        return;
    };
    let Some(found) = template.matches(uri) else {
        return;
    };
    let expanded = template.expand(|name| {
        let value = found.iter().find(|(known, _)| *known == name);
        value.map(|(_, value)| value.as_str())
    });
    // Reserved characters are expanded as they are, so that decoded ones are read as something else.
    let is_verbatim = text.contains("{+") || text.contains("{#");
    if !is_verbatim && expanded.len() <= URI_MAX_BYTES {
        assert_eq!(template.matches(&expanded), Some(found), "{text} {uri}");
    }
}

#[cfg(test)]
mod tests;
