//! Live page for operators on the admin port.
//!
//! The page is static and read-only. It fetches `/health/detailed` and `/metrics` every two seconds and draws what changed.

use std::sync::LazyLock;

use http::Response;

use super::static_page::StaticPage;
use crate::net::Body;

static PAGE: LazyLock<StaticPage> =
    LazyLock::new(|| StaticPage::new(include_str!("dashboard.html")));

pub(super) fn page() -> Response<Body> {
    PAGE.respond("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_small_and_loads_nothing() {
        PAGE.check(24 * 1024);
    }
}
