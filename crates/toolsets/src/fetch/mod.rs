//! Fetch toolset: web pages as Markdown. Its name, arguments and result format are those of the official reference
//! server.
//!
//! Every request goes through [`net::Client`](crate::net::Client) and its guard: the page, each redirect, and each
//! `robots.txt`.

mod charset;
mod config;
mod html;
mod page;
mod paging;
mod robots;

use std::sync::Arc;

pub use config::FetchConfig;
use page::{FetchInitiator, Page, Pages};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Toolset, ToolsetContext, ToolsetError};
use crate::catalog::{
    CallContext, Definition, IntoPrompt as _, IntoTool as _, Parameters, PromptDefinition,
    PromptError, PromptOutput, prompt_fn, tool_fn,
};
use crate::protocol::{PromptArgument, PromptMessage};
use crate::source::limits::{GRACE, time_limit};

/// Maximum number of characters of a page that a prompt shows.
const PROMPT_CHARACTERS_MAX: usize = 999_999;

/// Limits whose hits are counted.
const LIMITS: [&str; 4] = [
    "timeout_seconds",
    "response_bytes",
    "redirects",
    "concurrency",
];

pub fn toolset(grounds: &ToolsetContext<'_>) -> Result<Toolset, ToolsetError> {
    let settings: &FetchConfig = &grounds.settings.fetch;
    let mut pages = Pages::new(settings)?;
    pages.hits = grounds.hits("fetch", &LIMITS);
    let pages = Arc::new(pages);
    // The server's timeout is longer, so that the tool reports what timed out.
    let timeout = time_limit(settings.timeout_seconds) + GRACE;
    let definition = Definition::new("fetch")
        .title("Fetch")
        .description(
            "Fetches a web page and returns its text, as Markdown if it is HTML. Use it to read current pages of the internet. A long page is returned in parts; get the next part with start_index.",
        )
        .read_only(true)
        .destructive(false)
        .idempotent(true)
        .open_world(true)
        .timeout(timeout);
    let of_tool = Arc::clone(&pages);
    let tool = tool_fn(
        definition,
        move |_: Arc<CallContext>, wanted: FetchRequest| {
            let pages = Arc::clone(&of_tool);
            async move {
                let page = pages
                    .fetch(&wanted.url, FetchInitiator::Model, wanted.raw)
                    .await?;
                Ok(excerpt(&page, wanted.start_index, wanted.max_length))
            }
        },
    );
    let definition = PromptDefinition::new("fetch")
        .title("Fetch")
        .description("Fetches a URL and shows its text as Markdown.")
        .argument(PromptArgument::required("url").description("URL to fetch"))
        .timeout(timeout);
    let prompt = prompt_fn(
        definition,
        move |_: Arc<CallContext>, arguments: Parameters| {
            let pages = Arc::clone(&pages);
            async move {
                let url: String = arguments.parse("url")?;
                // The user who chose the prompt sees an error as its text.
                let text = match pages.fetch(&url, FetchInitiator::Person, false).await {
                    Ok(page) => format!(
                        "{}{}",
                        page.prefix,
                        paging::page(&page.text, 0, PROMPT_CHARACTERS_MAX)
                    ),
                    Err(error) => error.to_string(),
                };
                let message = PromptMessage::user(text);
                Ok::<_, PromptError>(
                    PromptOutput::new([message]).with_description(format!("Contents of {url}")),
                )
            }
        },
    );
    Ok(Toolset {
        tools: vec![tool.into_tool()],
        prompts: vec![prompt.into_prompt()],
        ..Toolset::default()
    })
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FetchRequest {
    /// URL to fetch
    #[schemars(url, length(min = 1))]
    url: String,
    /// Maximum number of characters to return.
    #[serde(default = "max_length")]
    #[schemars(range(min = 1, max = 999_999))]
    max_length: usize,
    /// Begins the result at this character; for the rest of a page that was cut off.
    #[serde(default)]
    start_index: usize,
    /// Returns the page as it is, for example its HTML, and not as Markdown.
    #[serde(default)]
    raw: bool,
}

fn max_length() -> usize {
    5000
}

/// Formats the tool's result like the reference server.
fn excerpt(page: &Page, begin: usize, max: usize) -> String {
    let part = paging::page(&page.text, begin, max);
    format!("{}Contents of {}:\n{part}", page.prefix, page.url)
}
