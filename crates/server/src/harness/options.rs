//! Options of the client that the harness stands for.

use std::sync::Arc;

use http::{HeaderName, HeaderValue};
use serde_json::Value;

use super::Harness;
use crate::auth::Principal;
use crate::catalog::LogLevel;
use crate::protocol::Revision;
use crate::server::ClientRequestCounts;

impl Harness {
    /// Sets the revision of requests. Default: the newest.
    #[must_use]
    pub fn with_version(mut self, revision: Revision) -> Self {
        self.revision = revision;
        self.renew_peer();
        self
    }

    /// Sets the principal of requests, for tools that depend on the caller or on scopes. Default: [`Principal::local`],
    /// without scopes.
    ///
    /// ```
    /// use longshore::auth::Principal;
    /// use longshore::{App, CallContext, tool};
    /// use serde_json::json;
    ///
    /// /// Says who calls.
    /// #[tool(scopes("reports:read"))]
    /// async fn report(context: &CallContext) -> String {
    ///     format!("for {}", context.principal().name())
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> longshore::Result {
    /// let ada = Principal::new("ada").with_scopes(["reports:read"]);
    /// let server = App::new().tool(report).harness()?.with_principal(ada);
    /// let result = server.call("report", json!({})).await.expect("a result");
    /// assert_eq!(result["content"][0]["text"], "for ada");
    ///
    /// let server = App::new().tool(report).harness()?.with_principal(Principal::new("bob"));
    /// let error = server.call("report", json!({})).await.expect_err("a scope is missing");
    /// assert_eq!(error["code"], 403);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_principal(mut self, principal: Principal) -> Self {
        self.principal = Arc::new(principal);
        self.renew_peer();
        self
    }

    /// Adds a header that requests come with, for tests of tools that read [headers](crate::catalog::extract::Header).
    ///
    /// # Panics
    ///
    /// The name has letters in upper case, or either is not a valid header.
    #[must_use]
    #[track_caller]
    pub fn with_header(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).unwrap_or_else(|error| panic!("{name}: {error}"));
        let http = self.http.get_or_insert_default();
        http.headers.insert(HeaderName::from_static(name), value);
        self.renew_peer();
        self
    }

    /// Adds a value that requests come with, as if a `tower` layer had set it, for tests of tools that take an
    /// [`Extension`](crate::catalog::extract::Extension).
    ///
    /// ```
    /// use longshore::extract::Extension;
    /// use longshore::{App, tool};
    /// use serde_json::json;
    ///
    /// #[derive(Clone)]
    /// struct Tenant(&'static str);
    ///
    /// /// Returns the tenant.
    /// #[tool]
    /// async fn tenant(#[call] Extension(Tenant(name)): Extension<Tenant>) -> &'static str {
    ///     name
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> longshore::Result {
    /// let server = App::new().tool(tenant).harness()?.with_extension(Tenant("acme"));
    /// assert_eq!(server.call("tenant", json!({})).await?.text(), "acme");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_extension<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        let http = self.http.get_or_insert_default();
        Arc::make_mut(&mut http.extensions).insert(value);
        self.renew_peer();
        self
    }

    /// Asks for log messages of this level and above, which [`CallResult::logs`](super::CallResult::logs) then has. Default: none.
    ///
    /// ```
    /// use longshore::extract::Log;
    /// use longshore::{App, LogLevel, tool};
    /// use serde_json::json;
    ///
    /// /// Copies files.
    /// #[tool]
    /// async fn copy(#[call] log: Log) {
    ///     log.debug("opening").await;
    ///     log.warning("a file is missing").await;
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> longshore::Result {
    /// let server = App::new().tool(copy).harness()?.with_log_level(LogLevel::Warning);
    /// let result = server.call("copy", json!({})).await?;
    /// assert_eq!(result.logs()[0]["data"], "a file is missing");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_log_level(mut self, level: LogLevel) -> Self {
        self.log_level = Some(level);
        self.renew_peer();
        self
    }

    /// Sets the client's response to requests of the server: a function of the method, for example
    /// `elicitation/create`, and the parameters. The client then declares all capabilities; without this, none.
    #[must_use]
    pub fn on_client_request(
        mut self,
        answer: impl Fn(&str, &Value) -> Value + Send + Sync + 'static,
    ) -> Self {
        self.answer = Some(Box::new(answer));
        self.renew_peer();
        self
    }

    /// Counters of requests sent to the client.
    pub fn client_request_counts(&self) -> ClientRequestCounts {
        self.server.client_request_counts()
    }
}
