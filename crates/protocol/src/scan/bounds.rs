//! Bounds of a document.

use super::{DEPTH_MAX, MEMBERS_MAX};

/// Bounds of a document. They never exceed [`DEPTH_MAX`] and [`MEMBERS_MAX`], the defaults. Values are unbounded by
/// default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Initial depth counter (`DEPTH_MAX - limit`), so that the hot loop compares against a constant.
    pub(super) depth: u32,
    pub(super) members: u16,
    pub(super) values: u32,
}

impl Bounds {
    /// Creates bounds on depth, members of an object, and values in skipped arrays and objects.
    pub fn new(depth: u32, members: u16, values: u32) -> Self {
        Self {
            depth: DEPTH_MAX.saturating_sub(depth),
            members: MEMBERS_MAX.saturating_sub(members),
            values,
        }
    }
}

impl Default for Bounds {
    fn default() -> Self {
        Self::new(DEPTH_MAX, MEMBERS_MAX, u32::MAX)
    }
}

/// Kinds of exceeded bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    Depth,
    Members,
    Values,
    /// The ID of a message is too long. The scanner knows no IDs.
    Id,
}
