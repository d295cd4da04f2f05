//! Artifact storage in an S3 bucket, or in a compatible store.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::TryFutureExt as _;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::sign::{Keys, SignError, sign};
use super::store::{Artifact, ArtifactFuture, ArtifactStore, name_of};
use super::workload::{Workload, service_url};
use crate::environment::{Probe, Secret, read_text_file};
use crate::net::{self, BulkheadConfig, EgressConfig, FetchedResponse, OutgoingRequest};
use crate::source::api_client::{ApiClient, ApiClientError, ClientSettings, RequestOptions};
use crate::source::client_tls::ClientTlsConfig;
use crate::source::credentials::AuthConfig;
use crate::source::limits::RequestLimits;
use crate::source::parts::SourceParts;

/// Bucket for large results.
///
/// ```yaml
/// artifacts:
///   above_bytes: 100000
///   s3: { bucket: acme-artifacts, region: eu-central-1, prefix: longshore/ }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct S3Config {
    /// Name of the bucket, which must exist. Default: none.
    pub bucket: String,
    /// Region for request signatures. Default: the variable `AWS_REGION` or `AWS_DEFAULT_REGION`, and without either
    /// `us-east-1`.
    pub region: Option<String>,
    /// URL of the store, such as `https://minio.example.com:9000`. Default: the endpoint of Amazon S3 in the region.
    pub endpoint: Option<String>,
    /// Put the bucket into the path instead of the host name. Default: true if an `endpoint` is set or the bucket's
    /// name contains a dot, else false.
    pub path_style: Option<bool>,
    /// Prefix for the names of all objects.
    pub prefix: String,
    /// Access key ID. Default: the variables `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`;
    /// without them the credentials of the platform: a role for the token in `AWS_WEB_IDENTITY_TOKEN_FILE`, or keys
    /// from `AWS_CONTAINER_CREDENTIALS_RELATIVE_URI` or `AWS_CONTAINER_CREDENTIALS_FULL_URI`, renewed before they
    /// expire.
    pub access_key_id: Option<String>,
    /// Secret access key.
    pub secret_access_key: Option<Secret>,
    /// Session token of temporary credentials.
    pub session_token: Option<Secret>,
    /// Shared credentials file of the AWS tools, instead of keys: `aws_access_key_id`, `aws_secret_access_key` and
    /// `aws_session_token` below `[default]`. It is read for every request, so the keys can be rotated.
    #[schemars(extend("x-path" = "file"))]
    pub credentials_file: Option<PathBuf>,
    /// Section of that file.
    pub profile: String,
    /// Use the machine's own role if there are no other credentials. The keys come from the EC2 metadata service,
    /// version 2 (IMDSv2).
    pub instance_metadata: bool,
    /// Maximum time of a request, in seconds, retries included.
    pub timeout_seconds: u64,
    /// Maximum number of retries of a request.
    pub retries: u32,
    /// Concurrency limit and circuit breaker for the store.
    pub bulkhead: BulkheadConfig,
}

impl Default for S3Config {
    fn default() -> Self {
        Self {
            bucket: String::new(),
            region: None,
            endpoint: None,
            path_style: None,
            prefix: String::new(),
            access_key_id: None,
            secret_access_key: None,
            session_token: None,
            credentials_file: None,
            profile: "default".to_owned(),
            instance_metadata: false,
            timeout_seconds: 10,
            retries: 2,
            bulkhead: BulkheadConfig::default(),
        }
    }
}

/// Reason why an artifact cannot be stored or loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum S3Error {
    #[error("its credentials: {0}")]
    Credentials(String),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error(transparent)]
    Exchange(#[from] ApiClientError),
    #[error("the store is full (artifacts.total_bytes)")]
    TooLarge,
    #[error("it responded with status {status}{}", of_code(.code))]
    Status { status: StatusCode, code: String },
}

fn of_code(code: &str) -> String {
    match code {
        "" => String::new(),
        code => format!(" ({code})"),
    }
}

/// Client for a bucket.
pub(super) struct S3 {
    /// URL of the bucket, with a trailing slash.
    base: Url,
    prefix: String,
    region: String,
    keys: KeySource,
    client: Arc<ApiClient>,
    max: usize,
}

enum KeySource {
    Fixed(Keys),
    File { path: PathBuf, profile: String },
    Workload(Box<Workload>),
}

/// Object metadata with the expiry time, for lifecycle rules and administrators. Links carry their own expiry.
const EXPIRES: HeaderName = HeaderName::from_static("x-amz-meta-expires");
const CREDENTIALS_BYTES: u64 = 64 * 1024;
/// Expiry of artifacts whose object does not state one, since 1970.
const UNTOLD: Duration = Duration::from_secs(u32::MAX as u64);

impl S3 {
    /// # Errors
    ///
    /// Names the invalid setting and the problem.
    pub(super) fn new(
        config: &S3Config,
        max: usize,
        probe: &Probe,
    ) -> Result<Self, (&'static str, String)> {
        let region = config
            .region
            .as_deref()
            .or_else(|| probe.variable("AWS_REGION"))
            .or_else(|| probe.variable("AWS_DEFAULT_REGION"))
            .unwrap_or("us-east-1");
        if !is_plain(region, "-") {
            return Err(("region", format!("{region:?} is not a valid region name")));
        }
        if !is_plain(&config.bucket, "-._") {
            let problem = match &*config.bucket {
                "" => "it is not set; set it to the bucket that stores results".to_owned(),
                bucket => format!("{bucket:?} is not a valid bucket name"),
            };
            return Err(("bucket", problem));
        }
        let is_segment = |part: &str| is_plain(part, "-._") && part != "." && part != "..";
        let prefix = &config.prefix;
        if !prefix.is_empty() && !prefix.trim_end_matches('/').split('/').all(is_segment) {
            return Err((
                "prefix",
                format!(
                    "{prefix:?} has something else than letters, digits, -, _, . and single slashes"
                ),
            ));
        }
        let base = base(config, region).map_err(|problem| ("endpoint", problem))?;
        let keys = KeySource::new(config, region, probe)?;
        let limits = RequestLimits {
            timeout_seconds: config.timeout_seconds,
            response_bytes: max,
            retries: config.retries,
            // A signature is valid for one host only.
            redirects: 0,
            bulkhead: config.bulkhead.clone(),
        };
        let settings = ClientSettings {
            name: "artifacts".into(),
            bases: [base.clone()].into(),
            egress: EgressConfig::default(),
            tls: ClientTlsConfig::default(),
            auth: AuthConfig::default(),
            limits,
        };
        let client = ApiClient::new(&settings, &SourceParts::default())
            .map_err(|(_, problem)| ("endpoint", problem))?;
        Ok(Self {
            base,
            prefix: prefix.clone(),
            region: region.to_owned(),
            keys,
            client: Arc::new(client),
            max,
        })
    }

    async fn keep(&self, key: &str, kept: Artifact) -> Result<(), S3Error> {
        if self.max < kept.bytes.len() {
            return Err(S3Error::TooLarge);
        }
        let expires = kept.expires.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut request = OutgoingRequest::new(Method::PUT, self.url(key))
            .header(EXPIRES, HeaderValue::from(expires.as_secs()));
        if let Ok(media) = HeaderValue::from_str(&kept.media_type) {
            request = request.header(CONTENT_TYPE, media);
        }
        request.body = kept.bytes;
        let answer = self.ask(request).await?;
        if answer.status.is_success() {
            return Ok(());
        }
        Err(refusal(&answer))
    }

    async fn find(&self, key: &str) -> Result<Option<Artifact>, S3Error> {
        let answer = self.ask(OutgoingRequest::get(self.url(key))).await?;
        if answer.status == StatusCode::NOT_FOUND && code_of(&answer.body) != "NoSuchBucket" {
            return Ok(None);
        }
        if answer.status != StatusCode::OK {
            return Err(refusal(&answer));
        }
        let text = |name: &HeaderName| answer.headers.get(name).and_then(|v| v.to_str().ok());
        Ok(Some(Artifact {
            media_type: text(&CONTENT_TYPE)
                .unwrap_or("application/octet-stream")
                .to_owned(),
            expires: end_of(text(&EXPIRES)),
            bytes: answer.body,
        }))
    }

    /// Sends a request that can be retried, because the object under a key never changes.
    async fn ask(&self, mut request: OutgoingRequest) -> Result<FetchedResponse, S3Error> {
        let keys = self.keys.load().await.map_err(S3Error::Credentials)?;
        sign(&mut request, &keys, &self.region, SystemTime::now())?;
        // The signature is the only credential.
        let options = RequestOptions {
            repeatable: true,
            authenticated: false,
            accepted: &[],
        };
        Ok(self.client.send(request, options, None).await?)
    }

    fn url(&self, key: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{}{}", url.path(), self.prefix, name_of(key)));
        url
    }

    /// Returns the client, for statistics.
    pub(super) fn client(&self) -> &Arc<ApiClient> {
        &self.client
    }
}

impl ArtifactStore for S3 {
    fn put<'a>(
        &'a self,
        key: &'a str,
        artifact: Artifact,
        _: SystemTime,
    ) -> ArtifactFuture<'a, ()> {
        let kept = self.keep(key, artifact);
        Box::pin(kept.map_err(io::Error::other))
    }

    fn get<'a>(&'a self, key: &'a str) -> ArtifactFuture<'a, Option<Artifact>> {
        Box::pin(self.find(key).map_err(io::Error::other))
    }
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3")
            .field("base", &self.base.as_str())
            .finish_non_exhaustive()
    }
}

/// Returns an artifact's expiry from the object metadata. A missing or unrepresentable value yields a time far in the
/// future.
fn end_of(seconds: Option<&str>) -> SystemTime {
    seconds
        .and_then(|seconds| seconds.parse().ok())
        .and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)))
        .unwrap_or(UNIX_EPOCH + UNTOLD)
}

fn is_plain(text: &str, besides: &str) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || besides.contains(c))
}

/// Returns the URL of the bucket.
fn base(config: &S3Config, region: &str) -> Result<Url, String> {
    let bucket = &config.bucket;
    let endpoint = config
        .endpoint
        .clone()
        .unwrap_or_else(|| service_url("s3", region));
    let mut url: Url = endpoint
        .parse()
        .map_err(|_| format!("{endpoint:?} is not a valid URL; write https://host"))?;
    let is_web = matches!(url.scheme(), "http" | "https");
    if !is_web || url.query().is_some() || url.fragment().is_some() {
        return Err(format!(
            "{endpoint:?} is not the URL of a store; write https://host"
        ));
    }
    let in_path = config
        .path_style
        .unwrap_or(config.endpoint.is_some() || bucket.contains('.'));
    let root = url.path().trim_end_matches('/').to_owned();
    if in_path {
        url.set_path(&format!("{root}/{bucket}/"));
        return Ok(url);
    }
    let host = match url.host() {
        Some(url::Host::Domain(host)) => format!("{bucket}.{host}"),
        _ => {
            return Err(
                "an address cannot have a bucket before it; set path_style: true".to_owned(),
            );
        }
    };
    url.set_host(Some(&host))
        .map_err(|_| format!("{host:?} is not a valid host name; set path_style: true"))?;
    url.set_path(&format!("{root}/"));
    Ok(url)
}

/// Converts a store's error response to an error that holds only the code, not the message.
fn refusal(answer: &FetchedResponse) -> S3Error {
    S3Error::Status {
        status: answer.status,
        code: code_of(&answer.body),
    }
}

fn code_of(body: &[u8]) -> String {
    let said = String::from_utf8_lossy(body);
    let code = said
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"))
        .map_or("", |(code, _)| code);
    code.chars()
        .filter(char::is_ascii_alphanumeric)
        .take(64)
        .collect()
}

impl KeySource {
    fn new(config: &S3Config, region: &str, probe: &Probe) -> Result<Self, (&'static str, String)> {
        let given = config.access_key_id.is_some()
            || config.secret_access_key.is_some()
            || config.session_token.is_some();
        if let Some(path) = &config.credentials_file {
            if given {
                let problem = "credentials_file and an access key are both set; remove one of them"
                    .to_owned();
                return Err(("credentials_file", problem));
            }
            let source = Self::File {
                path: path.clone(),
                profile: config.profile.clone(),
            };
            read_keys(path, &config.profile)
                .map_err(|problem| ("credentials_file", of_file(path, &problem)))?;
            return Ok(source);
        }
        let variable = |name: &str| probe.variable(name).map(str::to_owned);
        let (id, secret, session) = if given {
            let secret = config.secret_access_key.clone();
            (
                config.access_key_id.clone(),
                secret,
                config.session_token.clone(),
            )
        } else {
            (
                variable("AWS_ACCESS_KEY_ID"),
                variable("AWS_SECRET_ACCESS_KEY").map(Secret::from),
                variable("AWS_SESSION_TOKEN").map(Secret::from),
            )
        };
        match (id, secret) {
            (Some(id), Some(secret)) if is_plain(&id, "-._/+=") => Ok(Self::Fixed(Keys {
                id,
                secret,
                session,
            })),
            (Some(_), Some(_)) => Err(("access_key_id", "it is not a valid access key ID".to_owned())),
            (Some(_), None) => Err(("secret_access_key", "access_key_id is set without secret_access_key; set both".to_owned())),
            (None, _) if given => Err((
                "access_key_id",
                "secret_access_key or session_token is set without access_key_id; set both keys"
                    .to_owned(),
            )),
            _ => match Workload::of(probe, region, config.instance_metadata) {
                Ok(Some(workload)) => Ok(Self::Workload(Box::new(workload))),
                Ok(None) => Err((
                    "access_key_id",
                    "no credentials; set access_key_id and secret_access_key, credentials_file, or the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. The platform offers no workload identity either; to use the role of the machine, set instance_metadata: true"
                        .to_owned(),
                )),
                Err(problem) => Err(("access_key_id", problem)),
            },
        }
    }

    async fn load(&self) -> Result<Keys, String> {
        match self {
            Self::Fixed(keys) => Ok(keys.clone()),
            Self::File { path, profile } => {
                let (file, profile) = (path.clone(), profile.clone());
                let read = net::spawn_blocking(move || read_keys(&file, &profile)).await;
                let read = read.unwrap_or_else(|_| Err("this process is ending".to_owned()));
                read.map_err(|problem| of_file(path, &problem))
            }
            Self::Workload(workload) => workload.keys().await,
        }
    }
}

fn of_file(path: &Path, problem: &str) -> String {
    format!("{}: {problem}", path.display())
}

fn read_keys(path: &Path, profile: &str) -> Result<Keys, String> {
    let text = read_text_file(path, CREDENTIALS_BYTES).map_err(|error| error.to_string())?;
    keys_of(&text, profile)
}

/// Returns the keys in one section of a credentials file.
fn keys_of(text: &str, profile: &str) -> Result<Keys, String> {
    let (mut id, mut secret, mut session) = (None, None, None);
    let mut here = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            here = section.trim() == profile;
        } else if let Some((name, value)) = line.split_once('=').filter(|_| here) {
            let value = value.trim().to_owned();
            match name.trim() {
                "aws_access_key_id" => id = Some(value),
                "aws_secret_access_key" => secret = Some(Secret::from(value)),
                "aws_session_token" => session = Some(Secret::from(value)),
                _ => {}
            }
        }
    }
    match (id, secret) {
        (Some(id), Some(secret)) => Ok(Keys {
            id,
            secret,
            session,
        }),
        _ => Err(format!(
            "aws_access_key_id and aws_secret_access_key are missing below [{profile}]"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> S3Config {
        serde_json::from_str(text).expect("a configuration")
    }

    fn refused(text: &str) -> (&'static str, String) {
        let probe = Probe::of([
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "key"),
        ]);
        S3::new(&config(text), 1000, &probe).expect_err("refused")
    }

    #[test]
    fn a_bucket_is_before_the_host_or_in_the_path() {
        for (text, url) in [
            (
                r#"{"bucket": "b"}"#,
                "https://b.s3.eu-west-1.amazonaws.com/",
            ),
            (
                r#"{"bucket": "b.c"}"#,
                "https://s3.eu-west-1.amazonaws.com/b.c/",
            ),
            (
                r#"{"bucket": "b", "endpoint": "http://127.0.0.1:9000/"}"#,
                "http://127.0.0.1:9000/b/",
            ),
            (
                r#"{"bucket": "b", "endpoint": "https://s.example.com/x", "path_style": false}"#,
                "https://b.s.example.com/x/",
            ),
        ] {
            let base = base(&config(text), "eu-west-1").expect("a URL");
            assert_eq!(base.as_str(), url);
        }
        let china = base(&config(r#"{"bucket": "b"}"#), "cn-north-1").expect("a URL");
        assert_eq!(china.as_str(), "https://b.s3.cn-north-1.amazonaws.com.cn/");
    }

    #[test]
    fn what_cannot_be_used_is_told_by_its_setting() {
        for (text, setting) in [
            ("{}", "bucket"),
            (r#"{"bucket": "a/b"}"#, "bucket"),
            (r#"{"bucket": "b", "region": "x y"}"#, "region"),
            (r#"{"bucket": "b", "prefix": "../x"}"#, "prefix"),
            (r#"{"bucket": "b", "prefix": "/x"}"#, "prefix"),
            (r#"{"bucket": "b", "endpoint": "ftp://x"}"#, "endpoint"),
            (
                r#"{"bucket": "b", "endpoint": "http://10.0.0.1", "path_style": false}"#,
                "endpoint",
            ),
            (
                r#"{"bucket": "b", "access_key_id": "x"}"#,
                "secret_access_key",
            ),
            (
                r#"{"bucket": "b", "secret_access_key": "x", "instance_metadata": true}"#,
                "access_key_id",
            ),
            (
                r#"{"bucket": "b", "session_token": "x", "instance_metadata": true}"#,
                "access_key_id",
            ),
            (
                r#"{"bucket": "b", "credentials_file": "/nonexistent"}"#,
                "credentials_file",
            ),
        ] {
            let (place, problem) = refused(text);
            assert_eq!(place, setting, "{problem}");
        }
        let probe = Probe::of::<&str, &str>([]);
        let (_, problem) = S3::new(&config(r#"{"bucket": "b"}"#), 1, &probe).expect_err("no key");
        assert!(problem.contains("AWS_ACCESS_KEY_ID"), "{problem}");
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_no_credentials_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.expect("mkfifo runs").success());
        let problem = read_keys(&path, "default").expect_err("it has no writer");
        assert_eq!(problem, "it is not a regular file");
    }

    #[test]
    fn keys_are_read_from_a_section_of_a_file() {
        let text = "# mine\n[other]\naws_access_key_id=x\n[default]\naws_access_key_id = id\n\
                    aws_secret_access_key = a+b/c=\naws_session_token=t\n";
        let keys = keys_of(text, "default").expect("keys");
        assert_eq!((&*keys.id, keys.secret.expose()), ("id", "a+b/c="));
        assert!(keys_of(text, "other").is_err());
        let debug = format!("{keys:?}");
        assert!(!debug.contains("a+b"), "{debug}");
    }

    #[test]
    fn an_end_of_any_length_can_be_read() {
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(end_of(Some("7")), at(7));
        for odd in [None, Some("soon"), Some("18446744073709551615")] {
            assert_eq!(end_of(odd), at(u64::from(u32::MAX)), "{odd:?}");
        }
    }

    #[test]
    fn a_refusal_is_told_by_its_code_alone() {
        let body = b"<Error><Code>Access\nDenied</Code><AWSAccessKeyId>x</AWSAccessKeyId></Error>";
        assert_eq!(code_of(body), "AccessDenied");
        assert_eq!(code_of(b"\xff<html>"), "");
    }
}
