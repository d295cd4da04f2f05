//! Examples of prompts: messages with text, images and resources, and arguments with completion.

use super::contents::picture;
use crate::catalog::{CompletionRequest, Completions};
use crate::prompt;
use crate::protocol::{Content, PromptMessage};

/// A prompt without arguments.
#[prompt(title = "Simple prompt")]
pub(super) async fn test_simple_prompt() -> &'static str {
    "This is a simple prompt for testing."
}

/// A prompt that repeats its arguments.
#[prompt(title = "Prompt with arguments")]
pub(super) async fn test_prompt_with_arguments(
    /// The first argument.
    #[arg(complete = nothing)]
    arg1: String,
    /// The second argument.
    arg2: String,
) -> String {
    format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")
}

/// Suggests nothing for any input.
fn nothing(_: &CompletionRequest) -> Completions {
    Completions::new::<String>([])
}

/// A prompt with an embedded resource.
#[prompt(title = "Prompt with a resource")]
pub(super) async fn test_prompt_with_embedded_resource(
    /// URI for the resource.
    #[arg(rename = "resourceUri")]
    resource_uri: String,
) -> Vec<Content> {
    vec![
        Content::embedded_text(
            resource_uri,
            "text/plain",
            "Embedded resource content for testing.",
        ),
        Content::text("Please process the embedded resource above."),
    ]
}

/// A prompt with an image.
#[prompt(title = "Prompt with a picture")]
pub(super) async fn test_prompt_with_image() -> Vec<Content> {
    vec![picture(), Content::text("Please analyze the image above.")]
}

const TEAMS: [(&str, &[&str]); 3] = [
    ("engineering", &["Alice", "Bob", "Charlie"]),
    ("sales", &["David", "Eve", "Frank"]),
    ("support", &["Grace", "Henry", "Iris"]),
];

/// Asks for an introduction of a colleague. The suggested names depend on the team.
#[prompt(title = "Introduce a colleague")]
pub(super) async fn introduce_colleague(
    /// The team.
    #[arg(complete = teams)]
    team: String,
    /// A member of the team.
    #[arg(complete = members)]
    name: String,
) -> Vec<PromptMessage> {
    vec![
        PromptMessage::user(format!("Who is {name} of {team}?")),
        PromptMessage::assistant("A colleague whom you should meet. What would you like to know?"),
        PromptMessage::user("Introduce us in two sentences."),
    ]
}

fn teams(request: &CompletionRequest) -> Completions {
    Completions::matching(&request.value, TEAMS.iter().map(|(team, _)| *team))
}

fn members(request: &CompletionRequest) -> Completions {
    let team = request.arguments.get("team");
    let of_team = TEAMS
        .iter()
        .filter(|(name, _)| team.is_none_or(|team| team == *name));
    Completions::matching(
        &request.value,
        of_team.flat_map(|(_, members)| *members).copied(),
    )
}
