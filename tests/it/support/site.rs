//! A web server that answers as a test says.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::incoming;

/// A received request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    /// Path and query.
    pub(crate) target: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Asked {
    /// A field of a form in its body.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let mut fields = url::form_urlencoded::parse(self.body.as_bytes());
        fields.find_map(|(key, value)| (key == name).then(|| value.into_owned()))
    }
}

/// The request as the handler sees it.
pub(crate) struct Told {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
}

impl Told {
    pub(crate) fn json(status: u16, body: serde_json::Value) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: body.to_string(),
        }
    }

    pub(crate) fn stream(text: &str) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".to_owned(), "text/event-stream".to_owned())],
            body: text.to_owned(),
        }
    }

    /// An event stream that ends after these messages. `fields` are lines of an empty event at its beginning.
    pub(crate) fn events(messages: &[serde_json::Value], fields: Option<&str>) -> Self {
        let begin = fields.map(|fields| format!("{fields}\ndata:\n\n"));
        let messages = messages
            .iter()
            .map(|message| format!("data: {message}\n\n"));
        Self::stream(&begin.into_iter().chain(messages).collect::<String>())
    }

    pub(crate) fn html(page: &str) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".to_owned(), "text/html".to_owned())],
            body: page.to_owned(),
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// The server, for as long as the process runs.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) url: String,
    seen: Arc<Mutex<Vec<Asked>>>,
}

impl Site {
    /// `answer` is given the site's own URL and each request.
    pub(crate) fn start(answer: impl Fn(&str, &Asked) -> Told + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let site = Self {
            url,
            seen: Arc::default(),
        };
        let (served, answer) = (site.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (site, answer) = (served.clone(), Arc::clone(&answer));
                std::thread::spawn(move || site.converse(stream, &*answer));
            }
        });
        site
    }

    /// Requests of a path, in their order.
    pub(crate) fn asked(&self, path: &str) -> Vec<Asked> {
        let seen = self.seen.lock().expect("what was seen");
        let of_path = |asked: &&Asked| asked.target.split('?').next() == Some(path);
        seen.iter().filter(of_path).cloned().collect()
    }

    fn converse(&self, mut stream: TcpStream, answer: &dyn Fn(&str, &Asked) -> Told) {
        let mut rest = Vec::new();
        while let Some(asked) = read(&mut stream, &mut rest) {
            self.seen.lock().expect("what was seen").push(asked.clone());
            let told = answer(&self.url, &asked);
            let mut text = format!(
                "HTTP/1.1 {} x\r\ncontent-length: {}\r\n",
                told.status,
                told.body.len()
            );
            for (name, value) in &told.headers {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
            text.push_str("\r\n");
            text.push_str(&told.body);
            if stream.write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }
}

fn read(stream: &mut TcpStream, rest: &mut Vec<u8>) -> Option<Asked> {
    let request = incoming::read(stream, rest)?;
    Some(Asked {
        method: request.method,
        target: request.target,
        headers: request.headers,
        body: String::from_utf8(request.body).ok()?,
    })
}
