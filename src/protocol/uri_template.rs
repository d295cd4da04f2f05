//! URI templates of RFC 6570, levels 1 to 3: expanded to URIs, and matched against them.
//!
//! Matching is the inverse of expansion: it reads a URI once and never goes back. That works for templates in which
//! each variable can be told from what follows it, and only those are accepted.

use std::borrow::Cow;
use std::fmt;

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

/// Why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// It is too long.
    #[error("it has more than {URI_MAX_BYTES} bytes")]
    TooLong,
    /// A brace without its partner.
    #[error("the brace at byte {at} has no partner")]
    Brace {
        /// Where it is.
        at: usize,
    },
    /// A character that a URI does not have.
    #[error("{character:?} at byte {at} has to be percent-encoded in a URI")]
    Literal {
        /// Which one.
        character: char,
        /// Where it is.
        at: usize,
    },
    /// Something in braces that is no expression of levels 1 to 3.
    #[error("`{{{expression}}}` is not an expression: {problem}")]
    Expression {
        /// What stands in the braces.
        expression: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A variable that appears twice.
    #[error("the variable `{name}` appears twice")]
    Repeated {
        /// Its name.
        name: String,
    },
    /// Where a variable ends could be read in several ways.
    #[error(
        "it cannot be told where the variable `{name}` ends: put a character such as `/` or `:` behind it, \
         which its values do not have"
    )]
    Ambiguous {
        /// Its name.
        name: String,
    },
}

/// What a template is a sequence of, expressions of the first two kinds taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Atom {
    Literal(Box<str>),
    /// A variable that has to have a value.
    Value {
        variable: usize,
        reserved: bool,
    },
    /// Variables that are announced by a character, and may be absent.
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
    Parameter,
    Query,
    Continuation,
}

impl Operator {
    fn prefix(self) -> u8 {
        match self {
            Self::Fragment => b'#',
            Self::Label => b'.',
            Self::Path => b'/',
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

// === Reading a template ===

impl UriTemplate {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it. The modifiers of level 4 (`{a*}`, `{a:3}`) are not understood.
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

    /// Whether it has no variable, so that it is a URI.
    pub fn is_uri(&self) -> bool {
        self.variables.is_empty()
    }

    /// Whether two templates differ in the names of variables only, so that they match the same URIs.
    pub(crate) fn matches_the_same_as(&self, other: &Self) -> bool {
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
        let first = self.variables.len();
        for name in names.split(',') {
            if name.ends_with('*') || name.contains(':') {
                return problem("modifiers (`*`, `:3`) are not supported");
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
                    reserved: text.starts_with('+'),
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
        '%' => !text.as_bytes()[at + 1..]
            .first_chunk::<2>()
            .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)),
        '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}' => true,
        other => !other.is_ascii_graphic(),
    })
}

/// What is wrong with a URI that names a resource, if anything is. Characters beyond ASCII are tolerated.
pub(crate) fn fault_of_uri(uri: &str) -> Option<&'static str> {
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
    let is_foreign = |c: char| {
        c.is_control()
            || matches!(
                c,
                ' ' | '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}'
            )
    };
    uri.contains(is_foreign)
        .then_some("it has a character that must be percent-encoded")
}

// === Expanding ===

impl UriTemplate {
    /// The URI for the values of variables. What has no value is left out.
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
                        push_encoded(&mut uri, text, *operator == Operator::Fragment);
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
        let is_triplet = || {
            byte == b'%'
                && text.as_bytes()[at + 1..]
                    .first_chunk::<2>()
                    .is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
        };
        if is_unreserved(byte) || reserved && (is_reserved(byte) || is_triplet()) {
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

fn is_reserved(byte: u8) -> bool {
    b":/?#[]@!$&'()*+,;=".contains(&byte)
}

// === Matching ===

/// How a URI is read. From the left up to a variable whose end only what follows can tell, then from the right
/// back to it. There is at most one such variable, so there is at most one way to read a URI.
#[derive(Clone, Debug)]
struct Plan {
    left: Vec<Step>,
    /// The variable in between, and whether it may hold reserved characters.
    open: Option<(usize, bool)>,
    /// From the last one to the first.
    right: Vec<Step>,
}

#[derive(Clone, Debug)]
enum Step {
    Literal(Box<str>),
    /// One character or more, up to one of `stops`.
    Value {
        variable: usize,
        stops: Vec<u8>,
    },
    Optional {
        operator: Operator,
        variables: std::ops::Range<usize>,
        stops: Vec<u8>,
    },
}

/// What no value holds, unless its variable is `{+...}` or `{#...}`.
const NEVER_IN_VALUES: &[u8] = b"/?#";

impl Plan {
    /// Fails with the first variable whose end cannot be told.
    fn new(atoms: &[Atom]) -> Result<Self, usize> {
        let mut left = Vec::new();
        for (at, atom) in atoms.iter().enumerate() {
            match atom {
                Atom::Literal(text) => left.push(Step::Literal(text.clone())),
                Atom::Value { variable, reserved } => match ends(&atoms[at + 1..]) {
                    Some(stops) if *reserved && stops.iter().all(|b| b"?#".contains(b)) => {
                        left.push(Step::Value {
                            variable: *variable,
                            stops,
                        });
                    }
                    Some(mut stops) if !reserved && stops.iter().all(|b| is_reserved(*b)) => {
                        stops.extend_from_slice(NEVER_IN_VALUES);
                        left.push(Step::Value {
                            variable: *variable,
                            stops,
                        });
                    }
                    _ => {
                        return Ok(Self {
                            left,
                            open: Some((*variable, *reserved)),
                            right: from_the_right(*variable, &atoms[at + 1..])?,
                        });
                    }
                },
                Atom::Optional {
                    operator,
                    variables,
                } => left.push(Step::Optional {
                    operator: *operator,
                    variables: variables.clone(),
                    stops: optional_ends(*operator, variables, &atoms[at + 1..])?,
                }),
            }
        }
        Ok(Self {
            left,
            open: None,
            right: Vec::new(),
        })
    }
}

/// The characters that may follow, given what comes next. `None` if that is a variable.
fn ends(next: &[Atom]) -> Option<Vec<u8>> {
    let mut ends = Vec::new();
    for atom in next {
        match atom {
            Atom::Literal(text) => {
                ends.extend(text.bytes().next());
                return Some(ends);
            }
            Atom::Value { .. } => return None,
            Atom::Optional { operator, .. } => ends.push(operator.prefix()),
        }
    }
    Some(ends)
}

fn optional_ends(
    operator: Operator,
    variables: &std::ops::Range<usize>,
    next: &[Atom],
) -> Result<Vec<u8>, usize> {
    let last = variables.end - 1;
    let mut stops = ends(next).ok_or(last)?;
    let is_clear = match operator {
        // Takes everything, and its values hold commas.
        Operator::Fragment => variables.len() == 1 && next.is_empty(),
        // Values hold dots.
        Operator::Label => variables.len() == 1 && stops.iter().all(|b| is_reserved(*b)),
        Operator::Path | Operator::Parameter => stops
            .iter()
            .all(|b| is_reserved(*b) && *b != operator.prefix()),
        Operator::Query | Operator::Continuation => stops.iter().all(|b| b"&#".contains(b)),
    };
    if !is_clear {
        return Err(last);
    }
    match operator {
        Operator::Fragment => stops.clear(),
        Operator::Query | Operator::Continuation => stops = b"&#".to_vec(),
        Operator::Label => stops.extend_from_slice(NEVER_IN_VALUES),
        Operator::Path | Operator::Parameter => {
            stops.extend_from_slice(NEVER_IN_VALUES);
            stops.push(operator.separator());
        }
    }
    Ok(stops)
}

/// How what follows an open variable is read from the right.
fn from_the_right(open: usize, atoms: &[Atom]) -> Result<Vec<Step>, usize> {
    let mut right = Vec::new();
    for (at, atom) in atoms.iter().enumerate().rev() {
        right.push(match atom {
            Atom::Literal(text) => Step::Literal(text.clone()),
            Atom::Value {
                variable,
                reserved: false,
            } => match at.checked_sub(1).map(|before| &atoms[before]) {
                Some(Atom::Literal(text)) if text.bytes().next_back().is_some_and(is_reserved) => {
                    let mut stops = NEVER_IN_VALUES.to_vec();
                    stops.extend(text.bytes().next_back());
                    Step::Value {
                        variable: *variable,
                        stops,
                    }
                }
                _ => return Err(open),
            },
            Atom::Value { .. } | Atom::Optional { .. } => return Err(open),
        });
    }
    Ok(right)
}

impl UriTemplate {
    /// The variables' values in a URI, percent-decoded; those that are left out are not there. `None` if the URI does
    /// not fit the template.
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
            rest = step.from_the_left(rest, &self.variables, &mut values)?;
        }
        for step in &self.plan.right {
            rest = step.from_the_right(rest, &mut values)?;
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

impl Step {
    /// Reads the beginning of a text; gives back what follows.
    fn from_the_left<'u>(
        &self,
        text: &'u str,
        names: &[Box<str>],
        values: &mut [Option<&'u str>],
    ) -> Option<&'u str> {
        match self {
            Self::Literal(literal) => text.strip_prefix(&**literal),
            Self::Value { variable, stops } => {
                let (value, rest) = split_at_any(text, stops);
                values[*variable] = Some(value).filter(|v| !v.is_empty());
                values[*variable].map(|_| rest)
            }
            Self::Optional {
                operator,
                variables,
                stops,
            } if operator.is_named() => Some(read_pairs(
                text,
                *operator,
                stops,
                &names[variables.clone()],
                &mut values[variables.clone()],
            )),
            Self::Optional {
                operator,
                variables,
                stops,
            } => {
                let mut rest = text;
                let mut mark = operator.prefix();
                for variable in variables.clone() {
                    let Some(after) = strip_byte(rest, mark) else {
                        break;
                    };
                    let (value, after) = split_at_any(after, stops);
                    values[variable] = Some(value);
                    rest = after;
                    mark = operator.separator();
                }
                Some(rest)
            }
        }
    }

    /// Reads the end of a text; gives back what comes before.
    fn from_the_right<'u>(&self, text: &'u str, values: &mut [Option<&'u str>]) -> Option<&'u str> {
        match self {
            Self::Literal(literal) => text.strip_suffix(&**literal),
            Self::Value { variable, stops } => {
                let start = text.bytes().rposition(|b| stops.contains(&b))? + 1;
                let (rest, value) = text.split_at(start);
                values[*variable] = Some(value).filter(|v| !v.is_empty());
                values[*variable].map(|_| rest)
            }
            Self::Optional { .. } => None,
        }
    }
}

/// Reads `?a=1&b=2` and its like, in whatever order. Stops in front of a name that is not its own.
fn read_pairs<'u>(
    text: &'u str,
    operator: Operator,
    stops: &[u8],
    names: &[Box<str>],
    values: &mut [Option<&'u str>],
) -> &'u str {
    let mut rest = text;
    let mut mark = operator.prefix();
    while let Some(after) = strip_byte(rest, mark) {
        let found = names.iter().zip(&mut *values).find_map(|(name, value)| {
            let after = after.strip_prefix(&**name)?;
            let ends = after
                .bytes()
                .next()
                .is_none_or(|b| b == b'=' || stops.contains(&b));
            (ends && value.is_none()).then_some((after, value))
        });
        let Some((after, place)) = found else {
            return rest;
        };
        let (value, after) = split_at_any(after.strip_prefix('=').unwrap_or(after), stops);
        *place = Some(value);
        rest = after;
        mark = operator.separator();
    }
    rest
}

fn strip_byte(text: &str, byte: u8) -> Option<&str> {
    text.strip_prefix(char::from(byte))
}

/// Splits in front of the first of some ASCII characters.
fn split_at_any<'u>(text: &'u str, stops: &[u8]) -> (&'u str, &'u str) {
    let end = text.bytes().position(|b| stops.contains(&b));
    text.split_at(end.unwrap_or(text.len()))
}

/// Undoes percent-encoding. `None` if a `%` has no two digits, or the result is not UTF-8.
fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
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

#[cfg(test)]
mod tests;
