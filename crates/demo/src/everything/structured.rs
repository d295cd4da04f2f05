//! Examples of structured results: content with a schema, of any JSON type, and `_meta`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use crate::catalog::{CallContext, Output, ToolError};
use crate::tool;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unit {
    Celsius,
    Fahrenheit,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct Report {
    /// Temperature in the requested unit.
    temperature: f64,
    unit: Unit,
    /// Sky conditions.
    conditions: String,
    /// Relative humidity in percent.
    #[schemars(range(min = 0, max = 100))]
    humidity: u8,
}

/// Returns the weather of a town in a fictional world: the same town has the same weather every day.
///
/// The result has an output schema, so that programs can rely on it; the model gets the same as text.
#[tool(title = "Weather", read_only, idempotent, open_world = false)]
pub(super) async fn weather(
    /// Name of a town.
    #[schemars(length(min = 1, max = 100))]
    town: String,
    #[arg(default = Unit::Celsius)] unit: Unit,
) -> Report {
    let seed: u32 = town.bytes().map(u32::from).sum();
    let celsius = f64::from(seed % 35) - 3.0;
    let conditions = ["clear", "cloudy", "rain", "fog"][(seed % 4) as usize];
    Report {
        temperature: match unit {
            Unit::Celsius => celsius,
            Unit::Fahrenheit => celsius * 9.0 / 5.0 + 32.0,
        },
        unit,
        conditions: conditions.to_owned(),
        humidity: 30 + (seed % 60) as u8,
    }
}

/// Lists the prime numbers up to a limit.
///
/// The result is an array. Protocol versions before 2026-07-28 support only objects as structured content; their
/// clients get the array as text.
#[tool(title = "Primes", read_only, idempotent, open_world = false)]
pub(super) async fn primes(
    /// The limit, at most 1000.
    #[schemars(range(max = 1000))]
    up_to: u16,
) -> Vec<u16> {
    (2..=up_to)
        .filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0))
        .collect()
}

/// Returns a text with `_meta` that only programs see.
#[tool(title = "Metadata", read_only, idempotent, open_world = false)]
pub(super) async fn metadata() -> Output {
    let mut meta = Map::new();
    meta.insert("com.example/source".to_owned(), json!("made up"));
    meta.insert("com.example/confidence".to_owned(), json!(0.9));
    Output::text("What it cost to find this out is in _meta.").with_meta(meta)
}

/// Returns the server's information about the caller.
#[tool(title = "Who am I", read_only, open_world = false)]
pub(super) async fn who_am_i(context: &CallContext) -> Result<Output, ToolError> {
    Ok(Output::structured(&json!({
        "principal": context.principal().name(),
        "session": context.session_id(),
        "over_http": context.headers().is_some(),
    }))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn primes_are_prime() {
        assert_eq!(primes(30).await, [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert!(primes(1).await.is_empty());
    }

    #[tokio::test]
    async fn a_town_keeps_its_weather() {
        let weather_in = |town: &str| weather(town.to_owned(), Unit::Celsius);
        assert_eq!(weather_in("Bergen").await, weather_in("Bergen").await);
        assert!(weather_in("Bergen").await.humidity <= 100);
    }
}
