//! Network checks: issuers, the collector and the shared state.

use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use super::remote::http_date;
use super::report::{Check, Report};
use crate::auth::{IssuerReport, OAuthConfig, examine_introspection, examine_issuers};
use crate::environment::Probe;
use crate::seal::random_bytes;
use crate::state::{SharedState, StateError};
use crate::telemetry::{EndpointCheck, examine_export};
use longshore_app::config::{Config, Loaded};

/// Clock difference above which tokens are rejected.
const SKEW_MAX: Duration = Duration::from_secs(60);
/// Timeout of the first connection to the shared state.
const STATE_PATIENCE: Duration = Duration::from_secs(5);

pub(super) async fn examine(loaded: &Loaded, probe: &Probe, report: &mut Report) {
    let config = &loaded.config;
    issuers(&config.auth.oauth, report).await;
    introspection(&config.auth.oauth, report).await;
    collector(config, probe, report).await;
    state(config, report).await;
}

async fn issuers(config: &OAuthConfig, report: &mut Report) {
    const AREA: &str = "issuer";
    for (issuer, found) in examine_issuers(config).await {
        match found {
            Ok(IssuerReport { keys, url, date }) => {
                report.add(Check(AREA, &issuer).ok(format!("{keys} keys at {url}")));
                if let Some(skew) = date.and_then(|date| skew(SystemTime::now(), http_date(&date)?)) {
                    report.add(
                        Check(AREA, "clock").warning(format!("the clocks of this machine and of {issuer} differ by {} s", skew.as_secs()))
                        .advise("synchronize this machine's clock: `timedatectl set-ntp true`; tokens are rejected if clocks differ by more than auth.oauth.leeway_seconds"),
                    );
                }
            }
            Err(problem) => report.add(
                Check(AREA, &issuer).failure(problem)
                    .advise("auth.oauth.issuer must be exactly the issuer in its metadata, including slashes")
                    .advise("if it is correct, allow the connection: NetworkPolicy egress, firewall, DNS; or set auth.oauth.jwks_url"),
            ),
        }
    }
}

async fn introspection(config: &OAuthConfig, report: &mut Report) {
    const AREA: &str = "introspection";
    let Some((url, examined)) = examine_introspection(config).await else {
        return;
    };
    report.add(match examined {
        Ok(()) => Check(AREA, &url).ok("it accepts this client, and rejects a made-up token"),
        Err(problem) => Check(AREA, &url).failure(problem)
            .advise("auth.oauth.introspection.client_id and client_secret: those of a client that may introspect tokens at the issuer")
            .advise("auth.oauth.introspection.method: post, if the issuer expects ID and secret in the form")
            .advise("allow the connection: NetworkPolicy egress, firewall, DNS"),
    });
}

/// Returns the difference of two clocks, if it is too large.
pub(super) fn skew(here: SystemTime, there: SystemTime) -> Option<Duration> {
    let skew = here
        .duration_since(there)
        .unwrap_or_else(|error| error.duration());
    (SKEW_MAX < skew).then_some(skew)
}

async fn collector(config: &Config, probe: &Probe, report: &mut Report) {
    const AREA: &str = "collector";
    let service = (config.server.name.as_str(), config.server.version.as_str());
    let examined = examine_export(&config.telemetry, probe, service).await;
    for doubt in examined.doubts {
        report.add(
            Check(AREA, "settings")
                .warning(doubt)
                .advise("docs/observability.md lists the valid values of each variable"),
        );
    }
    for EndpointCheck {
        signal,
        endpoint,
        answer,
    } in examined.reached
    {
        report.add(match answer {
            Ok(()) => Check(AREA, signal).ok(format!("{endpoint} takes them")),
            Err(problem) => Check(AREA, signal).failure(format!("{endpoint}: {problem}"))
                .advise("telemetry.endpoint (OTEL_EXPORTER_OTLP_ENDPOINT): http://collector:4318 for telemetry.protocol = http, :4317 for grpc")
                .advise(format!(
                    "or turn the export off: OTEL_{}_EXPORTER=none",
                    signal.to_uppercase()
                )),
        });
    }
}

async fn state(config: &Config, report: &mut Report) {
    const AREA: &str = "state";
    if !config.state.is_shared() {
        report.add(Check(AREA, "store").ok("in memory: several replicas need state.url for tasks, client requests and resumption (docs/replicas.md)"));
        return;
    }
    let store = match crate::state::open(&config.state) {
        Ok(store) => store,
        Err(error) => {
            report.add(
                Check(AREA, "store").failure(error.to_string())
                    .advise("state.url: redis://host:6379, rediss://… with TLS, redis+sentinel://…, redis+cluster://…"),
            );
            return;
        }
    };
    let timeout = Duration::from_millis(config.state.timeout_ms);
    let begun = Instant::now();
    // The first call includes the connection, and has a longer timeout.
    let first = write(&SharedState::new(store.clone(), STATE_PATIENCE)).await;
    let first = match first {
        // Calls during a pending connection attempt fail immediately.
        Err(StateError::Unreachable { .. }) if begun.elapsed() < STATE_PATIENCE => {
            tokio::time::sleep(Duration::from_millis(300)).await;
            write(&SharedState::new(store.clone(), STATE_PATIENCE)).await
        }
        first => first,
    };
    if let Err(error) = first {
        report.add(
            Check(AREA, "store").failure(error.to_string())
                .advise("state.url must name a server that this process can reach, with a user who may write keys that begin with state.prefix")
                .advise("ACL: user longshore on >password ~longshore:* &longshore:* +@read +@write +@pubsub +@scripting +@connection +time +role +cluster|slots"),
        );
        return;
    }
    let begun = Instant::now();
    let second = write(&SharedState::new(store, timeout)).await;
    let took = begun.elapsed();
    report.add(match second {
        Ok(()) => Check(AREA, "store").ok(format!(
            "written, read and removed in {} ms",
            took.as_millis()
        )),
        Err(error) => Check(AREA, "store")
            .warning(error.to_string())
            .advise(format!(
                "use a store that is nearer, or raise the timeout: state.timeout_ms = {}",
                config.state.timeout_ms * 4
            )),
    });
    #[cfg(feature = "redis")]
    natures(config, report).await;
}

/// Checks the version and eviction policy of the servers.
#[cfg(feature = "redis")]
async fn natures(config: &Config, report: &mut Report) {
    const AREA: &str = "state";
    const CHECK: Check<'_> = Check(AREA, "server");
    let patient = crate::state::StateConfig {
        timeout_ms: STATE_PATIENCE.as_millis() as u64,
        ..config.state.clone()
    };
    // The address was validated before.
    let Ok(store) = crate::state::Redis::new(&patient) else {
        return;
    };
    let natures = match store.nature().await {
        Ok(natures) => natures,
        Err(error) => {
            report.add(CHECK.skipped(format!("INFO is not permitted ({error}): ask an administrator whether maxmemory-policy is noeviction")));
            return;
        }
    };
    let worst = natures
        .iter()
        .find(|nature| nature.is_old())
        .or_else(|| natures.iter().find(|nature| nature.evicts()));
    let of = |nature: &crate::state::ServerInfo| {
        format!(
            "version {}, maxmemory-policy {}",
            nature.version.as_deref().unwrap_or("unknown"),
            nature.policy.as_deref().unwrap_or("unknown"),
        )
    };
    report.add(match (worst, natures.first()) {
        (Some(nature), _) if nature.is_old() => {
            CHECK.failure(of(nature)).advise("upgrade to Redis 7 or Valkey 7.2, or later")
        }
        (Some(nature), _) => CHECK.warning(format!("{}: a full store evicts entries that are still needed: ended sessions, tasks, streams to resume", of(nature)))
        .advise("redis.conf: maxmemory-policy noeviction; without a restart: CONFIG SET maxmemory-policy noeviction")
        .advise("ElastiCache: a parameter group with maxmemory-policy = noeviction; Memorystore: --update-redis-config maxmemory-policy=noeviction; Azure: maxmemory-policy in the advanced settings"),
        (None, Some(nature)) => CHECK.ok(of(nature)),
        (None, None) => CHECK.skipped("the response to INFO is empty"),
    });
}

async fn write(state: &SharedState) -> Result<(), StateError> {
    let key = format!("doctor:{:016x}", u64::from_le_bytes(random_bytes()));
    let value = Bytes::from_static(b"longshore doctor");
    state
        .put(&key, value.clone(), Duration::from_secs(60))
        .await?;
    let read = state.get(&key).await?;
    state.remove(&key).await?;
    if read != Some(value) {
        return Err(StateError::Unreachable {
            reason: "a written value could not be read".to_owned(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_may_differ_a_little() {
        let here = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        assert_eq!(skew(here, here - SKEW_MAX), None);
        assert_eq!(skew(here, here + SKEW_MAX), None);
        let much = SKEW_MAX + Duration::from_secs(1);
        assert_eq!(skew(here, here - much), Some(much));
        assert_eq!(skew(here, here + much), Some(much));
    }
}
