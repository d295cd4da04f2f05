//! Every setting's value, and who gave it.

use serde::Serialize;
use serde_json::{Map, Value};

use super::load::Loaded;
use super::schema::{self, Reload};
use super::tree::Origin;

/// One setting as it is in effect.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Effective {
    /// Its path, such as `http.port`.
    pub setting: String,
    /// What it is; secrets are masked.
    pub value: Value,
    /// Who said so, in words.
    pub from: String,
    /// When a change takes effect.
    pub reload: Reload,
    /// The same as `from`, taken apart.
    #[serde(skip)]
    pub origin: Origin,
}

impl Loaded {
    /// Every setting with its value and where that comes from, in the order of the reference.
    pub fn explain(&self) -> Vec<Effective> {
        let mut effective = Vec::new();
        let values = serde_json::to_value(&self.config).unwrap_or_default();
        if let Value::Object(values) = &values {
            self.collect(values, &mut Vec::new(), &mut effective);
        }
        effective
    }

    /// Who gave a setting its value.
    pub fn origin(&self, setting: &str) -> Origin {
        self.origin_at(&super::tree::parts(setting))
    }

    fn origin_at(&self, path: &[String]) -> Origin {
        match self.tree.get(path) {
            Some(node) => node.origin.clone(),
            None => Origin::Default,
        }
    }

    fn collect(
        &self,
        values: &Map<String, Value>,
        path: &mut Vec<String>,
        effective: &mut Vec<Effective>,
    ) {
        for (name, value) in values {
            path.push(name.clone());
            match value {
                Value::Object(inner) if !inner.is_empty() => self.collect(inner, path, effective),
                value => {
                    let origin = self.origin_at(path);
                    let reload = schema::setting(path).map(|setting| setting.reload);
                    effective.push(Effective {
                        setting: path.join("."),
                        value: value.clone(),
                        from: origin.describe(self.file.as_deref()),
                        reload: reload.unwrap_or_default(),
                        origin,
                    });
                }
            }
            path.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Flags;
    use crate::environment::Probe;

    #[test]
    fn every_setting_is_there_with_its_origin_and_no_secret() {
        let probe = Probe::of([
            ("LONGSHORE_HTTP__LIMITS__BODY_BYTES", "1000"),
            (
                "LONGSHORE_SEAL__KEYS",
                "swordfish swordfish swordfish swordfish",
            ),
            ("PORT", "80"),
        ]);
        let flags = Flags {
            workers: Some(3),
            ..Flags::default()
        };
        let explained = Loaded::read(&flags, &probe).expect("valid").explain();
        let shown = serde_json::to_string(&explained).expect("serialises");
        assert!(!shown.contains("swordfish"), "{shown}");
        for (setting, value, from) in [
            ("http.port", "80", "PORT"),
            ("http.workers", "3", "--workers"),
            (
                "http.limits.body_bytes",
                "1000",
                "LONGSHORE_HTTP__LIMITS__BODY_BYTES",
            ),
            ("seal.keys", r#"["[secret]"]"#, "LONGSHORE_SEAL__KEYS"),
            ("stdio.framing", r#""auto""#, "default"),
        ] {
            let found = explained.iter().find(|one| one.setting == setting);
            let found = found.unwrap_or_else(|| panic!("{setting} is missing"));
            assert_eq!(
                (&*found.value.to_string(), &*found.from),
                (value, from),
                "{setting}"
            );
        }
        for setting in schema::settings().filter(|setting| !setting.path.contains(['[', '<'])) {
            assert!(
                explained.iter().any(|one| one.setting == setting.path
                    || one.setting.starts_with(&format!("{}.", setting.path))),
                "{}",
                setting.path
            );
        }
    }
}
