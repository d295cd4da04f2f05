//! Serves the authorization server that `auth.oauth.facade` configures.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use longshore_authserver::{AuthorizationServer, is_path};

use super::AppError;
use super::endpoints::SharedParts;
use super::hooks::Hook;
use crate::auth::{
    Authentication, DpopNonces, DpopVerifier, EndpointScopes, FacadeSetupError, OAuthSetupError,
    PolicyConfig, PublicUrl,
};
use crate::seal::SignedNonces;

use crate::config::Config;
use crate::transport::http::{Layers, PublicPaths, RouteFuture};

/// The paths of an authorization server.
#[derive(Debug)]
struct Paths(Arc<AuthorizationServer>);

impl PublicPaths for Paths {
    fn has(&self, path: &str) -> bool {
        is_path(path)
    }

    fn respond(&self, path: &str, request: Request<Bytes>) -> RouteFuture {
        let (server, path) = (Arc::clone(&self.0), path.to_owned());
        Box::pin(async move { server.respond(&path, request).await })
    }
}

/// Creates the verifier of DPoP proofs, for access tokens and for the authorization server, and gives it to `auth`.
pub(super) fn verify_proofs(
    config: &Config,
    auth: &Authentication,
    parts: &SharedParts,
) -> DpopVerifier {
    let nonces = config.auth.oauth.dpop.nonces.then(|| {
        let nonces: Arc<dyn DpopNonces> = Arc::new(SignedNonces::new(Arc::clone(&parts.keys)));
        nonces
    });
    let verifier = DpopVerifier::new(parts.state.clone(), nonces);
    auth.verify_proofs_by(verifier.clone());
    verifier
}

/// Builds the authorization server, if one is configured, and adds its paths. Access tokens are then verified with its keys.
pub(super) fn serve(
    layers: &mut Layers,
    config: &Config,
    auth: &Authentication,
    parts: &SharedParts,
    places: &[EndpointScopes],
    dpop: DpopVerifier,
) -> Result<Option<Arc<AuthorizationServer>>, AppError> {
    let facade = &config.auth.oauth.facade;
    if !facade.is_configured() {
        return Ok(None);
    }
    let public = config.http.public_url.as_deref().and_then(PublicUrl::parse);
    let missing = || OAuthSetupError::from(FacadeSetupError::NoPublicUrl);
    let public = public.ok_or_else(|| AppError::Auth(missing().into()))?;
    let endpoint = public.endpoint();
    let mut resources = vec![endpoint.clone()];
    resources.extend(
        places
            .iter()
            .map(|place| format!("{endpoint}/{}", place.name)),
    );
    if !parts.keys.is_shared() {
        tracing::warn!(
            "auth.oauth.facade: seal.keys is not set, so logins end with this process and other replicas reject them; set seal.keys"
        );
    }
    let server = AuthorizationServer::new(longshore_authserver::Parts {
        config: facade.clone(),
        issuer: public.root(),
        name: auth.display_name(),
        resources,
        scopes: scopes(config, places, &config.policy),
        ring: Arc::clone(&parts.keys),
        state: parts.state.clone(),
        metrics: parts.telemetry.metrics.clone(),
        dpop,
        requires_dpop: config.auth.oauth.dpop.required,
    })
    .map_err(|error| AppError::AuthorizationServer(error.to_string()))?;
    auth.hold(server.public_keys());
    let server = Arc::new(server);
    layers.serve_publicly(Arc::new(Paths(Arc::clone(&server))));
    Ok(Some(server))
}

/// Returns the scopes that settings and access rules name.
fn scopes(config: &Config, places: &[EndpointScopes], policy: &PolicyConfig) -> Vec<String> {
    let of_places = places.iter().flat_map(|place| &place.scopes);
    let of_rules = policy.rules.iter().flat_map(|rule| &rule.requires);
    let all = config.auth.oauth.scopes.iter();
    all.chain(of_places).chain(of_rules).cloned().collect()
}

/// Offers the scopes of changed access rules. `started` is the configuration at the start, whose other settings stay in
/// force.
pub(super) fn scopes_hook(
    server: &Arc<AuthorizationServer>,
    started: &Arc<Config>,
    places: Vec<EndpointScopes>,
) -> Hook {
    let (server, started) = (Arc::clone(server), Arc::clone(started));
    Box::new(move |config| {
        let server = Arc::clone(&server);
        let scopes = scopes(&started, &places, &config.policy);
        Ok(Box::new(move || server.offer_scopes(scopes)))
    })
}
