//! Authentication and authorization.
//!
//! The `Authenticator` asks each [`AuthMethod`] in turn what it makes of a request ([`Credentials`]), until one has found out the
//! [`Principal`]. That is what every later step asks; how it was proved is this room's own matter. Without any proof the
//! authenticator accepts every request as the anonymous principal.
//!
//! This module knows neither routes nor messages.
//!
//! # Failure
//!
//! An invalid credential is never treated as a missing one. Errors state a reason to the caller and never repeat the
//! credential.

mod api_key;
mod certificate;
mod client_certificate;
mod config;
mod display_name;
mod error;
mod forwarded;
mod authenticator;
#[cfg_attr(not(feature = "oauth"), path = "oauth/absent.rs")]
mod oauth;
mod policy;
mod credentials;
mod principal;
mod method;
mod resource;
mod scopes;
mod builder;
mod credential_cache;
mod store_backoff;

use crate::digest::sha256;

pub use api_key::ApiKeys;
pub use api_key::{KeyHash, check_holder, new_key};
pub use authenticator::Authenticator;
pub use builder::{Authentication, EndpointScopes, ServerFacts};
pub use certificate::CertificateConfig;
#[cfg(feature = "tls")]
pub use client_certificate::CertificateValidity;
pub use client_certificate::{CertificateName, ClientCertificate};
pub use config::{ApiKeyConfig, AuthConfig, AuthMethodKind, AuthSetupError, ForwardedConfig};
pub use credential_cache::{CredentialCache, is_same};
pub use credentials::Credentials;
pub use display_name::DisplayName;
pub use error::{AuthError, Credential};
pub use method::{AuthMethod, AuthOutcome};
pub use oauth::{
    AllowConfig, DpopConfig, FacadeClientConfig, FacadeConfig, FacadeSetupError,
    IntrospectionConfig, IntrospectionMethod, IssuerConfig, OAuthConfig, OAuthSetupError, Preset,
    Tokens,
};
#[cfg(feature = "oauth")]
pub use oauth::{
    AssertionDemands, CheckedProvider, DPOP_ALGORITHMS, DpopNonces, DpopProof, DpopRequest,
    DpopVerifier, IdTokenDemands, IdTokenFault, IssuerKeys, IssuerKeysError, ProviderKind,
    strict_object, verify_id_token, verify_identity_assertion,
};
#[cfg(feature = "cli")]
pub use oauth::{IssuerReport, examine_introspection, examine_issuers};
pub use policy::{
    Access, Classified, Decision, Effect, Kind, PolicyConfig, PolicyError, RuleConfig, Target,
};
pub use policy::{Class, ItemKind, Policy, Visible};
pub use principal::{Principal, PrincipalKind};
pub use resource::{PublicUrl, RequestTarget};
pub use scopes::{SCOPE_ADVICE, is_scope};
pub use store_backoff::StoreBackoff;
