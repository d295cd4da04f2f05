//! Pages for people: the consent page and the error page. They run no script and load nothing.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::{HeaderValue, Response, StatusCode};

use super::client::{Client, Origin};
use super::redirect::is_loopback;
use super::sealed::AuthorizationRequest;
use crate::net::Body;
use crate::seal::sha256;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:3rem auto;padding:0 1rem;background:Canvas;color:CanvasText}\
h1{font-size:1.35rem}dt{font-weight:600;margin-top:.75rem}dd{margin:0;overflow-wrap:anywhere}\
.note{border-left:.25rem solid #b45309;padding:.25rem .75rem;margin:1rem 0}\
button{font:inherit;padding:.5rem 1.25rem;margin:1.5rem .75rem 0 0;border-radius:.4rem;border:1px solid ButtonBorder}\
input{font:inherit;padding:.4rem;width:100%;box-sizing:border-box}\
button[value=allow]{background:#1d4ed8;border-color:#1d4ed8;color:#fff}";

/// Returns the page that asks the user to approve a client.
pub(super) fn consent(
    server: &str,
    provider: &str,
    client: &Client,
    request: &AuthorizationRequest,
    form: &str,
) -> String {
    let name = match client.name.is_empty() {
        true => "An application without a name",
        false => &client.name,
    };
    let trust = match &client.origin {
        Origin::Configured => String::new(),
        Origin::Document(host) => format!(
            "<p>The application is described by <strong>{}</strong>.</p>",
            escaped(host)
        ),
        Origin::Registered => {
            "<p class=note>The application registered itself, and its name is not verified. \
             Continue only if you have just started it.</p>"
                .to_owned()
        }
    };
    let scopes = match request.scopes.is_empty() {
        true => "use the tools of this server in your name".to_owned(),
        false => escaped(&request.scopes.join(", ")),
    };
    let (target, warning) = target_of(&request.redirect_uri);
    let mut page = String::with_capacity(4096);
    let _ = write!(
        page,
        "<h1>{name} wants access to {server}</h1>{trust}\
         <dl><dt>Access</dt><dd>{scopes}</dd>\
         <dt>Server</dt><dd>{resource}</dd>\
         <dt>You return to</dt><dd>{target}</dd></dl>{warning}\
         <p>If you continue, you log in at {provider}.</p>\
         <form method=post action=\"oauth/consent\"><input type=hidden name=form value=\"{form}\">\
         <button name=decision value=allow>Continue</button>\
         <button name=decision value=deny>Cancel</button></form>",
        name = escaped(name),
        server = escaped(server),
        resource = escaped(&request.resource),
        target = escaped(&target),
        provider = escaped(provider),
        form = escaped(form),
    );
    document("Allow access", &page)
}

/// Returns where a redirect URI leads, in words, and a warning if that is another machine.
fn target_of(uri: &str) -> (String, &'static str) {
    let Ok(url) = url::Url::parse(uri) else {
        return (uri.to_owned(), "");
    };
    match (url.scheme(), url.host_str()) {
        ("http", Some(host)) if is_loopback(&url) => {
            (format!("an application on this computer ({host})"), "")
        }
        // Only clients of the configuration can have such a URI.
        ("http", Some(host)) => (
            host.to_owned(),
            "<p class=note>This address receives the access over a connection that is not encrypted. \
             Continue only if you know it.</p>",
        ),
        ("https", Some(host)) => (
            host.to_owned(),
            "<p class=note>This address receives the access. Continue only if you know it.</p>",
        ),
        (scheme, _) => (format!("the application that opens {scheme}: links"), ""),
    }
}

/// Returns a page that says why a request failed.
pub(super) fn error(text: &str) -> String {
    let body = format!(
        "<h1>Login failed</h1><p>{}</p><p>Return to your application and try again.</p>",
        escaped(text)
    );
    document("Login failed", &body)
}

/// Returns a page that says why the request of a client failed, with a link that reports that to the client.
pub(super) fn error_of_client(text: &str, url: &url::Url) -> String {
    let body = format!(
        "<h1>Login failed</h1><p>{}</p>\
         <p>The application at <strong>{host}</strong> sent the request. Continue only if you know it.</p>\
         <p><a href=\"{}\" rel=noreferrer>Return to {host}</a></p>",
        escaped(text),
        escaped(url.as_str()),
        host = escaped(url.host_str().unwrap_or_default()),
    );
    document("Login failed", &body)
}

/// Returns a document with the style of all pages. `body` is HTML, and `title` plain text without markup.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>"
    )
}

/// Returns a page as a response that cannot be framed or stored.
pub fn response(status: StatusCode, page: String) -> Response<Body> {
    let hash = STANDARD.encode(sha256(STYLE));
    // Without `form-action`: browsers apply it to the redirects behind the form too, and those lead to the provider and
    // back to the client.
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{hash}'; frame-ancestors 'none'; base-uri 'none'"
    );
    let mut response = Response::new(Body::from(Bytes::from(page)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // `no-referrer` would make browsers send `Origin: null` with the form.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(CONTENT_SECURITY_POLICY, policy);
    }
    response
}

/// Escapes text for HTML, also within quoted attributes.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_consent_page_names_client_scopes_and_redirect_and_escapes_them() {
        let request = AuthorizationRequest {
            client_id: "x".to_owned(),
            redirect_uri: "https://evil.example/cb?<b>".to_owned(),
            challenge: String::new(),
            scopes: vec!["files:read".to_owned(), "<i>".to_owned()],
            resource: "https://mcp.example.com/mcp".to_owned(),
            state: None,
            thumbprint: None,
        };
        let client = Client::new(
            "x",
            "<script>alert(1)</script>",
            Origin::Registered,
            Vec::new(),
        );
        let page = consent("Tools", "id.example.com", &client, &request, "sealed\"");
        for part in [
            "&lt;script&gt;alert(1)&lt;/script&gt; wants access to Tools",
            "files:read, &lt;i&gt;",
            "evil.example",
            "its name is not verified",
            "value=\"sealed&quot;\"",
        ] {
            assert!(page.contains(part), "{part}\n{page}");
        }
        assert!(!page.contains("<script>"));
    }

    #[test]
    fn the_consent_page_says_whether_the_redirect_stays_on_this_computer() {
        for (uri, shown, is_noted) in [
            (
                "http://127.0.0.1:8080/cb",
                "an application on this computer (127.0.0.1)",
                false,
            ),
            (
                "http://[::1]/cb",
                "an application on this computer ([::1])",
                false,
            ),
            (
                "http://localhost/cb",
                "an application on this computer (localhost)",
                false,
            ),
            ("http://chat.internal/cb", "chat.internal", true),
            ("https://chat.example/cb", "chat.example", true),
            (
                "cursor://x/cb",
                "the application that opens cursor: links",
                false,
            ),
        ] {
            let (target, warning) = target_of(uri);
            assert_eq!((&*target, !warning.is_empty()), (shown, is_noted), "{uri}");
        }
        assert!(
            target_of("http://chat.internal/cb")
                .1
                .contains("not encrypted")
        );
    }
}
