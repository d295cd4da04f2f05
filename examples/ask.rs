//! A tool that asks its user and their model. One function serves clients of every protocol version.
//!
//! ```sh
//! cargo run --example ask
//! ```

use longshore::{
    App, CallContext, ClientAbility, Elicited, JsonSchema, SamplingRequest, ToolError, tool,
};
use serde::{Deserialize, Serialize};

/// The form that a person fills in. Doc comments become the descriptions of its fields.
#[derive(Deserialize, JsonSchema)]
struct Trip {
    /// Where to?
    #[schemars(length(min = 1, max = 80))]
    town: String,
    /// For how many days?
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 30))]
    days: u8,
    /// How do you like to travel?
    by: Vec<Means>,
}

#[derive(Serialize, Deserialize, JsonSchema, Debug)]
#[serde(rename_all = "lowercase")]
enum Means {
    #[schemars(title = "By train")]
    Train,
    #[schemars(title = "By ship")]
    Ship,
}

#[derive(Deserialize, JsonSchema)]
struct Consent {
    /// Shall it be booked?
    book: bool,
}

fn three() -> u8 {
    3
}

/// Plans a trip, and books it.
#[tool]
async fn plan_trip(context: &CallContext) -> Result<String, ToolError> {
    let trip = match context
        .elicit::<Trip>("What trip do you have in mind?")
        .await?
    {
        Elicited::Accepted(trip) => trip,
        Elicited::Declined | Elicited::Cancelled => return Ok("Perhaps another time.".to_owned()),
    };

    // A seat is held once, although clients of 2026-07-28 make this function run again after the next question.
    let seat = context.step("hold a seat", hold(&trip)).await?;

    // Not every client has a model to offer.
    let praise = if context.client_can(ClientAbility::Sampling) {
        let prompt = format!("In one sentence, why is {} worth a visit?", trip.town);
        context
            .sample(&SamplingRequest::new(prompt, 100))
            .await?
            .text()
    } else {
        String::new()
    };

    let question = format!("{praise} {} days in {}, seat {seat}.", trip.days, trip.town);
    match context.elicit::<Consent>(question).await?.accepted() {
        Some(Consent { book: true }) => Ok(format!("Seat {seat} to {} is yours.", trip.town)),
        _ => Ok(format!("Seat {seat} was let go.")),
    }
}

/// Simulates a call of a booking system.
async fn hold(trip: &Trip) -> Result<u32, ToolError> {
    if trip.by.is_empty() {
        return Err(ToolError::new("there is no way to travel that is left"));
    }
    Ok(10 + u32::from(trip.days))
}

fn main() -> longshore::Result {
    App::new().tool(plan_trip).run()
}
