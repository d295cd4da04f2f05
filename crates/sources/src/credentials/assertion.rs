//! Identity assertion grants (ID-JAG): the identity provider of an organization vouches for a user to the issuer of the other
//! server, and that issuer grants an access token.
//!
//! Source: draft-ietf-oauth-identity-assertion-authz-grant, and the MCP extension
//! `io.modelcontextprotocol/enterprise-managed-authorization`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;
use url::form_urlencoded::Serializer;

use super::dpop_key::DpopKey;
use super::error::CredentialError;
use super::token_request::{read_answer, token_endpoint, token_request};
use crate::environment::Secret;
use crate::net::{Client, FetchedResponse, OutgoingRequest};
use crate::source::tokens::Granted;

pub(super) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
pub(super) const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";

/// Issuer of the other server, which accepts identity assertions of the identity provider (ID-JAG).
///
/// The token is first exchanged at the identity provider (`token_url` beside this) for an assertion, and that one here for
/// an access token.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct IdentityAssertionConfig {
    /// Issuer of the other server's access tokens, exactly as in its metadata. It is the audience of the assertion.
    pub issuer: String,
    /// URL of its token endpoint.
    pub token_url: String,
    /// OAuth client ID of this server at that issuer.
    pub client_id: String,
    /// OAuth client secret at that issuer.
    pub client_secret: Option<Secret>,
    /// The other server: for an MCP server the URL of its endpoint. Default: the URL of the upstream server.
    pub resource: Option<String>,
}

/// The second step: an assertion is redeemed at the issuer of the other server.
pub(super) struct AssertionGrant {
    config: IdentityAssertionConfig,
    url: Url,
    resource: String,
    client: Client,
}

impl AssertionGrant {
    /// Checks the settings. `server` is the URL of an upstream server.
    ///
    /// # Errors
    ///
    /// Names the invalid setting and how to correct it.
    pub(super) fn new(
        config: &IdentityAssertionConfig,
        server: Option<&Url>,
    ) -> Result<Self, String> {
        let of = |setting: &str, problem: &str| format!("identity_assertion.{setting}: {problem}");
        let (url, client) = token_endpoint(&config.token_url)
            .map_err(|problem| format!("identity_assertion.{problem}"))?;
        if config.issuer.is_empty() {
            let problem = "it is not set; write the issuer as in the metadata of the other server";
            return Err(of("issuer", problem));
        }
        if config.client_id.is_empty() {
            let problem = "it is not set; set it to the ID of this server at that issuer";
            return Err(of("client_id", problem));
        }
        let resource = config
            .resource
            .clone()
            .or_else(|| Some(server?.as_str().to_owned()));
        let resource = resource.ok_or_else(|| {
            let problem = "it is not set; set it to the resource identifier of the other server";
            of("resource", problem)
        })?;
        Ok(Self {
            config: config.clone(),
            url,
            resource,
            client,
        })
    }

    /// Adds to a token exchange which token is requested: an assertion if it is to be redeemed, else an access token.
    pub(super) fn request_token(this: Option<&Self>, form: &mut Serializer<'_, String>) {
        let Some(this) = this else {
            form.append_pair("requested_token_type", ACCESS_TOKEN);
            return;
        };
        form.append_pair("requested_token_type", ID_JAG);
        form.append_pair("audience", &this.config.issuer);
        form.append_pair("resource", &this.resource);
    }

    /// Redeems the assertion in the identity provider's response. With a key, the token is to be bound to it. Returns the
    /// response of the issuer.
    pub(super) async fn redeem(
        &self,
        answer: &FetchedResponse,
        key: Option<&DpopKey>,
    ) -> Result<FetchedResponse, CredentialError> {
        let request = self.request(answer)?;
        match key {
            Some(key) => key.fetch(&self.client, request).await,
            None => Ok(self.client.fetch(request).await?),
        }
    }

    fn request(&self, answer: &FetchedResponse) -> Result<OutgoingRequest, CredentialError> {
        let granted: Granted = read_answer(answer)?;
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", JWT_BEARER);
        form.append_pair("assertion", &granted.access_token);
        let secret = self.config.client_secret.as_ref().map(Secret::expose);
        let client = (self.config.client_id.as_str(), secret, false);
        token_request(self.url.clone(), form, client)
    }

    pub(super) fn url(&self) -> &Url {
        &self.url
    }
}
