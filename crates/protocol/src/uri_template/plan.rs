//! Plans for matching URIs.

use super::{Atom, Operator, is_reserved};

/// Matching plan: from the left up to the variable whose end depends on the text after it, then from the right back
/// to it. There is at most one such variable, so a URI has at most one reading.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) left: Vec<Step>,
    /// The variable in between, and whether it may hold reserved characters.
    pub(super) open: Option<(usize, bool)>,
    /// From the last one to the first.
    pub(super) right: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Literal(Box<str>),
    /// One or more characters, up to one of `stops`.
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

/// Characters that no value contains, except of `{+...}`, `{#...}` and `{/...*}`.
pub(super) const NEVER_IN_VALUES: &[u8] = b"/?#";

impl Plan {
    /// Fails with the first variable whose end cannot be told.
    pub(super) fn new(atoms: &[Atom]) -> Result<Self, usize> {
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

/// Returns the characters that may follow before the next part. `None` if a variable follows.
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
        Operator::Segments => stops.iter().all(|b| b"?#".contains(b)),
        Operator::Query | Operator::Continuation => stops.iter().all(|b| b"&#".contains(b)),
    };
    if !is_clear {
        return Err(last);
    }
    match operator {
        Operator::Fragment => stops.clear(),
        Operator::Segments => stops = b"?#".to_vec(),
        Operator::Query | Operator::Continuation => stops = b"&#".to_vec(),
        Operator::Label => stops.extend_from_slice(NEVER_IN_VALUES),
        Operator::Path | Operator::Parameter => {
            stops.extend_from_slice(NEVER_IN_VALUES);
            stops.push(operator.separator());
        }
    }
    Ok(stops)
}

/// Plans the steps after an open variable, which are read from the right.
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

impl Step {
    /// Reads the beginning of a text; gives back what follows.
    pub(super) fn read_start<'u>(
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

    /// Matches the end of a text and returns the rest before it.
    pub(super) fn read_end<'u>(
        &self,
        text: &'u str,
        values: &mut [Option<&'u str>],
    ) -> Option<&'u str> {
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

/// Reads pairs such as `?a=1&b=2` in any order. Stops at a foreign name.
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
