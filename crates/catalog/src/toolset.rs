//! Objects whose methods are tools, resources and prompts.

use std::sync::Arc;

use super::SourceItems;

/// An object whose methods are tools, resources and prompts.
///
/// [`#[tools]`](macro@crate::tools) on an `impl` writes this; `App::toolset` adds the object.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a toolset",
    label = "needs `#[tools]` on its `impl`",
    note = "write `#[tools] impl {Self} {{ #[tool] async fn name(&self) ... }}`"
)]
pub trait Toolset: Send + Sync + 'static {
    /// The object's methods, each in the order in which it is listed.
    fn offered(self: Arc<Self>) -> SourceItems;
}
