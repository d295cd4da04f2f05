//! Who is calling.
//!
//! A [`Principal`] is what every later step asks; how it was proved is this room's own matter.

mod principal;

pub use principal::{Principal, PrincipalKind};
