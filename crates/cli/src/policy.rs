//! `longshore policy`.

use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use super::Failure;
use super::output::{self, print};
use super::run::load;
use crate::app::{App, AppError};
use crate::auth::{Access, Kind, Principal, PrincipalKind};
use longshore_app::config::Flags;

/// Options of `policy`.
#[derive(Debug, Args)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,

    /// Read settings from a file [env: LONGSHORE_CONFIG]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<std::path::PathBuf>,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Check whether a caller may see and use an item, and print the deciding rule; exit code 1 if not, 2 for invalid arguments
    Check {
        /// Caller: key:ci, user:alice, cert:robot, oauth:id.example.com#alice, anonymous, local
        #[arg(long = "as", value_name = "SUBJECT")]
        subject: String,
        /// Group of the caller, in addition to configured ones; may be repeated
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// Scope of the caller, in addition to configured ones; may be repeated
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        /// Claim of the caller's token; may be repeated
        #[arg(long = "claim", value_name = "NAME=VALUE")]
        claims: Vec<String>,
        /// The item is a resource, given by its URI
        #[arg(long, conflicts_with = "prompt")]
        resource: bool,
        /// The item is a prompt
        #[arg(long)]
        prompt: bool,
        /// Name of the item, by default a tool
        name: String,
    },
    /// List the tools as reading or writing, with the reason
    Classify,
}

/// Runs the command. Returns false if access is denied.
pub(super) fn policy(args: PolicyArgs) -> Result<bool, Failure> {
    let mut flags = Flags::default();
    flags.config = args.config;
    // No listener is started.
    flags.insecure = true;
    let settings = load(flags)?.config.clone();
    let anonymous = settings.auth.anonymous.clone();
    let rules = App::new().config(settings).policy()?;
    match args.command {
        PolicyCommand::Classify => {
            let width = rules.tools().map(str::len).max().unwrap_or(0);
            let mut text = String::new();
            for tool in rules.tools() {
                let Some(found) = rules.classify(tool) else {
                    continue;
                };
                let access = match found.access {
                    Access::Read => "read ",
                    Access::Write => "write",
                };
                text += &format!("{tool:width$}  {access}  {}\n", found.reason);
            }
            print(&text)?;
            Ok(true)
        }
        PolicyCommand::Check {
            subject,
            groups,
            scopes,
            claims,
            resource,
            prompt,
            name,
        } => {
            let kind = match (resource, prompt) {
                (true, _) => Kind::Resource,
                (_, true) => Kind::Prompt,
                _ => Kind::Tool,
            };
            check_subject(&subject, anonymous.as_deref())?;
            let claims = claims.iter().map(|claim| {
                let pair = claim.split_once('=').ok_or_else(|| {
                    AppError::Arguments(format!("--claim {claim:?} is not of the form NAME=VALUE"))
                });
                pair.map(|(name, value)| (name.to_owned(), Value::from(value)))
            });
            let claims = claims.collect::<Result<Map<_, _>, AppError>>()?;
            let principal = rules.principal(&subject);
            if subject.starts_with("key:") && principal.kind() != PrincipalKind::ApiKey {
                output::remark(&format!(
                    "{subject}: the configuration has no API key of this name; it is checked without scopes and groups of its own"
                ));
            }
            let principal = with(principal, groups, scopes, claims);
            let Some(decision) = rules.decide(&principal, kind, &name) else {
                print(&format!("no: the {} does not exist\n", word(kind)))?;
                return Ok(false);
            };
            let because = match &decision.rule {
                Some(rule) => format!("by {rule}"),
                None => "no rule applies, so the default decides".to_owned(),
            };
            let lacking: Vec<_> = decision
                .requires
                .iter()
                .filter(|scope| !principal.has_scope(scope))
                .map(String::as_str)
                .collect();
            let text = match (decision.allowed, lacking.is_empty()) {
                (false, _) => format!("no: {subject} does not see {name}; {because}\n"),
                (true, true) => format!("yes: {subject} may use {name}; {because}\n"),
                (true, false) => format!(
                    "no: {subject} sees {name}, but lacks {}; {because}\n",
                    lacking.join(" ")
                ),
            };
            print(&text)?;
            Ok(decision.allowed && lacking.is_empty())
        }
    }
}

/// Checks that the name is one that authentication gives to callers.
fn check_subject(subject: &str, anonymous: Option<&str>) -> Result<(), AppError> {
    let is_plain = ["local", "anonymous"].contains(&subject) || anonymous == Some(subject);
    let is_of_kind = subject.split_once(':').is_some_and(|(kind, name)| {
        matches!(kind, "key" | "oauth" | "cert" | "user") && !name.is_empty()
    });
    match is_plain || is_of_kind {
        true => Ok(()),
        false => Err(AppError::Arguments(format!(
            "--as is {subject:?}, which no caller is called; write key:NAME, user:NAME, cert:NAME, oauth:ISSUER#SUBJECT, local or {}",
            anonymous.unwrap_or("anonymous")
        ))),
    }
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool => "tool",
        Kind::Resource => "resource",
        Kind::Prompt => "prompt",
    }
}

/// Adds facts from the command line to a principal.
fn with(
    principal: Principal,
    groups: Vec<String>,
    scopes: Vec<String>,
    claims: Map<String, Value>,
) -> Principal {
    let known = principal.groups().map(str::to_owned);
    let groups: Vec<_> = known.chain(groups).collect();
    let known = principal.scopes().map(str::to_owned);
    let scopes: Vec<_> = known.chain(scopes).collect();
    principal
        .with_groups(groups)
        .with_scopes(scopes)
        .with_claims(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_have_names_of_a_known_kind() {
        for subject in [
            "key:ci",
            "user:a:b",
            "cert:x",
            "oauth:id.example.com#a",
            "local",
            "guest",
        ] {
            assert!(check_subject(subject, Some("guest")).is_ok(), "{subject}");
        }
        for subject in ["foo:bar", "alice", "key:", "", "Key:ci"] {
            assert!(check_subject(subject, None).is_err(), "{subject}");
        }
    }
}
