//! Checks the maximum message size on the way to the server.

use super::super::proxy_kind::ProxyKind;
use super::super::report::{Check, Report};
use super::protocol::{Lifecycles, usual};
use super::wire::DiagnosedServer;

/// Slightly above the default limit of nginx.
const LARGE: usize = (1024 + 64) * 1024;
/// Sizes to try after a failure.
const SMALLER: [usize; 4] = [512 * 1024, 128 * 1024, 64 * 1024, 16 * 1024];

/// Sends a message that is nothing but long. What it is filled up with are blanks, which mean nothing in JSON.
pub(super) async fn examine(
    wire: &DiagnosedServer,
    front: ProxyKind,
    lifecycles: &Lifecycles,
    report: &mut Report,
) {
    const AREA: &str = "protocol";
    const CHECK: Check<'_> = Check(AREA, "large messages");
    let refused = match attempt(wire, lifecycles, LARGE).await {
        Ok(()) => {
            let seen = format!("a body of {} KiB is accepted", LARGE / 1024);
            report.add(CHECK.ok(seen));
            return;
        }
        Err(None) => {
            report.add(CHECK.limited());
            return;
        }
        Err(Some(refused)) => refused,
    };
    let mut most = format!("a body of {} KiB too", SMALLER[SMALLER.len() - 1] / 1024);
    for bytes in SMALLER {
        match attempt(wire, lifecycles, bytes).await {
            Ok(()) => {
                most = format!("a body of {} KiB is accepted", bytes / 1024);
                break;
            }
            Err(Some(_)) => {}
            Err(None) => {
                report.add(CHECK.limited());
                return;
            }
        }
    }
    let mut finding = CHECK.warning(format!(
        "a body of {} KiB is rejected ({refused}), {most}: arguments of tools can be that large",
        LARGE / 1024
    ));
    for advice in front.against_small_bodies() {
        finding = finding.advise(advice);
    }
    report.add(finding.advise("the server itself: http.limits.body_bytes (default 4 MiB)"));
}

/// Sends a message of this size. The error is `None` if the failure is not due to the size.
async fn attempt(
    wire: &DiagnosedServer,
    lifecycles: &Lifecycles,
    bytes: usize,
) -> Result<(), Option<String>> {
    let seen = wire.ask(&usual(wire, lifecycles).padded(bytes)).await?;
    match seen {
        seen if seen.is_result() => Ok(()),
        seen if seen.is_limited() => Err(None),
        seen => Err(Some(seen.summary())),
    }
}
