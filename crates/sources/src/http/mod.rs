//! HTTP requests as tools.

mod answer;
mod config;
mod request;

use std::sync::Arc;

use futures_util::future::{LocalBoxFuture, ready};
use http::{HeaderValue, Method};
use url::Url;

pub use config::{HttpSourceConfig, HttpToolConfig, PagesConfig, ReadAs, ResponseConfig};

use self::answer::{Pages, Response, check_response_of_pages};
use self::request::RequestPlan;
pub(super) use self::request::{assemble, parse_base};
use super::api_client::{ApiClient, CallRef, ClientSettings, RequestOptions};
use super::argument::{fill_in, input_schema, names, tree};
use super::builder::SourceBuilder;
use super::client_stats::ClientStatsHandle;
use super::credentials::AuthConfig;
use super::headers::{fixed_headers, forwarded_headers};
use super::identity::{Forward, names_authorization};
use super::kind::SourceKind;
use super::limits::{GRACE, time_limit};
use super::output_contract::{Mismatches, OutputContract};
use super::redact::{conceal, secrets_in};
use super::template::{self, TemplateError};
use super::tool_plan::{PlanTool, ToolPlan};
use crate::catalog::{Arguments, CallContext, Definition, Output, ToolError, UpstreamIdentity};
use crate::net::{FetchedResponse, OutgoingRequest};
use crate::protocol::ToolAnnotations;

/// Sends one request, or one for each page of a list.
struct Plan {
    schema: serde_json::Value,
    client: Arc<ApiClient>,
    request: RequestPlan,
    /// Applies only to requests with the source's credentials.
    forward: Forward,
    response: Response,
    pages: Option<Pages>,
    /// True if a request can be sent again after a failure.
    repeatable: bool,
    /// True if requests carry the source's credentials.
    authenticated: bool,
    promise: Option<OutputContract>,
}

impl SourceKind for HttpSourceConfig {
    fn collect<'a>(&'a self, builder: &'a mut SourceBuilder) -> LocalBoxFuture<'a, ()> {
        collect(self, builder);
        Box::pin(ready(()))
    }

    fn auth(&self) -> Option<&AuthConfig> {
        Some(&self.auth)
    }
}

/// Collects the tools of an HTTP source.
fn collect(http: &HttpSourceConfig, collector: &mut SourceBuilder) {
    let mut bases = Vec::new();
    if !http.base_url.is_empty() {
        match parse_base(&http.base_url) {
            Ok(base) => bases.push(base),
            Err(problem) => return collector.refuse("http.base_url", problem),
        }
    }
    // The operator wrote the hosts that tools name, as well as the base, so they are trusted alike. A host that is
    // not reachable affects only its tool.
    let own = |tool: &HttpToolConfig| {
        let base = request::own_base(&tool.url)?;
        let allowed = http.egress.guard().map_or(Ok(()), |guard| {
            let problem = guard.trust(&base).check_url(&base);
            problem.map_err(|problem| format!("url: {problem}"))
        });
        Some(allowed.map(|()| base))
    };
    bases.extend(http.tools.iter().filter_map(|tool| own(tool)?.ok()));
    let source = collector.source.clone();
    let settings = ClientSettings {
        name: source.as_str().into(),
        bases: bases.into(),
        egress: http.egress.clone(),
        tls: http.tls.clone(),
        auth: http.auth.clone(),
        limits: http.limits.clone(),
    };
    let client = ApiClient::of_source(settings, &collector.parts);
    let client = match client {
        Ok(client) => client,
        Err((setting, problem)) => return collector.refuse(&format!("http.{setting}"), problem),
    };
    let mismatches = collector.parts.reuse.mismatches("http", &source);
    let gauge = ClientStatsHandle::of_client(&source, "http", &client).with_mismatches(&mismatches);
    collector.count(gauge);
    if let Err(problem) = fixed_headers(&http.headers) {
        return collector.refuse("http.headers", problem);
    }
    if let Err(problem) = forwarded_headers(&http.forward_headers) {
        return collector.refuse("http.forward_headers", problem);
    }
    let has_credentials = http.auth.is_some() || names_authorization(http.headers.keys());
    let signer = collector.parts.signer.as_ref();
    let forward = Forward::new(&http.forward, signer, has_credentials);
    let forward = match forward {
        Ok(forward) => forward,
        Err((setting, problem)) => return collector.refuse(&format!("http.{setting}"), problem),
    };
    let prefix = collector.prefix();
    for (position, tool) in http.tools.iter().enumerate() {
        let made = match own(tool) {
            Some(Err(problem)) => Err(problem),
            _ => tool_of(http, tool, &prefix, (client.clone(), &forward), &mismatches),
        };
        match made {
            Ok(tool) => collector.offer(tool),
            Err(problem) => {
                let place = format!("http.tools[{position}] ({})", tool.name);
                collector.refuse(&place, problem);
            }
        }
    }
    if http.tools.is_empty() {
        collector.refuse(
            "http.tools",
            "it has no tools; add one, or remove the source",
        );
    }
}

fn tool_of(
    http: &HttpSourceConfig,
    config: &HttpToolConfig,
    prefix: &str,
    (client, forward): (Arc<ApiClient>, &Forward),
    mismatches: &Mismatches,
) -> Result<PlanTool<Plan>, String> {
    let schema = input_schema(&config.arguments, config.input_schema.as_ref())?;
    let names = names(&schema);
    let names = names.as_deref();
    let authenticated = request::sends_credentials(http, config)?;
    let request = RequestPlan::new(http, config, names, authenticated)?;
    let response = Response::new(&config.response, names, request.method())?;
    if config.pages.is_some() {
        check_response_of_pages(&config.response)?;
    }
    let method = request.method().clone();
    let read_only = config.read_only.unwrap_or_else(|| method.is_safe());
    let repeatable = read_only || config.idempotent == Some(true);
    let mut definition = Definition::new(format!("{prefix}{}", config.name))
        .input_schema(schema.clone())
        .annotations(annotations(config, &method))
        .timeout(time_limit(http.limits.timeout_seconds) + GRACE);
    definition.title.clone_from(&config.title);
    definition.description.clone_from(&config.description);
    definition.output_schema.clone_from(&config.output_schema);
    let promise =
        OutputContract::configured(config.output_schema.as_ref(), &definition.name, mismatches)?;
    Ok(PlanTool {
        definition,
        plan: Arc::new(Plan {
            schema,
            client,
            request,
            forward: match authenticated {
                true => forward.clone(),
                false => Forward::default(),
            },
            response,
            pages: config.pages.as_ref().map(Pages::new).transpose()?,
            repeatable,
            authenticated,
            promise,
        }),
    })
}

/// Returns the tool annotations that follow from the method (RFC 9110, 9.2), where the configuration sets none.
fn annotations(config: &HttpToolConfig, method: &Method) -> ToolAnnotations {
    let mut annotations = annotations_of(method);
    if config.read_only.is_some() {
        annotations.read_only_hint = config.read_only;
    }
    if config.destructive.is_some() {
        annotations.destructive_hint = config.destructive;
    }
    if config.idempotent.is_some() {
        annotations.idempotent_hint = config.idempotent;
    }
    annotations
}

pub(super) fn annotations_of(method: &Method) -> ToolAnnotations {
    let destructive = matches!(*method, Method::DELETE | Method::PUT | Method::PATCH);
    let mut hints = ToolAnnotations::default();
    hints.read_only_hint = Some(method.is_safe());
    hints.destructive_hint = Some(destructive);
    hints.idempotent_hint = Some(method.is_idempotent());
    hints.open_world_hint = Some(true);
    hints
}

impl ToolPlan for Plan {
    async fn run(
        self: Arc<Self>,
        context: Arc<CallContext>,
        arguments: Arguments,
    ) -> Result<Output, ToolError> {
        let output = self.output(&context, &arguments).await?;
        Ok(OutputContract::kept(self.promise.as_ref(), output))
    }

    fn upstream(&self) -> Option<UpstreamIdentity<'_>> {
        let identity = self.client.identity();
        Some(match self.authenticated {
            true => identity,
            false => UpstreamIdentity {
                identity: "none",
                ..identity
            },
        })
    }
}

impl Plan {
    async fn output(
        &self,
        context: &CallContext,
        arguments: &Arguments,
    ) -> Result<Output, ToolError> {
        let mut arguments = tree(arguments)?;
        fill_in(&mut arguments, &self.schema);
        let values = template::context(&arguments, context.principal());
        let mut request = self
            .request
            .fill(&values, context.headers())
            .map_err(TemplateError::into_tool_error)?;
        let assertion = self
            .forward
            .apply(context.principal(), &mut request.headers)?;
        let call = CallRef {
            context,
            template: None,
        };
        let Some(pages) = &self.pages else {
            let answer = self.send(request, call, assertion.as_ref()).await?;
            return self.response.output(&answer, &arguments, context);
        };
        let first: Url = request.url.clone();
        let mut items = Vec::new();
        let mut next = request;
        let mut rest = None;
        for page in 1..=pages.max() {
            let answer = self.send(next.clone(), call, assertion.as_ref()).await?;
            if !self.response.is_ok(answer.status) {
                return self.response.output(&answer, &arguments, context);
            }
            let body = self.response.json(&answer);
            let more = pages.take(&answer, body, &first, &mut items)?;
            rest = more.filter(|more| more.url != next.url);
            let Some(more) = &rest else { break };
            next.url = more.url.clone();
            context.progress(f64::from(page), None, "page read").await;
        }
        Ok(Response::list(&items, rest.as_ref()))
    }

    /// Sends a request. An assertion that the API echoes is redacted.
    async fn send(
        &self,
        request: OutgoingRequest,
        call: CallRef<'_>,
        assertion: Option<&HeaderValue>,
    ) -> Result<FetchedResponse, ToolError> {
        let options = RequestOptions {
            repeatable: self.repeatable,
            authenticated: self.authenticated,
            accepted: self.response.accepted(),
        };
        let mut answer = self.client.send_for(request, options, call).await?;
        if assertion.is_some() {
            conceal(secrets_in(assertion), &mut answer);
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests;
