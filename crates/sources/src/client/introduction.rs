//! What each request of 2026-07-28 says about the client.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::CLIENT_CAPABILITIES;
use super::listener::Listener;
use crate::protocol::ClientAbility;

/// Abilities on which the declared capabilities depend.
const ABILITIES: [ClientAbility; 5] = [
    ClientAbility::Roots,
    ClientAbility::Sampling,
    ClientAbility::SamplingTools,
    ClientAbility::ElicitationForm,
    ClientAbility::ElicitationUrl,
];
const COMBINATIONS: usize = 1 << ABILITIES.len();

/// Members of each request's `_meta` that describe the client. The capabilities are those of the listener that gets the
/// client requests, as far as the connection has them.
#[derive(Debug, Default)]
pub(super) struct Introduction {
    meta: Map<String, Value>,
    /// JSON object members, for each combination of abilities.
    texts: Box<[OnceLock<Box<str>>; COMBINATIONS]>,
}

impl Introduction {
    pub(super) fn new(meta: Map<String, Value>) -> Self {
        Self {
            meta,
            texts: Box::default(),
        }
    }

    /// Returns the JSON object members for a request with all capabilities of the connection.
    pub(super) fn complete(&self) -> &str {
        self.text(COMBINATIONS - 1)
    }

    /// Returns the JSON object members for a request with this listener.
    pub(super) fn of(&self, listener: Option<&dyn Listener>) -> &str {
        listener.map_or_else(|| self.complete(), |listener| self.text(able(listener)))
    }

    fn text(&self, able: usize) -> &str {
        self.texts[able].get_or_init(|| {
            let mut meta = self.meta.clone();
            if let Some(Value::Object(capabilities)) = meta.get_mut(CLIENT_CAPABILITIES) {
                restrict(capabilities, |ability| has(able, ability));
            }
            let text = Value::Object(meta).to_string();
            text[1..text.len() - 1].into()
        })
    }
}

fn able(listener: &dyn Listener) -> usize {
    let abilities = ABILITIES.into_iter().enumerate();
    abilities.fold(0, |able, (position, ability)| {
        able | (usize::from(listener.can(ability)) << position)
    })
}

fn has(able: usize, ability: ClientAbility) -> bool {
    let position = ABILITIES.iter().position(|known| *known == ability);
    position.is_some_and(|position| able & (1 << position) != 0)
}

/// Removes the capabilities that a client lacks.
pub(super) fn restrict(capabilities: &mut Map<String, Value>, can: impl Fn(ClientAbility) -> bool) {
    if !can(ClientAbility::Roots) {
        capabilities.remove("roots");
    }
    if !can(ClientAbility::Sampling) {
        capabilities.remove("sampling");
    }
    if !can(ClientAbility::SamplingTools)
        && let Some(Value::Object(sampling)) = capabilities.get_mut("sampling")
    {
        sampling.remove("tools");
    }
    let (form, url) = (
        can(ClientAbility::ElicitationForm),
        can(ClientAbility::ElicitationUrl),
    );
    if !form && !url {
        capabilities.remove("elicitation");
    }
    if let Some(Value::Object(modes)) = capabilities.get_mut("elicitation") {
        // An object without modes means forms.
        if !url {
            modes.remove("url");
        }
        if !form {
            modes.remove("form");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Able(&'static [ClientAbility]);

    impl Listener for Able {
        fn can(&self, ability: ClientAbility) -> bool {
            self.0.contains(&ability)
        }
    }

    #[test]
    fn a_request_declares_what_its_caller_can_do() {
        let all = json!({
            "roots": {}, "sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}, "extensions": {"x": {}},
        });
        let mut meta = Map::new();
        meta.insert(CLIENT_CAPABILITIES.to_owned(), all.clone());
        meta.insert("a".to_owned(), json!(1));
        let introduction = Introduction::new(meta);
        let declared = |text: &str| {
            let meta: Value = serde_json::from_str(&format!("{{{text}}}")).expect("members");
            assert_eq!(meta["a"], 1);
            meta[CLIENT_CAPABILITIES].clone()
        };
        let of = |able| declared(introduction.of(Some(&Able(able))));
        assert_eq!(declared(introduction.of(None)), all);
        assert_eq!(declared(introduction.complete()), all);
        assert_eq!(of(&ABILITIES), all);
        let extensions = json!({"x": {}});
        assert_eq!(of(&[]), json!({ "extensions": extensions }));
        let form = &[ClientAbility::ElicitationForm, ClientAbility::Sampling];
        assert_eq!(
            of(form),
            json!({"sampling": {}, "elicitation": {"form": {}}, "extensions": extensions})
        );
        let url = &[ClientAbility::ElicitationUrl, ClientAbility::Roots];
        assert_eq!(
            of(url),
            json!({"roots": {}, "elicitation": {"url": {}}, "extensions": extensions})
        );
    }
}
