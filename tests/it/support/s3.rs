//! A store that speaks S3, as far as objects are put and got, and that looks at every signature.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;

use super::incoming::{Incoming, read};

pub(crate) const KEY_ID: &str = "AKIATEST";
pub(crate) const SECRET: &str = "s3cr3t+of/the=store";
pub(crate) const REGION: &str = "eu-central-1";

/// A bucket of any name at an address of this machine.
#[derive(Clone)]
pub(crate) struct FakeS3(Arc<Inner>);

struct Inner {
    address: SocketAddr,
    objects: Mutex<HashMap<String, Object>>,
    /// Requests whose signature was right.
    requests: AtomicUsize,
    refused: AtomicUsize,
    fails: AtomicBool,
    is_lost: AtomicBool,
}

#[derive(Clone)]
pub(crate) struct Object {
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl FakeS3 {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let store = Self(Arc::new(Inner {
            address: listener.local_addr().expect("bound"),
            objects: Mutex::default(),
            requests: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            fails: AtomicBool::new(false),
            is_lost: AtomicBool::new(false),
        }));
        let served = store.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let store = served.clone();
                std::thread::spawn(move || store.serve(stream));
            }
        });
        store
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.0.address)
    }

    /// From now on every request is answered with 503.
    pub(crate) fn fail(&self, fails: bool) {
        self.0.fails.store(fails, Ordering::Relaxed);
    }

    /// Removes the bucket.
    pub(crate) fn lose(&self) {
        self.0.is_lost.store(true, Ordering::Relaxed);
    }

    /// Returns the numbers of requests with valid and with invalid signatures.
    pub(crate) fn seen(&self) -> (usize, usize) {
        let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (count(&self.0.requests), count(&self.0.refused))
    }

    /// Returns the objects by path.
    pub(crate) fn objects(&self) -> Vec<(String, Object)> {
        let objects = self.0.objects.lock().expect("the objects");
        objects
            .iter()
            .map(|(path, object)| (path.clone(), object.clone()))
            .collect()
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut rest = Vec::new();
        while let Some(request) = read(&mut stream, &mut rest) {
            let (status, headers, body) = self.answer(request);
            let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            let answer = [head.as_bytes(), b"\r\n", &body].concat();
            if stream.write_all(&answer).is_err() {
                return;
            }
        }
    }

    fn answer(&self, request: Incoming) -> (&'static str, BTreeMap<String, String>, Vec<u8>) {
        let error = |code: &str| format!("<Error><Code>{code}</Code></Error>").into_bytes();
        if self.0.fails.load(Ordering::Relaxed) {
            return ("503 Slow Down", BTreeMap::new(), error("SlowDown"));
        }
        if let Err(problem) = is_signed(&request) {
            self.0.refused.fetch_add(1, Ordering::Relaxed);
            return (
                "403 Forbidden",
                BTreeMap::new(),
                error(&format!("SignatureDoesNotMatch: {problem}")),
            );
        }
        self.0.requests.fetch_add(1, Ordering::Relaxed);
        if self.0.is_lost.load(Ordering::Relaxed) {
            return ("404 Not Found", BTreeMap::new(), error("NoSuchBucket"));
        }
        let mut objects = self.0.objects.lock().expect("the objects");
        match &*request.method {
            "PUT" => {
                let kept =
                    |name: &String| name == "content-type" || name.starts_with("x-amz-meta-");
                let headers = request.headers.into_iter().filter(|(name, _)| kept(name));
                let object = Object {
                    headers: headers.collect(),
                    body: request.body,
                };
                objects.insert(request.target, object);
                ("200 OK", BTreeMap::new(), Vec::new())
            }
            "GET" => match objects.get(&request.target) {
                Some(object) => ("200 OK", object.headers.clone(), object.body.clone()),
                None => ("404 Not Found", BTreeMap::new(), error("NoSuchKey")),
            },
            _ => (
                "405 Method Not Allowed",
                BTreeMap::new(),
                error("MethodNotAllowed"),
            ),
        }
    }
}

/// Verifies the signature of a request, from the bytes on the wire.
fn is_signed(request: &Incoming) -> Result<(), String> {
    let header = |name: &str| {
        let value = request.headers.get(name).map(String::as_str);
        value.ok_or_else(|| format!("there is no {name}"))
    };
    let authorization = header("authorization")?;
    let fields = authorization
        .strip_prefix("AWS4-HMAC-SHA256 ")
        .ok_or("another algorithm")?;
    let field = |name: &str| {
        let mut fields = fields.split(',').map(str::trim);
        let found = fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        found.ok_or_else(|| format!("there is no {name}"))
    };
    let body = hex(digest(&SHA256, &request.body).as_ref());
    if header("x-amz-content-sha256")? != body {
        return Err("the body is another".to_owned());
    }
    let time = header("x-amz-date")?;
    let date = &time[..8];
    let scope = format!("{date}/{REGION}/s3/aws4_request");
    if field("Credential")? != format!("{KEY_ID}/{scope}") {
        return Err(format!("its scope is {}", field("Credential")?));
    }
    let names = field("SignedHeaders")?;
    let mut canonical = format!("{}\n{}\n\n", request.method, request.target);
    for name in names.split(';') {
        canonical.push_str(&format!("{name}:{}\n", header(name)?));
    }
    for needed in ["host", "x-amz-date", "x-amz-content-sha256"] {
        if !names.split(';').any(|name| name == needed) {
            return Err(format!("{needed} is not signed"));
        }
    }
    canonical.push_str(&format!("\n{names}\n{body}"));
    let hash = hex(digest(&SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{hash}");
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in [date, REGION, "s3", "aws4_request", &text] {
        let mac = hmac::Key::new(hmac::HMAC_SHA256, &key);
        key = hmac::sign(&mac, part.as_bytes()).as_ref().to_vec();
    }
    if field("Signature")? == hex(&key) {
        Ok(())
    } else {
        Err(format!("another signature, for {canonical:?}"))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
