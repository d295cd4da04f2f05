//! Construction of a request from its description and a call's arguments.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use minijinja::Value as Context;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use url::Url;

use super::config::{HttpSourceConfig, HttpToolConfig};
use crate::net::OutgoingRequest;
use crate::source::headers::{fixed_headers, forwarded_headers, header_name};
use crate::source::media_type::{essence, is_json, is_xml};
use crate::source::template::{EscapeContext, Template, TemplateError, check_braces};

/// A request with placeholders.
#[derive(Debug)]
pub(super) struct RequestPlan {
    method: Method,
    /// Scheme, host, port and the path that all requests begin with.
    base: Url,
    path: Template,
    /// Query part of the URL template.
    text_query: Option<Template>,
    query: Vec<(String, Slot)>,
    headers: Vec<(HeaderName, Slot)>,
    fixed_headers: HeaderMap,
    forwarded: Vec<HeaderName>,
    body: Body,
}

#[derive(Debug)]
enum Body {
    None,
    Json(Tree),
    Form(Vec<(String, Slot)>),
    Text(HeaderValue, Template),
    /// JSON as text, with placeholders.
    JsonText(HeaderValue, Template),
}

/// Values of a query, a header or a form.
#[derive(Debug)]
struct Slot(Vec<Template>);

/// A JSON value whose strings have placeholders.
#[derive(Debug)]
enum Tree {
    Fixed(Value),
    Text(Template),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

/// Parses a base URL: a scheme, a host and optionally a path. Errors do not repeat it, because it may contain a secret.
pub(crate) fn parse_base(text: &str) -> Result<Url, String> {
    let advice = "write it as https://api.example.com/v1";
    let url: Url = text
        .parse()
        .map_err(|e| format!("it is not a valid URL ({e}); {advice}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(format!("it is neither http nor https; {advice}"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(
            "it has a query or a fragment; put parameters into the tools' query".to_owned(),
        );
    }
    if text.contains("{{") || text.contains("{%") {
        return Err("it has placeholders; they belong into the tools' url".to_owned());
    }
    Ok(url)
}

/// Returns true if a tool's requests carry the source's credentials: by default only those to the source's own
/// origin.
pub(super) fn sends_credentials(
    http: &HttpSourceConfig,
    config: &HttpToolConfig,
) -> Result<bool, String> {
    let Some(own) = own_base(&config.url) else {
        return Ok(config.send_credentials.unwrap_or(true));
    };
    let home = match &*http.base_url {
        "" => {
            let mut origins = http
                .tools
                .iter()
                .filter_map(|tool| Some(own_base(&tool.url)?.origin()));
            let first = origins.next();
            first.filter(|first| origins.all(|other| other == *first))
        }
        base => parse_base(base).ok().map(|base| base.origin()),
    };
    let is_home = home.as_ref() == Some(&own.origin());
    let has_any =
        http.auth.is_some() || !http.headers.is_empty() || !http.forward_headers.is_empty();
    match config.send_credentials {
        Some(true) if http.auth.login && !is_home => Err(
            "send_credentials: the token of auth.login is for base_url only; remove send_credentials, or write a source of its own"
                .to_owned(),
        ),
        None if home.is_none() && has_any => Err(
            "url: the tools of this source have several origins, none of which is that of a base_url: set base_url, or set send_credentials of each tool, so that it is known which requests carry auth and headers of the source"
                .to_owned(),
        ),
        chosen => Ok(chosen.unwrap_or(is_home)),
    }
}

/// Returns the origin of an absolute URL that a tool names.
pub(super) fn own_base(url: &str) -> Option<Url> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?;
    if host.contains(['{', '}']) || !matches!(scheme, "http" | "https") {
        return None;
    }
    format!("{scheme}://{host}/").parse().ok()
}

impl RequestPlan {
    pub(super) fn new(
        http: &HttpSourceConfig,
        config: &HttpToolConfig,
        names: Option<&[&str]>,
        authenticated: bool,
    ) -> Result<Self, String> {
        let method = config
            .method
            .as_deref()
            .unwrap_or("GET")
            .to_ascii_uppercase();
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| {
            format!("method: {method:?} is not an HTTP method; write GET, POST or another one")
        })?;
        if matches!(method, Method::CONNECT | Method::TRACE) {
            return Err(format!("method: {method} is not for calling an API"));
        }
        let (base, rest) = base_and_rest(http, &config.url)?;
        let (path, query) = split_query(&rest);
        let at = |setting: &str, problem: String| format!("{setting}: {problem}");
        let template = |text: &str, place| {
            let checked = check_braces(text, names.unwrap_or_default());
            let parsed = checked.and_then(|()| Template::new(text, place, names));
            parsed.map_err(|problem| at("url", problem))
        };
        let slots = |map: &Map<String, Value>, setting: &str| {
            map.iter()
                .map(|(name, value)| {
                    let place = format!("{setting}.{name}");
                    Ok((name.clone(), slot(value, names).map_err(|p| at(&place, p))?))
                })
                .collect::<Result<Vec<_>, String>>()
        };
        let mut headers = Vec::new();
        for (name, slot) in slots(&config.headers, "headers")? {
            headers.push((header_name(&name).map_err(|p| at("headers", p))?, slot));
        }
        let (fixed_headers, forwarded) = match authenticated {
            true => (
                fixed_headers(&http.headers)?,
                forwarded_headers(&http.forward_headers)?,
            ),
            false => (HeaderMap::new(), Vec::new()),
        };
        check_encoding(config, &fixed_headers)?;
        Ok(Self {
            path: template(path, EscapeContext::Path)?,
            text_query: query
                .map(|text| template(text, EscapeContext::Query))
                .transpose()?,
            query: slots(&config.query, "query")?,
            headers,
            fixed_headers,
            forwarded,
            body: body(config, names, &method, slots(&config.form, "form")?)?,
            base,
            method,
        })
    }

    pub(super) fn method(&self) -> &Method {
        &self.method
    }

    /// Fills the placeholders with the values of a call.
    pub(super) fn fill(
        &self,
        values: &Context,
        caller: Option<&HeaderMap>,
    ) -> Result<OutgoingRequest, TemplateError> {
        let mut url = self.url(values)?;
        for (name, slot) in &self.query {
            for text in slot.texts(values)? {
                url.query_pairs_mut().append_pair(name, &text);
            }
        }
        let mut request = OutgoingRequest::new(self.method.clone(), url);
        for name in &self.forwarded {
            if let Some(value) = caller.and_then(|headers| headers.get(name)) {
                request.headers.insert(name, value.clone());
            }
        }
        request.headers.extend(self.fixed_headers.clone());
        for (name, slot) in &self.headers {
            let texts = slot.texts(values)?;
            if texts.is_empty() {
                continue;
            }
            let value = HeaderValue::from_str(&texts.join(", ")).map_err(|_| {
                format!("the value of header {name} has characters that no header can hold")
            })?;
            request.headers.insert(name, value);
        }
        if let Some((content_type, body)) = self.body.fill(values)? {
            request.headers.entry(CONTENT_TYPE).or_insert(content_type);
            request.body = body;
        }
        Ok(request)
    }

    fn url(&self, values: &Context) -> Result<Url, TemplateError> {
        let path = self.path.render(values)?;
        let query = self.text_query.as_ref().map(|query| query.render(values));
        Ok(assemble(&self.base, &path, query.transpose()?.as_deref())?)
    }
}

/// Appends a path to a base URL, and rejects a path that would leave the base. Without a path, the base stays as it is.
pub(crate) fn assemble(base: &Url, path: &str, query: Option<&str>) -> Result<Url, String> {
    let root = base.path().trim_end_matches('/');
    let whole = match path {
        "" => base.path().to_owned(),
        path => format!("{root}{path}"),
    };
    let climbs = |segment: &str| {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        matches!(&*plain, "." | "..")
    };
    if whole.split(['/', '\\']).any(climbs) {
        return Err("the path has . or .. as a segment".to_owned());
    }
    let mut url = base.clone();
    url.set_path(&whole);
    url.set_query(query);
    if url.origin() != base.origin() || !url.path().starts_with(root) {
        return Err("the path leads to another place".to_owned());
    }
    Ok(url)
}

fn base_and_rest(http: &HttpSourceConfig, url: &str) -> Result<(Url, String), String> {
    if url.contains("://") && !url.starts_with('/') {
        let base = own_base(url).ok_or(
            "url: it must begin with http:// or https:// and a host without placeholders; they may follow in the path",
        )?;
        let rest = url.split_once("://").map_or("", |(_, rest)| rest);
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        return Ok((base, rest[end..].to_owned()));
    }
    if http.base_url.is_empty() {
        return Err("url: write a whole URL here, or set base_url of the source".to_owned());
    }
    if !url.is_empty() && !url.starts_with(['/', '?']) {
        return Err(format!(
            "url: {url:?} must begin with a slash, or with http:// or https://"
        ));
    }
    Ok((parse_base(&http.base_url)?, url.to_owned()))
}

/// Splits a template into the path and the query, ignoring question marks inside of placeholders.
fn split_query(text: &str) -> (&str, Option<&str>) {
    let mut depth = 0_u32;
    let mut previous = ' ';
    for (at, c) in text.char_indices() {
        match (previous, c) {
            ('{', '{' | '%') => depth += 1,
            ('}' | '%', '}') => depth = depth.saturating_sub(1),
            (_, '?') if depth == 0 => return (&text[..at], Some(&text[at + 1..])),
            _ => {}
        }
        previous = c;
    }
    (text, None)
}

fn body(
    config: &HttpToolConfig,
    names: Option<&[&str]>,
    method: &Method,
    form: Vec<(String, Slot)>,
) -> Result<Body, String> {
    let given = [
        config.json.is_some(),
        config.body.is_some(),
        !form.is_empty(),
    ];
    match given.iter().filter(|given| **given).count() {
        0 => return Ok(Body::None),
        1 => {}
        _ => return Err("json, form and body exclude each other; keep one".to_owned()),
    }
    if matches!(*method, Method::GET | Method::HEAD) {
        return Err(format!(
            "{method} cannot have a body; use query, or another method"
        ));
    }
    if let Some(value) = &config.json {
        let tree = Tree::new(value, names).map_err(|problem| format!("json: {problem}"))?;
        return Ok(Body::Json(tree));
    }
    if let Some(text) = &config.body {
        let kind = config
            .content_type
            .as_deref()
            .unwrap_or("text/plain; charset=utf-8");
        let value = HeaderValue::from_str(kind)
            .map_err(|_| format!("content_type: {kind:?} cannot be sent"))?;
        let read =
            |place| Template::new(text, place, names).map_err(|problem| format!("body: {problem}"));
        let essence = essence(kind);
        if is_xml(&essence) && escapes_in_cdata(text) {
            return Err("body: values are escaped, which CDATA does not undo; remove <![CDATA[ and ]]> around them, or insert them unescaped with the filter safe".to_owned());
        }
        return Ok(match is_json(&essence) {
            true if text.contains("{{") => Body::JsonText(value, read(EscapeContext::Json)?),
            true => Body::Text(value, read(EscapeContext::Json)?),
            false if is_xml(&essence) => Body::Text(value, read(EscapeContext::Xml)?),
            false => Body::Text(value, read(EscapeContext::Text)?),
        });
    }
    Ok(Body::Form(form))
}

/// Returns true if an XML text has a placeholder in a CDATA section whose value would be escaped.
fn escapes_in_cdata(text: &str) -> bool {
    text.split("<![CDATA[").skip(1).any(|section| {
        let section = section.split("]]>").next().unwrap_or_default();
        let mut placeholders = section.split("{{").skip(1);
        placeholders.any(|rest| {
            let expression = rest.split("}}").next().unwrap_or_default();
            !expression.contains("safe")
        })
    })
}

/// Rejects a body that is sent as JSON or XML by a header and in which values are not inserted as such.
fn check_encoding(config: &HttpToolConfig, fixed: &HeaderMap) -> Result<(), String> {
    let syntax = |kind: &str| match essence(kind) {
        kind if is_json(&kind) => Some("JSON"),
        kind if is_xml(&kind) => Some("XML"),
        _ => None,
    };
    let is_encoded = config.content_type.as_deref().and_then(syntax).is_some();
    let has_values = config.body.as_ref().is_some_and(|body| body.contains("{{"));
    if !has_values || is_encoded {
        return Ok(());
    }
    let mut headers = config.headers.iter();
    let own = headers.find(|(name, _)| name.eq_ignore_ascii_case(CONTENT_TYPE.as_str()));
    let sent = match own {
        Some((_, kind)) => kind.as_str(),
        None => fixed.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()),
    };
    match sent.and_then(syntax) {
        Some("XML") => Err(
            "body: it is sent as XML because of the header content-type, but values are inserted as plain text, so that one could add elements; set content_type instead of the header, which escapes each value"
                .to_owned(),
        ),
        Some(_) => Err(
            "body: it is sent as JSON because of the header content-type, but values are inserted as plain text, so that one could add members; set content_type to application/json, which inserts each value as JSON with its quotes"
                .to_owned(),
        ),
        None => Ok(()),
    }
}

impl Body {
    fn fill(&self, values: &Context) -> Result<Option<(HeaderValue, Bytes)>, TemplateError> {
        match self {
            Self::None => Ok(None),
            Self::Json(tree) => {
                let value = tree.fill(values)?.unwrap_or_default();
                let kind = HeaderValue::from_static("application/json");
                Ok(Some((kind, value.to_string().into())))
            }
            Self::Form(fields) => {
                let mut form = url::form_urlencoded::Serializer::new(String::new());
                for (name, slot) in fields {
                    for text in slot.texts(values)? {
                        form.append_pair(name, &text);
                    }
                }
                let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
                Ok(Some((kind, form.finish().into())))
            }
            Self::Text(kind, template) => Ok(Some((kind.clone(), template.render(values)?.into()))),
            Self::JsonText(kind, template) => {
                let text = template.render(values)?;
                let parsed = serde_json::from_str::<IgnoredAny>(&text);
                parsed.map_err(|error| {
                    format!("the tool's body is not valid JSON with these arguments: {error}; values are inserted with their quotes, so the operator must not write quotes around a placeholder for a string")
                })?;
                Ok(Some((kind.clone(), text.into())))
            }
        }
    }
}

fn slot(value: &Value, names: Option<&[&str]>) -> Result<Slot, String> {
    let one = |value: &Value| match value {
        Value::String(text) => Template::new(text, EscapeContext::Text, names),
        Value::Number(_) | Value::Bool(_) => {
            Template::new(&value.to_string(), EscapeContext::Text, Some(&[]))
        }
        _ => Err("it must be a string, a number, a boolean, or a list of those".to_owned()),
    };
    let values = match value {
        Value::Array(items) => items.as_slice(),
        value => std::slice::from_ref(value),
    };
    values.iter().map(one).collect::<Result<_, _>>().map(Slot)
}

impl Slot {
    fn texts(&self, values: &Context) -> Result<Vec<String>, TemplateError> {
        let texts = self.0.iter().map(|template| template.texts(values));
        Ok(texts.collect::<Result<Vec<_>, _>>()?.concat())
    }
}

impl Tree {
    fn new(value: &Value, names: Option<&[&str]>) -> Result<Self, String> {
        Ok(match value {
            Value::String(text) => {
                let template = Template::new(text, EscapeContext::Text, names)?;
                if template.is_literal() {
                    Self::Fixed(value.clone())
                } else {
                    Self::Text(template)
                }
            }
            Value::Array(items) => Self::List(
                items
                    .iter()
                    .map(|item| Self::new(item, names))
                    .collect::<Result<_, _>>()?,
            ),
            Value::Object(members) => Self::Object(
                members
                    .iter()
                    .map(|(name, member)| Ok((name.clone(), Self::new(member, names)?)))
                    .collect::<Result<_, String>>()?,
            ),
            fixed => Self::Fixed(fixed.clone()),
        })
    }

    fn fill(&self, values: &Context) -> Result<Option<Value>, TemplateError> {
        Ok(Some(match self {
            Self::Fixed(value) => value.clone(),
            Self::Text(template) => return template.value(values),
            Self::List(items) => {
                let filled = items.iter().map(|item| item.fill(values));
                let filled = filled.collect::<Result<Vec<_>, _>>()?;
                filled.into_iter().flatten().collect::<Vec<_>>().into()
            }
            Self::Object(members) => {
                let mut object = Map::with_capacity(members.len());
                for (name, member) in members {
                    if let Some(value) = member.fill(values)? {
                        object.insert(name.clone(), value);
                    }
                }
                Value::Object(object)
            }
        }))
    }
}
