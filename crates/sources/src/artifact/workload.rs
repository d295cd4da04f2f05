//! Temporary AWS credentials that a platform provides to a workload, renewed before they expire.
//!
//! Three providers are supported: a role assumed with a token from a file (`AssumeRoleWithWebIdentity`), the
//! credentials endpoint of a container, and the metadata service of a machine (IMDSv2). Requests go only to the
//! address that the platform names; no other non-public address is reachable.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use ipnet::IpNet;
use serde::Deserialize;
use tokio::sync::Mutex;
use url::Url;

use super::sign::Keys;
use crate::environment::{Probe, Secret};
use crate::net::{self, Client, Deadlines, EgressConfig, FetchedResponse, OutgoingRequest};
use crate::source::credentials::{read_token, sensitive};

/// Credentials provider with the most recent credentials.
pub(super) struct Workload {
    giver: Giver,
    client: Client,
    given: ArcSwapOption<Given>,
    /// Held while new credentials are requested.
    getting: Mutex<()>,
}

enum Giver {
    /// A role assumed with a token from a file.
    Role {
        service: Url,
        role: String,
        session: String,
        file: PathBuf,
    },
    /// The credentials endpoint of a container.
    Container {
        url: Url,
        proof: Option<WorkloadCredential>,
    },
    /// The metadata service of a machine.
    Machine { service: Url },
}

enum WorkloadCredential {
    Text(Secret),
    File(PathBuf),
}

struct Given {
    keys: Keys,
    expires: SystemTime,
    /// Time from which to renew.
    renew: SystemTime,
}

/// Response of a container endpoint or of the metadata service.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct MetadataResponse {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<String>,
}

const ANSWER_BYTES: usize = 64 * 1024;
const PATIENCE: Duration = Duration::from_secs(5);
/// Time before expiry at which credentials are renewed. Credentials that last less than twice as long are renewed at
/// half their lifetime.
const MARGIN: Duration = Duration::from_secs(300);
/// Delay before another attempt while the current credentials are still valid.
const AGAIN: Duration = Duration::from_secs(30);
/// Minimum remaining lifetime; credentials that expire sooner could do so in transit.
const LEAST: Duration = Duration::from_secs(10);
/// Assumed lifetime of credentials that do not state their expiry.
const UNTOLD: Duration = Duration::from_secs(15 * 60);
/// Addresses of the container endpoints of ECS and EKS.
const CONTAINER_ADDRESSES: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];
const MACHINE_ADDRESSES: [&str; 2] = ["169.254.169.254", "fd00:ec2::254"];
const MACHINE_TOKEN: HeaderName = HeaderName::from_static("x-aws-ec2-metadata-token");
const MACHINE_TOKEN_LIFE: HeaderName =
    HeaderName::from_static("x-aws-ec2-metadata-token-ttl-seconds");

/// Returns the URL of an AWS service in a region. Those in China have another domain.
pub(super) fn service_url(service: &str, region: &str) -> String {
    let suffix = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://{service}.{region}.amazonaws.com{suffix}/")
}

impl Workload {
    /// Selects the provider from the variables that platforms set. The metadata service is used only if `machine` is
    /// set, since everything that runs on the machine can use it.
    ///
    /// # Errors
    ///
    /// A variable has an invalid value.
    pub(super) fn of(probe: &Probe, region: &str, machine: bool) -> Result<Option<Self>, String> {
        let file = probe.variable("AWS_WEB_IDENTITY_TOKEN_FILE");
        if let (Some(file), Some(role)) = (file, probe.variable("AWS_ROLE_ARN")) {
            let service = match probe.variable("AWS_ENDPOINT_URL_STS") {
                Some(url) => parsed("AWS_ENDPOINT_URL_STS", url)?,
                None => parsed("AWS_REGION", &service_url("sts", region))?,
            };
            return Self::new(Giver::Role {
                service,
                role: role.to_owned(),
                session: probe
                    .variable("AWS_ROLE_SESSION_NAME")
                    .unwrap_or("longshore")
                    .to_owned(),
                file: file.into(),
            })
            .map(Some);
        }
        let relative = probe.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let full = probe.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
        let url = match (relative, full) {
            (Some(path), _) if path.starts_with('/') => Some(parsed(
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                &format!("http://{}{path}", CONTAINER_ADDRESSES[0]),
            )?),
            (Some(_), _) => {
                return Err(
                    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with a slash".to_owned(),
                );
            }
            (None, Some(url)) => Some(container_url(url)?),
            (None, None) => None,
        };
        if let Some(url) = url {
            let file = probe.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
            let text = probe.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
            let proof = match (file, text) {
                (Some(file), _) => Some(WorkloadCredential::File(file.into())),
                (None, Some(text)) => Some(WorkloadCredential::Text(Secret::from(text.to_owned()))),
                (None, None) => None,
            };
            return Self::new(Giver::Container { url, proof }).map(Some);
        }
        if !machine {
            return Ok(None);
        }
        let service = match probe.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT") {
            Some(url) => parsed("AWS_EC2_METADATA_SERVICE_ENDPOINT", url)?,
            None => parsed("", &format!("http://{}/", MACHINE_ADDRESSES[0]))?,
        };
        Self::new(Giver::Machine { service }).map(Some)
    }

    fn new(giver: Giver) -> Result<Self, String> {
        let (url, addresses) = match &giver {
            Giver::Role { service, .. } => (service, &[][..]),
            Giver::Container { url, .. } => (url, &CONTAINER_ADDRESSES[..]),
            Giver::Machine { service } => (service, &MACHINE_ADDRESSES[..]),
        };
        let host = url.host_str().unwrap_or_default().to_owned();
        // Link-local addresses reach only the platform's own services.
        let own = addresses.iter().filter_map(|text| text.parse().ok());
        let own = own.filter(|own: &IpAddr| address_of(url) == Some(*own));
        let egress = EgressConfig {
            hosts: vec![host],
            networks: own.map(IpNet::from).collect(),
            ..EgressConfig::default()
        };
        let guard = egress.guard().map_err(|error| error.to_string())?;
        let guard = guard.trust(url);
        guard
            .check_url(url)
            .map_err(|error| format!("{url}: {error}"))?;
        let client = Client::builder(guard)
            .deadlines(Deadlines::total(PATIENCE))
            .max_body(ANSWER_BYTES)
            .idle_connections(0)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self {
            giver,
            client,
            given: ArcSwapOption::empty(),
            getting: Mutex::default(),
        })
    }

    /// Returns valid credentials.
    pub(super) async fn keys(&self) -> Result<Keys, String> {
        let now = SystemTime::now();
        let given = self.given.load_full();
        if let Some(given) = given.filter(|given| now < given.renew) {
            return Ok(given.keys.clone());
        }
        let is_good = |given: &Arc<Given>| now + LEAST < given.expires;
        let _getting = match self.getting.try_lock() {
            Ok(getting) => getting,
            // Another task is renewing already.
            Err(_) => match self.given.load_full().filter(is_good) {
                Some(given) => return Ok(given.keys.clone()),
                None => self.getting.lock().await,
            },
        };
        let given = self.given.load_full();
        if let Some(given) = given.as_ref().filter(|given| now < given.renew) {
            return Ok(given.keys.clone());
        }
        let (keys, expires) = match (self.get().await, given.filter(is_good)) {
            (Ok((keys, expires)), _) => (keys, expires),
            (Err(problem), Some(old)) => {
                tracing::warn!(
                    problem,
                    "the credentials for artifacts.s3 cannot be renewed; the current ones stay in use until they expire"
                );
                let later = Given {
                    keys: old.keys.clone(),
                    expires: old.expires,
                    renew: now + AGAIN,
                };
                self.given.store(Some(Arc::new(later)));
                return Ok(old.keys.clone());
            }
            (Err(problem), None) => return Err(problem),
        };
        let life = expires.duration_since(now).unwrap_or_default();
        if life < LEAST {
            return Err(format!("{} returned expired credentials", self.giver));
        }
        let given = Given {
            keys: keys.clone(),
            expires,
            renew: expires - MARGIN.min(life / 2),
        };
        self.given.store(Some(Arc::new(given)));
        Ok(keys)
    }

    async fn get(&self) -> Result<(Keys, SystemTime), String> {
        match &self.giver {
            Giver::Role {
                service,
                role,
                session,
                file,
            } => {
                let token = read_text(file).await?;
                let form = url::form_urlencoded::Serializer::new(String::new())
                    .append_pair("Action", "AssumeRoleWithWebIdentity")
                    .append_pair("Version", "2011-06-15")
                    .append_pair("RoleArn", role)
                    .append_pair("RoleSessionName", session)
                    .append_pair("WebIdentityToken", token.expose())
                    .finish();
                let kind = "application/x-www-form-urlencoded";
                let answer = self
                    .ask(OutgoingRequest::post(service.clone(), kind, form))
                    .await?;
                let text = String::from_utf8_lossy(&answer.body);
                let part = |name: &str| element(&text, name).map(str::to_owned);
                let (Some(id), Some(secret)) = (part("AccessKeyId"), part("SecretAccessKey"))
                else {
                    return Err(format!("{} gives no keys", self.giver));
                };
                Ok((
                    Keys {
                        id,
                        secret: Secret::from(secret),
                        session: part("SessionToken").map(Secret::from),
                    },
                    end_of(part("Expiration").as_deref()),
                ))
            }
            Giver::Container { url, proof } => {
                let mut request = OutgoingRequest::get(url.clone());
                let proof = match proof {
                    None => None,
                    Some(WorkloadCredential::Text(text)) => Some(text.clone()),
                    Some(WorkloadCredential::File(file)) => Some(read_text(file).await?),
                };
                if let Some(proof) = proof {
                    request = request.header(AUTHORIZATION, sensitive(proof.expose())?);
                }
                self.read(&self.ask(request).await?)
            }
            Giver::Machine { service } => {
                let url = |path: &str| service.join(path).map_err(|error| error.to_string());
                let request = OutgoingRequest::new(Method::PUT, url("latest/api/token")?)
                    .header(MACHINE_TOKEN_LIFE, HeaderValue::from_static("300"));
                let token = self.ask(request).await?;
                let token = sensitive(String::from_utf8_lossy(&token.body).trim())?;
                let roles = url("latest/meta-data/iam/security-credentials/")?;
                let asked =
                    OutgoingRequest::get(roles.clone()).header(MACHINE_TOKEN, token.clone());
                let said = self.ask(asked).await?;
                let said = String::from_utf8_lossy(&said.body);
                let role = said.lines().next().unwrap_or_default().trim();
                let plain = |c: char| {
                    c.is_ascii_alphanumeric()
                        || matches!(c, '+' | '=' | ',' | '.' | '@' | '_' | '-')
                };
                if role.is_empty() || !role.chars().all(plain) || role.starts_with('.') {
                    return Err("the machine has no role; attach one, or set the credentials in artifacts.s3".to_owned());
                }
                let role = roles.join(role).map_err(|error| error.to_string())?;
                let asked = OutgoingRequest::get(role).header(MACHINE_TOKEN, token);
                self.read(&self.ask(asked).await?)
            }
        }
    }

    async fn ask(&self, request: OutgoingRequest) -> Result<FetchedResponse, String> {
        let request = request.header(ACCEPT, HeaderValue::from_static("*/*"));
        let answer = self
            .client
            .fetch(request)
            .await
            .map_err(|e| e.to_string())?;
        match answer.status {
            StatusCode::OK => Ok(answer),
            status => Err(format!("{} responded with status {status}", self.giver)),
        }
    }

    fn read(&self, answer: &FetchedResponse) -> Result<(Keys, SystemTime), String> {
        // The parser's message could quote the credentials.
        let answer: MetadataResponse = serde_json::from_slice(&answer.body)
            .map_err(|_| format!("{} gives no keys", self.giver))?;
        let keys = Keys {
            id: answer.access_key_id,
            secret: Secret::from(answer.secret_access_key),
            session: answer.token.map(Secret::from),
        };
        Ok((keys, end_of(answer.expiration.as_deref())))
    }
}

impl fmt::Display for Giver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Role { .. } => "the service for AWS_ROLE_ARN",
            Self::Container { .. } => "the service for containers",
            Self::Machine { .. } => "the metadata service",
        })
    }
}

fn parsed(variable: &str, text: &str) -> Result<Url, String> {
    let url: Url = text
        .parse()
        .map_err(|_| format!("the variable {variable}: {text:?} is not a valid URL"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err(format!(
            "the variable {variable}: {text:?} is not an http or https URL"
        )),
    }
}

/// Parses an endpoint URL. Plain `http` is allowed only to this machine and to the platforms' container endpoints.
fn container_url(text: &str) -> Result<Url, String> {
    let variable = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    let url = parsed(variable, text)?;
    let is_known = address_of(&url).is_some_and(|address| {
        let known = CONTAINER_ADDRESSES.iter();
        address.is_loopback()
            || known
                .filter_map(|k| k.parse().ok())
                .any(|k: IpAddr| k == address)
    });
    if url.scheme() == "http" && !is_known && url.host_str() != Some("localhost") {
        return Err(format!(
            "the variable {variable}: {text:?} is not an https URL, nor an address of this machine or of a platform's credential service"
        ));
    }
    Ok(url)
}

fn address_of(url: &Url) -> Option<IpAddr> {
    match url.host()? {
        url::Host::Ipv4(address) => Some(address.into()),
        url::Host::Ipv6(address) => Some(address.into()),
        url::Host::Domain(_) => None,
    }
}

fn end_of(text: Option<&str>) -> SystemTime {
    text.and_then(|text| text.parse::<jiff::Timestamp>().ok())
        .map_or_else(|| SystemTime::now() + UNTOLD, SystemTime::from)
}

/// Returns the content of the first element with a name.
fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inside, _) = rest.split_once('<')?;
    Some(inside.trim()).filter(|inside| !inside.is_empty())
}

async fn read_text(file: &Path) -> Result<Secret, String> {
    let path = file.to_owned();
    match net::spawn_blocking(move || read_token(&path)).await {
        Ok(Ok(text)) => Ok(Secret::from(text)),
        Ok(Err(error)) => Err(format!("{}: {error}", file.display())),
        Err(_) => Err("this process is ending".to_owned()),
    }
}

#[cfg(test)]
mod tests;
