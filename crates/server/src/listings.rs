//! Lists that are serialized once for each revision.

use std::sync::OnceLock;

use crate::catalog::{ListItem, Listing, ListingFrame, Table};
use crate::protocol::Revision;

/// A list for each revision, serialized on first use.
#[derive(Debug, Default)]
pub struct Listings([OnceLock<Listing>; Revision::ALL.len()]);

impl Listings {
    #[inline]
    pub fn get<T: ListItem>(&self, table: &Table<T>, frame: ListingFrame<'_>) -> &Listing {
        self.0[frame.revision as usize].get_or_init(|| {
            let mut listing = Listing::new(table, frame);
            for other in self.0.iter().filter_map(OnceLock::get) {
                listing.share(other);
            }
            listing
        })
    }
}
