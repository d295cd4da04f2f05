//! Findings and their report.

use serde_json::{Value, json};

use super::codes;
use crate::cli::client::clean;
use crate::cli::table::wide_table;
use crate::protocol::counted;

/// Maximum length of an observation, which may contain text of a server.
const CHARACTERS_MAX: usize = 1000;

/// Result of a check. The later are worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    /// No problem.
    #[default]
    Ok,
    /// The check could not run.
    Skipped,
    /// It works now, but may fail for some clients or in some situations.
    Warning,
    /// Broken for all clients.
    Failure,
}

impl Status {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// Area of the check: `machine`, `tls`, `sessions`.
    pub(super) area: &'static str,
    /// Name of the check, in a word or two.
    pub(super) check: String,
    pub(super) status: Status,
    /// The observation.
    pub(super) seen: String,
    /// Recommended changes: settings, values or annotations. Several entries are alternatives for different
    /// environments.
    pub(super) advice: Vec<String>,
}

/// Area and name of a check; makes its findings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Check<'n>(pub(super) &'static str, pub(super) &'n str);

impl Check<'_> {
    fn found(self, status: Status, seen: &str) -> Finding {
        Finding {
            area: self.0,
            check: self.1.to_owned(),
            status,
            seen: clean(seen).chars().take(CHARACTERS_MAX).collect(),
            advice: Vec::new(),
        }
    }

    pub(super) fn ok(self, seen: impl AsRef<str>) -> Finding {
        self.found(Status::Ok, seen.as_ref())
    }

    pub(super) fn skipped(self, seen: impl AsRef<str>) -> Finding {
        self.found(Status::Skipped, seen.as_ref())
    }

    /// The check could not be made, because the server limits requests.
    pub(super) fn limited(self) -> Finding {
        self.skipped(
            "rate limit reached (429): run it later, or with a token that has a higher limit",
        )
    }

    pub(super) fn warning(self, seen: impl AsRef<str>) -> Finding {
        self.found(Status::Warning, seen.as_ref())
    }

    pub(super) fn failure(self, seen: impl AsRef<str>) -> Finding {
        self.found(Status::Failure, seen.as_ref())
    }
}

impl Finding {
    /// Returns the stable code of a problem; `None` without one.
    fn code(&self) -> Option<&'static str> {
        match self.status {
            Status::Warning | Status::Failure => codes::code(self.area, &self.check),
            Status::Ok | Status::Skipped => None,
        }
    }

    /// Says what to change.
    pub(super) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice.push(advice.into());
        self
    }

    /// Adds recommendations for several environments.
    pub(super) fn advise_all(mut self, advice: impl IntoIterator<Item = String>) -> Self {
        self.advice.extend(advice);
        self
    }
}

/// All findings, in the order of the checks.
#[derive(Debug, Default)]
pub(super) struct Report {
    findings: Vec<Finding>,
}

impl Report {
    pub(super) fn add(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    pub(super) fn worst(&self) -> Status {
        let all = self.findings.iter().map(|finding| finding.status);
        all.max().unwrap_or_default()
    }

    fn count(&self, status: Status) -> usize {
        let all = self.findings.iter();
        all.filter(|finding| finding.status == status).count()
    }

    pub(super) fn as_json(&self) -> Value {
        let findings = self.findings.iter().map(|finding| {
            json!({
                "area": finding.area,
                "check": finding.check,
                "status": finding.status.word(),
                "code": finding.code(),
                "seen": finding.seen,
                "advice": finding.advice,
            })
        });
        json!({
            "longshore": env!("CARGO_PKG_VERSION"),
            "status": self.worst().word(),
            "ok": self.count(Status::Ok),
            "skipped": self.count(Status::Skipped),
            "warnings": self.count(Status::Warning),
            "failures": self.count(Status::Failure),
            "findings": findings.collect::<Vec<_>>(),
        })
    }

    pub(super) fn as_text(&self) -> String {
        let mut table = wide_table(["", "CHECK", "SEEN"]);
        for finding in &self.findings {
            let mut seen = finding.seen.clone();
            for advice in &finding.advice {
                seen.push_str("\n-> ");
                seen.push_str(advice);
            }
            let check = format!("{}: {}", finding.area, finding.check);
            let status = match finding.code() {
                Some(code) => format!("{} {code}", finding.status.word()),
                None => finding.status.word().to_owned(),
            };
            table.add_row([&*status, &*check, &*seen]);
        }
        format!(
            "{}\n\n{} ok, {} skipped, {}, {}\n",
            table.trim_fmt(),
            self.count(Status::Ok),
            self.count(Status::Skipped),
            counted(self.count(Status::Warning), "warning"),
            counted(self.count(Status::Failure), "failure"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides() {
        let mut report = Report::default();
        assert_eq!(report.worst(), Status::Ok);
        report.add(Check("a", "b").skipped("nobody asked"));
        report.add(Check("a", "c").ok("fine"));
        assert_eq!(report.worst(), Status::Skipped);
        report.add(Check("a", "d").warning("hm\u{1b}[31m").advise("set x = 1"));
        report.add(Check("e", "f").failure("no"));
        assert_eq!(report.worst(), Status::Failure);
        let json = report.as_json();
        assert_eq!(
            (&json["status"], &json["warnings"], &json["failures"]),
            (&json!("failure"), &json!(1), &json!(1))
        );
        assert_eq!(json["findings"][2]["seen"], "hm[31m");
        assert_eq!(json["findings"][2]["advice"], json!(["set x = 1"]));
        let text = report.as_text();
        assert!(text.contains("-> set x = 1"), "{text}");
        assert!(
            text.ends_with("1 ok, 1 skipped, 1 warning, 1 failure\n"),
            "{text}"
        );
    }
}
