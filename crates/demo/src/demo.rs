//! Demo toolset: small tools, resources and prompts, written as an application would write them.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::demo_verbs::{
    Person, Tense, base_form, conjugate as conjugated, principal_parts, well_known,
};
use crate::Toolset;
use crate::catalog::{
    CallContext, CompletionRequest, Completions, IntoPrompt as _, IntoResource as _, IntoTool as _,
    ToolError,
};
use crate::protocol::PromptMessage;
use crate::tool;
use crate::{prompt, resource};

pub fn toolset() -> Toolset {
    Toolset {
        tools: vec![
            echo.into_tool(),
            calculate.into_tool(),
            current_time.into_tool(),
            text_statistics.into_tool(),
            conjugate.into_tool(),
            wait.into_tool(),
            fail.into_tool(),
        ],
        resources: vec![about.into_resource(), verb_forms.into_resource()],
        prompts: vec![practise_verb.into_prompt(), proofread.into_prompt()],
        ..Toolset::default()
    }
}

/// Returns the message it was given.
#[tool(title = "Echo", read_only, idempotent, open_world = false)]
async fn echo(
    /// What to return.
    message: String,
) -> String {
    message
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Calculation {
    /// The result.
    result: f64,
}

/// Does one step of arithmetic with two numbers.
#[tool(title = "Calculator", read_only, idempotent, open_world = false)]
async fn calculate(
    operation: Operation,
    /// The number on the left.
    a: f64,
    /// The number on the right.
    b: f64,
) -> Result<Calculation, ToolError> {
    let result = match operation {
        Operation::Add => a + b,
        Operation::Subtract => a - b,
        Operation::Multiply => a * b,
        Operation::Divide if b == 0.0 => return Err(ToolError::new("cannot divide by zero")),
        Operation::Divide => a / b,
    };
    if !result.is_finite() {
        return Err(ToolError::new("the result is too large to be a number"));
    }
    Ok(Calculation { result })
}

#[derive(Debug, Serialize, JsonSchema)]
struct Clock {
    /// Date and time in the zone, for example 2026-07-28T12:00:00+02:00.
    time: String,
    /// The zone, as the time zone database writes it.
    zone: String,
    /// Day of the week, in English.
    weekday: String,
}

/// Tells the current time in a time zone.
#[tool(title = "Time", read_only, open_world = false)]
async fn current_time(
    /// Name of the zone, for example Europe/Berlin.
    #[arg(default = "UTC")]
    zone: String,
) -> Result<Clock, ToolError> {
    let known = TimeZone::get(&zone).map_err(|e| {
        ToolError::new(format!(
            "unknown time zone {zone:?}; names look like Asia/Tokyo"
        ))
        .caused_by(e)
    })?;
    let now = Timestamp::now().to_zoned(known);
    Ok(Clock {
        time: now.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        weekday: now.strftime("%A").to_string(),
        zone,
    })
}

#[derive(Debug, Serialize, JsonSchema)]
struct Statistics {
    /// Unicode characters.
    characters: usize,
    /// Runs of anything but white space.
    words: usize,
    lines: usize,
    /// Size in UTF-8.
    bytes: usize,
    /// The longest word, the first one if there are several.
    longest_word: Option<String>,
}

/// Counts the characters, words and lines of a text.
#[tool(title = "Text statistics", read_only, idempotent, open_world = false)]
async fn text_statistics(
    /// The text to look at.
    text: String,
) -> Statistics {
    // `max_by_key` returns the last of several maxima.
    let words = text.split_whitespace().rev();
    let longest = words.max_by_key(|word| word.chars().count());
    Statistics {
        characters: text.chars().count(),
        words: text.split_whitespace().count(),
        lines: text.lines().count(),
        bytes: text.len(),
        longest_word: longest.map(str::to_owned),
    }
}

/// Conjugates an English verb, regular or one of the common irregular ones.
#[tool(title = "Verb conjugator", read_only, idempotent, open_world = false)]
async fn conjugate(
    /// The verb's base form, for example "walk" or "go".
    verb: String,
    tense: Tense,
    #[arg(default = Person::ThirdSingular)] person: Person,
) -> Result<String, ToolError> {
    conjugated(&verb, tense, person).ok_or_else(|| {
        ToolError::new(format!(
            "{verb:?} is not the base form of an English verb: one word, letters only"
        ))
    })
}

/// Waits for some time, then says how long it was. Shows what slow tools look like.
#[tool(
    title = "Wait",
    read_only,
    idempotent,
    open_world = false,
    timeout = "70s"
)]
async fn wait(
    /// How many seconds to wait, from 0 to 60.
    #[arg(default = 1.0)]
    seconds: f64,
    context: &CallContext,
) -> Result<String, ToolError> {
    if !(0.0..=60.0).contains(&seconds) {
        return Err(ToolError::new("seconds must be between 0 and 60"));
    }
    context.progress(0.0, Some(seconds), "waiting").await;
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
    context.progress(seconds, Some(seconds), "done").await;
    Ok(format!("waited for {seconds} s"))
}

/// Fails, to show what a failure looks like.
#[tool(title = "Fail", read_only, idempotent, open_world = false)]
async fn fail(
    /// What the failure should say.
    #[arg(default = "this tool always fails")]
    reason: String,
) -> Result<String, ToolError> {
    Err(ToolError::new(reason))
}

/// What this server is.
#[resource(
    uri = "longshore://about",
    title = "About this server",
    mime_type = "text/markdown",
    ttl = "1h",
    cache_scope = "public"
)]
async fn about() -> String {
    format!(
        "# Longshore {}\n\n\
         A server runtime for the Model Context Protocol. What it serves here is its demo: tools that echo, \
         calculate, tell the time, count words and conjugate English verbs, two that wait and fail, the forms of \
         verbs to read at `verb://{{verb}}`, and two prompts. Nothing of it reaches outside or remembers anything.\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[derive(Debug, Serialize)]
struct Forms {
    base: String,
    past: String,
    past_participle: String,
    present_participle: String,
}

/// The forms of an English verb, regular or one of the common irregular ones.
#[resource(
    uri = "verb://{verb}",
    title = "Forms of a verb",
    mime_type = "application/json",
    ttl = "1h",
    cache_scope = "public"
)]
async fn verb_forms(#[arg(complete = verbs)] verb: String) -> Option<Forms> {
    let base = base_form(&verb)?;
    let [past, past_participle, present_participle] = principal_parts(&base);
    Some(Forms {
        base,
        past,
        past_participle,
        present_participle,
    })
}

/// Asks for exercises with an English verb.
#[prompt(title = "Practise a verb")]
async fn practise_verb(
    /// The verb's base form, for example "go".
    #[arg(complete = verbs)]
    verb: String,
    /// How many exercises there should be.
    #[arg(default = 5)]
    exercises: u8,
) -> Vec<PromptMessage> {
    vec![
        PromptMessage::user(format!(
            "I want to practise the English verb \"{verb}\". Set me {exercises} short exercises, one at a time: a \
             sentence with a gap where a form of the verb belongs. Correct my solutions before you go on."
        )),
        PromptMessage::assistant(format!("Gladly. Here is the first one with \"{verb}\".")),
    ]
}

/// Asks for a text to be corrected.
#[prompt(title = "Proofread")]
async fn proofread(
    /// The text.
    text: String,
    /// How far the corrections should go: "spelling", "grammar" or "style".
    #[arg(default = "grammar", complete = depths)]
    depth: String,
) -> String {
    format!("Correct the {depth} of this text, and list what you changed:\n\n{text}")
}

fn verbs(request: &CompletionRequest) -> Completions {
    Completions::matching(&request.value, well_known())
}

fn depths(request: &CompletionRequest) -> Completions {
    Completions::matching(&request.value, ["spelling", "grammar", "style"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tools_do_what_they_say() {
        assert_eq!(echo("hi".to_owned()).await, "hi");
        let six = calculate(Operation::Multiply, 2.0, 3.0)
            .await
            .expect("a number");
        assert_eq!(six.result, 6.0);
        assert!(calculate(Operation::Divide, 1.0, 0.0).await.is_err());
        assert!(calculate(Operation::Multiply, 1e300, 1e300).await.is_err());
        let clock = current_time("Asia/Tokyo".to_owned()).await.expect("a zone");
        assert!(clock.time.ends_with("+09:00"), "{}", clock.time);
        assert!(current_time("Nowhere/City".to_owned()).await.is_err());
        assert_eq!(
            fail("no".to_owned()).await.expect_err("fails").message(),
            "no"
        );
    }

    #[tokio::test]
    async fn verbs_are_read_with_their_forms() {
        let forms = verb_forms("Go".to_owned()).await.expect("a verb");
        assert_eq!(
            [
                &*forms.base,
                &*forms.past,
                &*forms.past_participle,
                &*forms.present_participle
            ],
            ["go", "went", "gone", "going"]
        );
        assert!(verb_forms("two words".to_owned()).await.is_none());
    }

    #[tokio::test]
    async fn statistics_count_characters_not_bytes() {
        let found = text_statistics("a caf\u{e9}\nau lait".to_owned()).await;
        let counts = (found.characters, found.words, found.lines, found.bytes);
        assert_eq!(counts, (14, 4, 2, 15));
        assert_eq!(found.longest_word.as_deref(), Some("caf\u{e9}"));
        assert_eq!(text_statistics(String::new()).await.longest_word, None);
        let found = text_statistics("a bc de f".to_owned()).await;
        assert_eq!(found.longest_word.as_deref(), Some("bc"));
    }

    #[tokio::test]
    async fn a_long_word_is_counted_once() {
        const LETTERS: usize = 3_000_000;
        let begun = std::time::Instant::now();
        let text = format!("{}{}", "a".repeat(LETTERS), " b".repeat(LETTERS));
        let found = text_statistics(text).await;
        assert_eq!(found.longest_word.map(|word| word.len()), Some(LETTERS));
        // Counting its letters for each other word takes minutes.
        assert!(begun.elapsed().as_secs() < 30, "{:?}", begun.elapsed());
    }
}
