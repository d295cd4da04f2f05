//! A browser with cookies, in which users log in.

use std::collections::BTreeMap;

use serde_json::Value;
use url::Url;

use super::{PUBLIC, call, text};
use crate::support::{Response, Running};

/// Returns the link in the message of a call.
pub(super) fn link(answer: &Value) -> String {
    let text = text(answer);
    let words = text.split_whitespace();
    let mut links = words.filter_map(|word| word.strip_prefix(PUBLIC));
    let link = links.next().unwrap_or_else(|| panic!("a link: {answer}"));
    link.to_owned()
}

/// A browser with its cookies.
#[derive(Default)]
pub(super) struct Browser {
    pub(super) cookies: BTreeMap<String, String>,
}

impl Browser {
    pub(super) fn send(
        &mut self,
        server: &Running,
        head: &str,
        more: &str,
        body: &str,
    ) -> Response {
        let cookies = self.cookies.iter();
        let cookies = cookies.map(|(name, value)| format!("; {name}={value}"));
        let cookies = format!("Cookie: other=1{}\r\n", cookies.collect::<String>());
        let length = body.len();
        let response = server
            .connect()
            .send(format!(
                "{head} HTTP/1.1\r\nHost: mcp.example.com\r\n{cookies}{more}Content-Length: {length}\r\n\r\n{body}"
            ))
            .receive();
        if let Some(set) = response.header("set-cookie") {
            assert!(
                set.starts_with("__Host-") && set.contains("; Secure") && set.contains("HttpOnly"),
                "{set}"
            );
            let (cookie, attributes) = set.split_once(';').expect("attributes");
            let (name, value) = cookie.split_once('=').expect("a value");
            match attributes.contains("Max-Age=0") {
                true => drop(self.cookies.remove(name)),
                false => drop(self.cookies.insert(name.to_owned(), value.to_owned())),
            }
        }
        response
    }

    pub(super) fn get(&mut self, server: &Running, target: &str) -> Response {
        self.send(server, &format!("GET {target}"), "", "")
    }

    pub(super) fn post(
        &mut self,
        server: &Running,
        origin: &str,
        fields: &[(&str, &str)],
    ) -> Response {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        let more =
            format!("Origin: {origin}\r\nContent-Type: application/x-www-form-urlencoded\r\n");
        self.send(server, "POST /connect/begin", &more, &form.finish())
    }

    /// Agrees on the page of a link. Returns the login page of the issuer.
    pub(super) fn agree(&mut self, server: &Running, link: &str, key: &str) -> Url {
        let page = self.get(server, link);
        assert_eq!(page.status, 200, "{}", page.body);
        let value = link.strip_prefix("/connect?link=").expect("a link");
        let fields = [("link", value), ("key", key), ("decision", "allow")];
        let sent = self.post(server, PUBLIC, &fields);
        assert_eq!(sent.status, 303, "{}", sent.body);
        sent.header("location")
            .expect("a page")
            .parse()
            .expect("a URL")
    }

    /// Comes back from the login page of the issuer.
    pub(super) fn come_back(&mut self, server: &Running, page: &Url, code: &str) -> Response {
        let state = query(page, "state");
        let target = format!("/connect/callback?code={code}&state={state}");
        let response = self.get(server, &target);
        match response.header("location") {
            // The page that can be loaded again.
            Some(done) if response.status == 303 => {
                let done = done
                    .strip_prefix(PUBLIC)
                    .expect("of this server")
                    .to_owned();
                assert_eq!(self.get(server, &done).status, 200);
                self.get(server, &done)
            }
            _ => response,
        }
    }
}

pub(super) fn query(url: &Url, name: &str) -> String {
    let mut pairs = url.query_pairs();
    let found = pairs.find_map(|(key, value)| (key == name).then(|| value.into_owned()));
    found.unwrap_or_default()
}

pub(super) fn log_in(server: &Running, tool: &str, key: &str, code: &str) {
    let link = link(&call(server, tool, key));
    let mut browser = Browser::default();
    let page = browser.agree(server, &link, key);
    let done = browser.come_back(server, &page, code);
    assert_eq!(done.status, 200, "{}", done.body);
}
