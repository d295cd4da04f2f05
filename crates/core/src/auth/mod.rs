//! Authentication and authorization.
//!
//! The `Gate` asks each [`AuthMethod`] in turn what it makes of a request ([`Credentials`]), until one has found out the
//! [`Principal`]. That is what every later step asks; how it was proved is this room's own matter. Without any proof the
//! gate is open, and everybody is the anonymous principal.
//!
//! This module knows neither routes nor messages.
//!
//! # Failure
//!
//! An invalid credential is never treated as a missing one. Errors state a reason to the caller and never repeat the
//! credential.

mod api_key;
mod certificate;
mod config;
mod error;
mod forwarded;
mod gate;
#[cfg_attr(not(feature = "oauth"), path = "oauth/absent.rs")]
mod oauth;
mod policy;
mod presented;
mod principal;
mod proof;
mod resource;
mod scopes;
mod setup;
mod shown;

pub use api_key::ApiKeys;
pub use api_key::{KeyHash, new_key};
pub use certificate::{CertificateConfig, CertificateName, ClientCertificate};
pub use config::{ApiKeyConfig, AuthConfig, AuthMethodKind, AuthSetupError, ForwardedConfig};
pub use error::{AuthError, Credential};
pub use gate::Gate;
pub use oauth::{
    AllowConfig, DpopConfig, FacadeClientConfig, FacadeConfig, FacadeSetupError,
    IntrospectionConfig, IntrospectionMethod, IssuerConfig, OAuthConfig, OAuthSetupError, Preset,
};
#[cfg(feature = "oauth")]
pub use oauth::{
    AssertionDemands, CheckedProvider, DPOP_ALGORITHMS, DpopNonces, DpopProof, DpopRequest,
    DpopVerifier, IdTokenDemands, IdTokenFault, IssuerKeys, IssuerKeysError, ProviderKind,
    strict_object, verify_id_token, verify_identity_assertion,
};
#[cfg(feature = "cli")]
pub use oauth::{Found, examine_introspection, examine_issuers};
pub use policy::{
    Access, Classified, Decision, Effect, Kind, PolicyConfig, PolicyError, RuleConfig, Target,
};
pub use policy::{Class, Policy, Shelf, Visible};
pub use presented::Credentials;
pub use principal::{Principal, PrincipalKind};
pub use proof::{AuthMethod, AuthOutcome};
pub use resource::{PublicUrl, Seen};
pub use scopes::{SCOPE_ADVICE, is_scope};
pub use setup::{Authentication, MountPlace, Place};
pub use shown::{Shown, is_same};
