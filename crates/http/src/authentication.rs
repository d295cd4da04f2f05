//! Authentication of requests on guarded paths, before their body is read (AUTH-07).

use std::sync::Arc;

use http::HeaderMap;
use http::request::Parts;

use super::context::{Origin, Waiting};
use super::rejection::{HttpError, Rejection};
use super::route::{Protected, Route, RouteTarget};
use crate::auth::{AuthError, Credentials, Principal, RequestTarget};
use crate::environment::unix_seconds;

/// The caller of a request.
#[derive(Debug)]
pub(super) enum Caller {
    /// Authentication is off; the router has the one principal of all callers.
    Everybody,
    Known(Arc<Principal>),
}

/// An authentication method that has to wait, with the headers that it borrows.
pub(super) type Authentication = Waiting<(HeaderMap, Result<Arc<Principal>, AuthError>)>;

impl Origin<'_> {
    /// Returns the caller without waiting: that of everybody, or one that the connection has shown before. Removes the
    /// headers with credentials.
    #[inline]
    pub(super) fn known_caller(
        &self,
        route: &Route,
        head: &mut Parts,
    ) -> Result<Option<Caller>, Rejection> {
        let authenticator = &self.router.authenticator;
        if authenticator.everybody().is_some() {
            return Ok(Some(Caller::Everybody));
        }
        let Some(shared) = self.connection.shared() else {
            return Ok(None);
        };
        let (cache, query) = (&shared.credentials, head.uri.query());
        match authenticator.recall(cache, &mut head.headers, query, unix_seconds) {
            Some(principal) => self.check_access(principal, route, head).map(Some),
            None => Ok(None),
        }
    }

    /// Authenticates a request. The future takes its headers and gives them back.
    pub(super) fn authenticate(&self, head: &mut Parts) -> Authentication {
        let headers = std::mem::take(&mut head.headers);
        let (uri, method) = (head.uri.clone(), head.method.clone());
        let (router, shared) = (Arc::clone(self.router), self.connection.shared().cloned());
        Box::pin(async move {
            let shared = shared.as_deref();
            let peer = shared.map(|shared| shared.peer().address);
            // The worker's clock may lag by a second, so that a fresh token would appear to be issued in the future.
            let presented = Credentials::read(&headers, uri.query(), peer, unix_seconds());
            let certificate = shared.and_then(|shared| shared.certificate());
            let presented = presented
                .map(|presented| presented.with_certificate(certificate).with_method(&method));
            let cache = shared.map(|shared| &shared.credentials);
            let seen = RequestTarget {
                headers: &headers,
                uri: &uri,
                peer,
            };
            let found = router
                .authenticator
                .admit_at(presented, cache, Some(seen))
                .await;
            (headers, found)
        })
    }

    /// Takes the result of [`authenticate`](Self::authenticate). Removes the headers with credentials.
    pub(super) fn authenticated(
        &self,
        (headers, found): (HeaderMap, Result<Arc<Principal>, AuthError>),
        route: &Route,
        head: &mut Parts,
    ) -> Result<Caller, Rejection> {
        head.headers = headers;
        if let Some(connection) = self.connection.local() {
            connection.restart_body();
        }
        match found {
            Ok(principal) => {
                self.router.authenticator.strip(&mut head.headers);
                self.check_access(principal, route, head)
            }
            Err(error) => {
                let is_wrong = matches!(
                    error,
                    AuthError::Invalid(_) | AuthError::InvalidDpopProof(_) | AuthError::TooLong(_)
                );
                if is_wrong {
                    let limits = &self.router.endpoint.server.limits;
                    let failed = limits.failed_proof(self.client.map(|client| client.address));
                    failed.map_err(HttpError::Limited)?;
                }
                Err(self.denied(error, route, head))
            }
        }
    }

    /// Checks the rate limit of an authenticated caller and its access to this endpoint.
    #[inline]
    fn check_access(
        &self,
        principal: Arc<Principal>,
        route: &Route,
        head: &Parts,
    ) -> Result<Caller, Rejection> {
        let router = self.router;
        if let Err(refused) = router.endpoint.server.limits.admit(&principal) {
            let rejection = Rejection::from(HttpError::Limited(refused));
            return Err(rejection.with_principal(principal));
        }
        let endpoint = match route.place {
            RouteTarget::Guarded(Protected::NamedEndpoint) => router.name_in(&head.uri),
            _ => "",
        };
        match router.authenticator.check_endpoint(&principal, endpoint) {
            Ok(()) => Ok(Caller::Known(principal)),
            Err(error) => Err(self.denied(error, route, head).with_principal(principal)),
        }
    }

    /// Rejects the credentials of a request.
    #[cold]
    fn denied(&self, error: AuthError, route: &Route, head: &Parts) -> Rejection {
        tracing::debug!(%error, path = route.path, client = ?self.client, "a request was refused");
        let seen = self.seen(&head.headers, &head.uri);
        let challenge = self.router.authenticator.challenge(seen, &error);
        Rejection::auth(error, challenge)
    }

    /// Adds to a rejection for a missing scope which scopes the caller needs (AUTH-09). An unauthenticated caller is
    /// asked for credentials instead.
    #[cold]
    pub(super) fn with_needed_scopes(
        &self,
        rejection: Rejection,
        principal: &Principal,
        head: &Parts,
    ) -> Rejection {
        let Some(scopes) = rejection.needed_scopes() else {
            return rejection;
        };
        let seen = self.seen(&head.headers, &head.uri);
        match self.router.authenticator.lacking(principal, seen, &scopes) {
            (error @ AuthError::Missing, challenge) => Rejection::auth(error, challenge),
            (_, challenge) => rejection.with_challenge(challenge),
        }
    }
}

impl Caller {
    /// The principal. Borrowed, since a count that all workers share would cost each request.
    #[inline]
    pub(super) fn principal<'c>(&'c self, origin: &'c Origin<'_>) -> Option<&'c Arc<Principal>> {
        match self {
            Self::Everybody => origin.router.authenticator.everybody(),
            Self::Known(principal) => Some(principal),
        }
    }
}
