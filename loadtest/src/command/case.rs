//! A workload over one version of HTTP.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

use crate::workload::Workload;

/// Default cases of a comparison.
pub(super) const ALL: &str = "call,call-stateless,list-50,list-500,ping,discover,initialize,echo-64k,call-h2,call-stateless-h2";

/// A workload over one version of HTTP: `call`, or `call-h2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) workload: Workload,
    pub(super) http2: bool,
}

impl FromStr for Case {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let (workload, http2) = match name.strip_suffix("-h2") {
            Some(workload) => (workload, true),
            None => (name, false),
        };
        match Workload::from_str(workload, false) {
            Ok(workload) => Ok(Self { workload, http2 }),
            Err(_) => Err(format!("no such workload; there are {ALL}")),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&format!(
            "{}{}",
            self.workload.name(),
            if self.http2 { "-h2" } else { "" }
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_read_back_from_its_name() {
        for name in ALL.split(',') {
            let case: Case = name.parse().expect(name);
            assert_eq!(case.to_string(), name);
        }
        assert!("call-h3".parse::<Case>().is_err());
        assert!("-h2".parse::<Case>().is_err());
    }
}
