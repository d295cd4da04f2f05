//! Resources, a template with completion, and a prompt.
//!
//! ```sh
//! cargo run --example resources
//! cargo test --example resources
//! ```

use longshore::{App, CompletionRequest, Completions, PromptMessage, prompt, resource};
use serde::Serialize;

const CITIES: [(&str, f64, f64); 3] = [
    ("Bergen", 60.39, 5.32),
    ("Berlin", 52.52, 13.41),
    ("Lisbon", 38.72, -9.14),
];

/// The city guide.
#[resource(uri = "guide://about", mime_type = "text/markdown", ttl = "1h")]
async fn about() -> &'static str {
    "# City guide\n\nRead `guide://city/{name}` for the facts about a city.\n"
}

#[derive(Serialize)]
struct City {
    name: &'static str,
    latitude: f64,
    longitude: f64,
}

/// Facts about a city. `None` is the error "resource not found".
#[resource(uri = "guide://city/{name}", mime_type = "application/json")]
async fn city_facts(#[arg(complete = cities)] name: String) -> Option<City> {
    let found = CITIES.into_iter().find(|(known, ..)| *known == name);
    found.map(|(name, latitude, longitude)| City {
        name,
        latitude,
        longitude,
    })
}

/// Plans a weekend in a city.
#[prompt(title = "Weekend")]
async fn weekend(
    /// The city.
    #[arg(complete = cities)]
    city: String,
    /// Number of days.
    #[arg(default = 2)]
    days: u8,
) -> Vec<PromptMessage> {
    let request = format!("Plan {days} days in {city}. Read guide://city/{city} first.");
    vec![PromptMessage::user(request)]
}

/// Suggests values while the user types.
fn cities(request: &CompletionRequest) -> Completions {
    Completions::matching(&request.value, CITIES.map(|(name, ..)| name))
}

fn app() -> App {
    App::new()
        .name("city-guide", "1.0.0")
        .resource(about)
        .resource(city_facts)
        .prompt(weekend)
}

fn main() -> longshore::Result {
    app().run()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn resources_are_read_and_prompts_are_filled_in() -> longshore::Result {
        let server = app().harness()?;
        let read = server.read("guide://city/Bergen").await?;
        let text = read["contents"][0]["text"].as_str().unwrap_or_default();
        assert!(text.contains("60.39"), "{read}");
        assert!(server.read("guide://city/Atlantis").await.is_err());
        let prompt = server
            .get_prompt("weekend", json!({"city": "Lisbon"}))
            .await?;
        let text = prompt["messages"][0]["content"]["text"].as_str();
        assert!(text.is_some_and(|text| text.starts_with("Plan 2 days in Lisbon")));
        Ok(())
    }

    #[tokio::test]
    async fn names_are_completed() -> longshore::Result {
        let argument = json!({"name": "name", "value": "Ber"});
        let params = json!({
            "ref": {"type": "ref/resource", "uri": "guide://city/{name}"}, "argument": argument,
        });
        let completed = app()
            .harness()?
            .request("completion/complete", params)
            .await?;
        assert_eq!(
            completed["completion"]["values"],
            json!(["Bergen", "Berlin"])
        );
        Ok(())
    }
}
