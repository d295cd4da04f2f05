//! Conversion of a response to a result, as configured.

use std::collections::BTreeMap;

use http::header::LINK;
use http::{Method, StatusCode};
use minijinja::Value as Context;
use minijinja::value::Serde;
use serde_json::{Map, Value};
use url::Url;

use super::config::{PagesConfig, ReadAs, ResponseConfig};
use crate::catalog::{CallContext, Output, ToolError};
use crate::net::FetchedResponse;
use crate::source::media_type::is_json;
use crate::source::response;
use crate::source::template::{self, EscapeContext, Template, TemplateError};

/// Configured handling of responses.
#[derive(Debug)]
pub(super) struct Response {
    pointer: Option<String>,
    template: Option<Template>,
    read_as: ReadAs,
    ok: Vec<u16>,
    errors: BTreeMap<String, Template>,
    /// True if the request is HEAD.
    is_head: bool,
}

/// Names that a template can use for the response, besides the arguments.
const OF_ANSWER: [&str; 4] = ["status", "headers", "body", "text"];

impl Response {
    pub(super) fn new(
        config: &ResponseConfig,
        names: Option<&[&str]>,
        method: &Method,
    ) -> Result<Self, String> {
        let all: Option<Vec<&str>> = names.map(|names| [names, &OF_ANSWER].concat());
        let read = |text: &str, setting: &str| {
            Template::new(text, EscapeContext::Response, all.as_deref())
                .map_err(|problem| format!("response.{setting}: {problem}"))
        };
        if let Some(pointer) = &config.pointer {
            check_pointer(pointer, "response.pointer")?;
        }
        if config.pointer.is_some() && matches!(config.r#as, ReadAs::Text | ReadAs::Binary) {
            return Err("response.pointer is for JSON; leave out response.as".to_owned());
        }
        let mut errors = BTreeMap::new();
        for (status, text) in &config.errors {
            let known = matches!(&**status, "4xx" | "5xx")
                || status
                    .parse::<u16>()
                    .is_ok_and(|status| (100..600).contains(&status));
            if !known {
                return Err(format!(
                    "response.errors has {status:?}, which is not a status; write 404, or 4xx for all of them"
                ));
            }
            errors.insert(status.clone(), read(text, &format!("errors.{status}"))?);
        }
        Ok(Self {
            pointer: config.pointer.clone(),
            template: config
                .template
                .as_deref()
                .map(|text| read(text, "template"))
                .transpose()?,
            read_as: config.r#as,
            ok: config.ok.clone(),
            errors,
            is_head: *method == Method::HEAD,
        })
    }

    /// Returns the statuses that count as success in addition to 2xx.
    pub(super) fn accepted(&self) -> &[u16] {
        &self.ok
    }

    pub(super) fn is_ok(&self, status: StatusCode) -> bool {
        status.is_success() || self.ok.contains(&status.as_u16())
    }

    /// Converts one response to a result.
    pub(super) fn output(
        &self,
        answer: &FetchedResponse,
        arguments: &Map<String, Value>,
        context: &CallContext,
    ) -> Result<Output, ToolError> {
        let values = || self.values(answer, arguments, context);
        if !self.is_ok(answer.status) {
            // An error response without the configured values, such as that of a proxy, is shown as it is.
            let template = self.error_for(answer.status);
            let message = template.and_then(|template| template.render(&values()).ok());
            return Err(match message {
                Some(message) => ToolError::new(message),
                None => response::failure(answer),
            });
        }
        if let Some(template) = &self.template {
            let text = template.render(&values());
            let text = text.map_err(|problem| broken(&problem))?;
            return Ok(response::of_text(text, answer));
        }
        if let Some(pointer) = &self.pointer {
            let json = self.json(answer).ok_or_else(no_json)?;
            let part = response::part(json, pointer)
                .ok_or_else(|| ToolError::new(format!("the response has no value at {pointer}")))?;
            return response::document(part.as_bytes()).ok_or_else(no_json);
        }
        let media_type = response::media_type(&answer.headers);
        match self.read_as {
            ReadAs::Auto if self.is_head => Ok(response::head(answer)),
            ReadAs::Auto => Ok(response::output(answer)),
            ReadAs::Json => response::document(&answer.body).ok_or_else(no_json),
            ReadAs::Text => {
                let text = response::text(&answer.headers, &answer.body);
                Ok(response::of_text(text, answer))
            }
            ReadAs::Binary => {
                let content = response::binary(&answer.body, &media_type, answer.url.as_str());
                Ok(Output::blocks([content]))
            }
        }
    }

    /// Converts the items of several pages, as JSON, to a result. `rest` is the next page, if there are more pages than
    /// were read.
    pub(super) fn list(items: &[String], rest: Option<&NextPage>) -> Output {
        let mut list = format!(r#"{{"items":[{}]"#, items.join(","));
        if let Some(rest) = rest {
            list.push_str(r#","truncated":true"#);
            if let Some(cursor) = &rest.cursor {
                list.push_str(&format!(r#","next":{cursor}"#));
            }
        }
        list.push('}');
        response::object(list)
    }

    fn error_for(&self, status: StatusCode) -> Option<&Template> {
        let class = format!("{}xx", status.as_u16() / 100);
        self.errors
            .get(status.as_str())
            .or_else(|| self.errors.get(&class))
    }

    /// Returns the text of the body, if it is JSON or configured as JSON.
    pub(super) fn json<'a>(&self, answer: &'a FetchedResponse) -> Option<&'a str> {
        let is_json = || is_json(&response::media_type(&answer.headers));
        match self.read_as == ReadAs::Json || is_json() {
            true => response::json_text(&answer.body),
            false => None,
        }
    }

    fn values(
        &self,
        answer: &FetchedResponse,
        arguments: &Map<String, Value>,
        context: &CallContext,
    ) -> Context {
        let text = response::text(&answer.headers, &answer.body);
        let headers: Map<String, Value> = answer
            .headers
            .iter()
            .filter_map(|(name, value)| Some((name.to_string(), value.to_str().ok()?.into())))
            .collect();
        let body = self.json(answer).and_then(template::exact_value);
        let body = body.unwrap_or_else(|| text.as_str().into());
        let of_answer = [
            answer.status.as_u16().into(),
            Context::from(Serde(headers)),
            body,
            text.into(),
        ];
        let named = OF_ANSWER.into_iter().zip(of_answer);
        template::context_with(arguments, named, context.principal())
    }
}

fn broken(problem: &TemplateError) -> ToolError {
    ToolError::new(format!("the response is not as expected: {problem}"))
}

fn no_json() -> ToolError {
    ToolError::new("the response is not as expected: it is not JSON")
}

fn check_pointer(pointer: &str, setting: &str) -> Result<(), String> {
    if pointer.is_empty() || pointer.starts_with('/') {
        Ok(())
    } else {
        Err(format!(
            "{setting}: {pointer:?} is not a JSON pointer; it must begin with a slash, as in /data/items"
        ))
    }
}

/// Checks that the handling of responses is one that a list of several pages can have.
pub(super) fn check_response_of_pages(config: &ResponseConfig) -> Result<(), String> {
    let without_effect = [
        ("template", config.template.is_some()),
        ("pointer", config.pointer.is_some()),
        ("as", matches!(config.r#as, ReadAs::Text | ReadAs::Binary)),
    ];
    match without_effect.iter().find(|(_, is_set)| *is_set) {
        Some((setting, _)) => Err(format!(
            "response.{setting} cannot be combined with pages, whose result is the items of all pages; remove one of them, or select the list of a page with pages.items"
        )),
        None => Ok(()),
    }
}

/// Pagination.
#[derive(Debug)]
pub(super) struct Pages(PagesConfig);

/// The page after one that was read.
pub(super) struct NextPage {
    pub(super) url: Url,
    /// The cursor as JSON, if the page has one besides its URL.
    cursor: Option<String>,
}

impl Pages {
    pub(super) fn new(config: &PagesConfig) -> Result<Self, String> {
        check_pointer(&config.items, "pages.items")?;
        if let Some(next) = &config.next {
            check_pointer(next, "pages.next")?;
        } else if config.query.is_some() {
            return Err("pages.query needs pages.next, the pointer to the cursor".to_owned());
        }
        if config.max == 0 {
            return Err("pages.max is 0; set it to at least 1".to_owned());
        }
        Ok(Self(config.clone()))
    }

    pub(super) fn max(&self) -> u32 {
        self.0.max
    }

    /// Takes the items of a page with this body, and returns the next page. It is always on the host of the first.
    pub(super) fn take(
        &self,
        answer: &FetchedResponse,
        body: Option<&str>,
        first: &Url,
        items: &mut Vec<String>,
    ) -> Result<Option<NextPage>, ToolError> {
        let json = body.ok_or_else(no_json)?;
        let page = response::part(json, &self.0.items).and_then(response::items);
        let page = page.ok_or_else(|| {
            ToolError::new(match &*self.0.items {
                "" => "the response is not a list".to_owned(),
                items => format!("the response has no list at {items}"),
            })
        })?;
        for item in page {
            items.push(response::compacted(item).ok_or_else(no_json)?);
        }
        let Some(pointer) = &self.0.next else {
            let links = answer.headers.get_all(LINK).iter();
            let next = links
                .filter_map(|value| value.to_str().ok())
                .find_map(next_link);
            return next.map(|url| join(answer, first, url)).transpose();
        };
        let cursor = response::part(json, pointer).unwrap_or_default();
        let next = match serde_json::from_str(cursor) {
            Ok(Value::String(text)) if !text.is_empty() => text,
            Ok(Value::Number(_)) => cursor.to_owned(),
            _ => return Ok(None),
        };
        let Some(parameter) = &self.0.query else {
            return join(answer, first, &next).map(Some);
        };
        let mut url = first.clone();
        let kept: Vec<(String, String)> = first
            .query_pairs()
            .filter(|(name, _)| name != parameter)
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        url.query_pairs_mut()
            .clear()
            .extend_pairs(kept)
            .append_pair(parameter, &next);
        let cursor = Some(cursor.to_owned());
        Ok(Some(NextPage { url, cursor }))
    }
}

/// Returns the page at the URL that a response names, which has to be on the host of the first page.
fn join(answer: &FetchedResponse, first: &Url, next: &str) -> Result<NextPage, ToolError> {
    let url = answer.url.join(next).ok();
    let url = url
        .filter(|url| url.origin() == first.origin())
        .ok_or_else(|| ToolError::new("the URL of the next page is on another host"))?;
    Ok(NextPage { url, cursor: None })
}

/// Returns the target of `rel="next"` in a `Link` header (RFC 8288).
fn next_link(header: &str) -> Option<&str> {
    let mut rest = header;
    while let Some((_, after)) = rest.split_once('<') {
        let (target, after) = after.split_once('>')?;
        let end = after.find('<').unwrap_or(after.len());
        let is_next = after[..end].split([';', ',']).any(|parameter| {
            let parameter = parameter.trim().to_ascii_lowercase();
            parameter.strip_prefix("rel=").is_some_and(|kinds| {
                kinds
                    .trim_matches('"')
                    .split(' ')
                    .any(|kind| kind == "next")
            })
        });
        if is_next {
            return Some(target);
        }
        rest = &after[end..];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_link_is_found_among_others() {
        for (header, next) in [
            (
                r#"<https://a.example/?page=2>; rel="next""#,
                Some("https://a.example/?page=2"),
            ),
            (
                r#"</?page=1>; rel="prev first", </?page=3>; title="x"; rel=next"#,
                Some("/?page=3"),
            ),
            (r#"</?page=1>; rel="prev""#, None),
            ("<", None),
            ("", None),
            (r#"<a,b;c>; rel="next""#, Some("a,b;c")),
        ] {
            assert_eq!(next_link(header), next, "{header}");
        }
    }
}
