//! Tools that register themselves.

use std::sync::Arc;

use crate::catalog::Tool;

/// The tools whose functions have `#[tool(collect)]`, sorted by name.
///
/// It has the tools of every crate that is linked into the program. The linker can leave out a crate of which nothing is
/// used; naming one item of it is enough.
///
/// ```
/// use longshore::tool;
///
/// /// Says hello.
/// #[tool(collect)]
/// async fn hello() -> &'static str {
///     "hello"
/// }
///
/// let names: Vec<_> = longshore::collected_tools()
///     .iter()
///     .map(|tool| tool.definition().name().to_owned())
///     .collect();
/// assert_eq!(names, ["hello"]);
/// ```
pub fn collected_tools() -> Vec<Arc<dyn Tool>> {
    let mut tools: Vec<_> = inventory::iter::<CollectedTool>
        .into_iter()
        .map(|CollectedTool(make)| make())
        .collect();
    tools.sort_by(|a, b| a.definition().name.cmp(&b.definition().name));
    tools
}

/// A registration, made by `#[tool(collect)]`.
#[doc(hidden)]
#[derive(Debug)]
pub struct CollectedTool(pub fn() -> Arc<dyn Tool>);

inventory::collect!(CollectedTool);
