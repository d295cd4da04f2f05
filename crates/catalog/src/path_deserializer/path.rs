//! Path of an error in a JSON tree.

use std::cell::RefCell;
use std::fmt;

use serde_json::Error;

/// Error of a value that does not match a type, with its path.
#[derive(Debug)]
pub struct TypeMismatch {
    pub path: Path,
    pub cause: Error,
}

/// From the outside inwards. Shown as `servers[0].url`, and as `.` if it is the whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Path(Vec<PathSegment>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathSegment {
    Member(String),
    Item(usize),
    /// The data of an enum's variant.
    Variant(String),
}

impl Path {
    pub fn pieces(&self) -> impl Iterator<Item = &PathSegment> {
        self.0.iter()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(".");
        }
        for (place, piece) in self.0.iter().enumerate() {
            match piece {
                PathSegment::Item(index) => write!(f, "[{index}]")?,
                PathSegment::Member(name) | PathSegment::Variant(name) if place == 0 => {
                    f.write_str(name)?;
                }
                PathSegment::Member(name) | PathSegment::Variant(name) => write!(f, ".{name}")?,
            }
        }
        Ok(())
    }
}

/// Path segments of an error, collected from the innermost outwards.
#[derive(Debug, Default)]
pub struct PathTracker(RefCell<Vec<PathSegment>>);

impl PathTracker {
    pub(crate) fn ended_by(self, cause: Error) -> TypeMismatch {
        let mut pieces = self.0.into_inner();
        pieces.reverse();
        TypeMismatch {
            path: Path(pieces),
            cause,
        }
    }

    #[cold]
    pub(super) fn note(&self, piece: PathSegment) {
        self.0.borrow_mut().push(piece);
    }
}
