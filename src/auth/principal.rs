//! Who a request comes from, whatever it was proved with.

use std::sync::Arc;

/// Who is calling.
///
/// State, sessions and limits are bound to the principal, never to what a client says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Principal {
    name: Arc<str>,
    kind: PrincipalKind,
}

/// How a principal came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PrincipalKind {
    /// Nobody was asked for a proof.
    Anonymous,
    /// The process at the other end of standard input and output.
    Local,
}

impl Principal {
    /// The caller of a server that asks for no proof.
    pub fn anonymous() -> Self {
        Self {
            name: Arc::from("anonymous"),
            kind: PrincipalKind::Anonymous,
        }
    }

    /// The process that started this one and talks to it over standard input and output.
    pub fn local() -> Self {
        Self {
            name: Arc::from("local"),
            kind: PrincipalKind::Local,
        }
    }

    /// The name that state, limits and logs know it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it came to be known.
    pub fn kind(&self) -> PrincipalKind {
        self.kind
    }
}
