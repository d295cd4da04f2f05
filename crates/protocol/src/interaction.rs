//! Requests to clients and their results: sampling and roots.

mod sampling_parts;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{Content, MediaContent, Revision, Role, TextContent};
pub use sampling_parts::{ContextInclusion, ModelPreferences, ToolChoice};

/// A request for a message of the client's model: `sampling/createMessage`.
///
/// ```
/// use longshore::SamplingRequest;
///
/// let request = SamplingRequest::new("What is the capital of France?", 100)
///     .system("Answer in one word.")
///     .temperature(0.2);
/// # let _ = request;
/// ```
///
/// 2026-07-28 calls sampling deprecated; clients that have it still answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SamplingRequest {
    pub messages: Vec<SamplingMessage>,
    pub max_tokens: u32,
    pub members: Map<String, Value>,
    pub tools: Vec<SamplingTool>,
    pub(crate) tool_choice: Option<ToolChoice>,
    pub context: Option<ContextInclusion>,
}

/// A message of the conversation with the client's model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplingMessage {
    /// Sender.
    pub role: Role,
    /// Content. Clients before 2025-11-25 get a message for each block.
    #[serde(serialize_with = "one_or_all", deserialize_with = "one_or_more")]
    pub content: Vec<SamplingContent>,
}

/// A content block of a sampling message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum SamplingContent {
    /// Plain text.
    Text(TextContent),
    /// A picture.
    Image(MediaContent),
    /// A sound; known from 2025-03-26 on.
    Audio(MediaContent),
    /// The model wants a tool to be called; known from 2025-11-25 on.
    ToolUse(ToolUse),
    /// Result of a tool call; since 2025-11-25.
    ToolResult(ToolResult),
}

/// A call that the model wants to be made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolUse {
    /// Id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Its arguments.
    pub input: Map<String, Value>,
    /// `_meta` of the call. It belongs in the further requests of the conversation.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// Result of a tool call that the model requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolResult {
    /// The call's id.
    pub tool_use_id: String,
    /// Content of the result.
    pub content: Vec<Content>,
    /// Structured form of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured_content: Option<Value>,
    /// True if the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// `_meta` of the result.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Map<String, Value>>,
}

/// A tool that the client's model may want to be called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SamplingTool {
    /// Its name.
    pub name: String,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The schema of its arguments, an object's.
    pub input_schema: Value,
}

/// Message of the client's model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct SamplingResult {
    /// Sender: the assistant.
    pub role: Role,
    /// Content.
    #[serde(serialize_with = "one_or_all", deserialize_with = "one_or_more")]
    pub content: Vec<SamplingContent>,
    /// Name of the model.
    pub model: String,
    /// Stop reason: `endTurn`, `stopSequence`, `maxTokens`, `toolUse`, or another word of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

/// A place in which the client works. A hint, and no boundary: the client says what it likes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// URI of the root, with the scheme `file:`.
    pub uri: String,
    /// A name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl SamplingRequest {
    /// Asks for an answer of at most `max_tokens` to what a person would say: a text, or any other content.
    pub fn new(prompt: impl Into<SamplingContent>, max_tokens: u32) -> Self {
        Self::conversation([SamplingMessage::user(prompt)], max_tokens)
    }

    /// Asks for the next message of a conversation.
    pub fn conversation(messages: impl Into<Vec<SamplingMessage>>, max_tokens: u32) -> Self {
        Self {
            messages: messages.into(),
            max_tokens,
            ..Self::default()
        }
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn system(self, prompt: impl Into<String>) -> Self {
        self.member("systemPrompt", prompt.into().into())
    }

    /// Sets the temperature.
    #[must_use]
    pub fn temperature(self, temperature: f64) -> Self {
        self.member("temperature", temperature.into())
    }

    /// Texts at which the model is to stop.
    #[must_use]
    pub fn stop_sequences<S: Into<String>>(self, texts: impl IntoIterator<Item = S>) -> Self {
        let texts: Vec<String> = texts.into_iter().map(Into::into).collect();
        self.member("stopSequences", texts.into())
    }

    /// Sets the model preferences.
    #[must_use]
    pub fn preferences(self, preferences: &ModelPreferences) -> Self {
        self.member("modelPreferences", json!(preferences))
    }

    /// Sets metadata for the model's provider, in its own format.
    #[must_use]
    pub fn metadata(self, metadata: Map<String, Value>) -> Self {
        self.member("metadata", metadata.into())
    }

    /// Sets the context to include. Requires `sampling.context`, except for none.
    #[must_use]
    pub fn include_context(mut self, context: ContextInclusion) -> Self {
        self.context = Some(context);
        self
    }

    /// Adds a tool that the model may want to be called; needs `sampling.tools`.
    #[must_use]
    pub fn tool(mut self, tool: SamplingTool) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets the tool choice. Requires `sampling.tools`.
    #[must_use]
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = Some(choice);
        self
    }

    fn member(mut self, name: &str, value: Value) -> Self {
        self.members.insert(name.to_owned(), value);
        self
    }

    /// Returns true if only clients with `sampling.tools` can get it (SAM-01).
    pub fn needs_tools(&self) -> bool {
        !self.tools.is_empty() || self.tool_choice.is_some() || self.messages.iter().any(has_tools)
    }

    /// Returns true if only clients with `sampling.context` can get it (SAM-01).
    pub fn needs_context(&self) -> bool {
        self.context.is_some_and(|c| c != ContextInclusion::None)
    }

    /// The parameters, as clients of a revision read them.
    ///
    /// # Errors
    ///
    /// What is wrong with the conversation.
    pub fn params(&self, revision: Revision) -> Result<Value, String> {
        check_tool_calls(&self.messages)?;
        let in_one = revision.has_sampling_tools();
        let mut messages = Vec::with_capacity(self.messages.len());
        for message in &self.messages {
            if in_one {
                messages.push(json!(message));
                continue;
            }
            for block in &message.content {
                if !revision.has_annotations() && matches!(block, SamplingContent::Audio(_)) {
                    return Err("the client's protocol version does not support audio".to_owned());
                }
                messages.push(json!({"role": message.role, "content": block}));
            }
        }
        let mut params = Map::new();
        params.insert("messages".to_owned(), messages.into());
        params.extend(self.members.clone());
        if let Some(context) = self.context {
            params.insert("includeContext".to_owned(), context.as_str().into());
        }
        params.insert("maxTokens".to_owned(), self.max_tokens.into());
        if !self.tools.is_empty() {
            params.insert("tools".to_owned(), json!(self.tools));
        }
        if let Some(choice) = self.tool_choice {
            params.insert("toolChoice".to_owned(), json!({"mode": choice.as_str()}));
        }
        Ok(params.into())
    }
}

fn has_tools(message: &SamplingMessage) -> bool {
    message.content.iter().any(|block| {
        matches!(
            block,
            SamplingContent::ToolUse(_) | SamplingContent::ToolResult(_)
        )
    })
}

/// Maximum number of times that the model of one conversation may want tools to be called.
const TOOL_ROUNDS_MAX: usize = 100;

/// SAM-02: what a model wants is answered in the next message, which holds nothing but results. SAM-03: it does not go on
/// forever.
fn check_tool_calls(messages: &[SamplingMessage]) -> Result<(), String> {
    let mut wanted: Vec<&str> = Vec::new();
    let mut rounds = 0;
    for message in messages {
        let blocks = message.content.iter();
        let results = blocks.clone().filter_map(|block| match block {
            SamplingContent::ToolResult(result) => Some(&*result.tool_use_id),
            _ => None,
        });
        let results: Vec<&str> = results.collect();
        if !results.is_empty() && results.len() < message.content.len() {
            return Err("a message with tool results must not contain anything else".to_owned());
        }
        if let Some(id) = wanted.iter().find(|id| !results.contains(id)) {
            return Err(format!("the next message has no result for the call {id}"));
        }
        if let Some(id) = results.iter().find(|id| !wanted.contains(id)) {
            return Err(format!("the result {id} has no call"));
        }
        let calls = blocks.filter_map(|block| match block {
            SamplingContent::ToolUse(call) => Some(&*call.id),
            _ => None,
        });
        wanted = calls.collect();
        rounds += usize::from(!wanted.is_empty());
    }
    if TOOL_ROUNDS_MAX < rounds {
        return Err(format!(
            "the model has wanted tools to be called more than {TOOL_ROUNDS_MAX} times"
        ));
    }
    match wanted.first() {
        Some(id) => Err(format!("there is no result for the call {id}")),
        None => Ok(()),
    }
}

impl SamplingMessage {
    /// Creates a message of the user.
    pub fn user(content: impl Into<SamplingContent>) -> Self {
        Self::of(Role::User, [content.into()])
    }

    /// Creates a message of the model.
    pub fn assistant(content: impl Into<SamplingContent>) -> Self {
        Self::of(Role::Assistant, [content.into()])
    }

    /// Creates a message with the results of tool calls.
    pub fn results(results: impl IntoIterator<Item = ToolResult>) -> Self {
        let content = results.into_iter().map(SamplingContent::ToolResult);
        Self::of(Role::User, content)
    }

    fn of(role: Role, content: impl IntoIterator<Item = SamplingContent>) -> Self {
        Self {
            role,
            content: content.into_iter().collect(),
        }
    }
}

impl From<SamplingResult> for SamplingMessage {
    fn from(result: SamplingResult) -> Self {
        Self {
            role: result.role,
            content: result.content,
        }
    }
}

impl SamplingResult {
    /// All text of the answer.
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|block| match block {
            SamplingContent::Text(text) => Some(&*text.text),
            _ => None,
        });
        texts.collect()
    }

    /// The calls that the model wants to be made.
    pub fn tool_uses(&self) -> impl Iterator<Item = &ToolUse> {
        self.content.iter().filter_map(|block| match block {
            SamplingContent::ToolUse(call) => Some(call),
            _ => None,
        })
    }
}

impl SamplingTool {
    /// A tool of a name, with the schema of its arguments.
    pub fn new(name: impl Into<String>, input_schema: Value) -> Self {
        Self {
            name: name.into(),
            description: None,
            input_schema,
        }
    }

    /// Says what it does.
    #[must_use]
    pub fn description(mut self, description: impl Into<String>) -> Self {
        self.description = Some(description.into());
        self
    }
}

impl ToolResult {
    /// A text that a call gave.
    pub fn text(call: &ToolUse, text: impl Into<String>) -> Self {
        Self {
            tool_use_id: call.id.clone(),
            content: vec![Content::text(text)],
            structured_content: None,
            is_error: None,
            meta: None,
        }
    }
}

impl From<String> for SamplingContent {
    fn from(text: String) -> Self {
        Self::Text(TextContent {
            text,
            ..TextContent::default()
        })
    }
}

impl From<&str> for SamplingContent {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// Serializes one block as an object, several as an array.
fn one_or_all<S: Serializer>(blocks: &[SamplingContent], to: S) -> Result<S::Ok, S::Error> {
    match blocks {
        [one] => one.serialize(to),
        all => all.serialize(to),
    }
}

fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<SamplingContent>, D::Error> {
    let read = match Value::deserialize(from)? {
        Value::Array(blocks) => serde_json::from_value(blocks.into()),
        one => serde_json::from_value(one).map(|one| vec![one]),
    };
    read.map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> SamplingMessage {
        SamplingMessage::assistant(SamplingContent::ToolUse(ToolUse {
            id: id.to_owned(),
            name: "look".to_owned(),
            input: Map::new(),
            meta: None,
        }))
    }

    fn result(id: &str) -> SamplingMessage {
        SamplingMessage::results([ToolResult {
            tool_use_id: id.to_owned(),
            content: Vec::new(),
            structured_content: None,
            is_error: None,
            meta: None,
        }])
    }

    #[test]
    fn a_request_is_written_as_each_revision_reads_it() {
        let mut request = SamplingRequest::new("Which is it?", 100)
            .system("Be brief.")
            .preferences(&ModelPreferences::new().hint("small").speed(2.0));
        request.messages[0].content.push("This, or that?".into());
        assert_eq!(
            request.params(Revision::V2025_11_25).expect("sound"),
            json!({
                "messages": [{"role": "user", "content": [
                    {"type": "text", "text": "Which is it?"}, {"type": "text", "text": "This, or that?"}]}],
                "systemPrompt": "Be brief.",
                "modelPreferences": {"hints": [{"name": "small"}], "speedPriority": 1.0},
                "maxTokens": 100,
            })
        );
        let old = request.params(Revision::V2025_06_18).expect("sound");
        assert_eq!(
            old["messages"],
            json!([
                {"role": "user", "content": {"type": "text", "text": "Which is it?"}},
                {"role": "user", "content": {"type": "text", "text": "This, or that?"}},
            ])
        );
    }

    #[test]
    fn sam_02_each_call_has_its_result_in_the_next_message() {
        let check = |messages: &[SamplingMessage]| check_tool_calls(messages).is_ok();
        let user = || SamplingMessage::user("hello");
        assert!(check(&[user(), call("1"), result("1")]));
        assert!(!check(&[user(), call("1"), user()]));
        assert!(!check(&[user(), call("1")]));
        assert!(!check(&[user(), result("1")]));
        let mut mixed = result("1");
        mixed.content.push("and more".into());
        assert!(!check(&[user(), call("1"), mixed]));
    }

    #[test]
    fn sam_03_a_model_that_always_wants_another_call_is_not_asked_forever() {
        let rounds = |count: usize| {
            let rounds = (0..count).flat_map(|_| [call("1"), result("1")]);
            check_tool_calls(&rounds.collect::<Vec<_>>())
        };
        assert_eq!(rounds(TOOL_ROUNDS_MAX), Ok(()));
        assert!(rounds(TOOL_ROUNDS_MAX + 1).is_err());
    }

    #[test]
    fn a_result_has_one_block_or_several() {
        let one =
            json!({"role": "assistant", "content": {"type": "text", "text": "a"}, "model": "m"});
        let one: SamplingResult = serde_json::from_value(one).expect("a result");
        assert_eq!(one.text(), "a");
        let several = json!({"role": "assistant", "model": "m", "stopReason": "toolUse", "content": [
            {"type": "text", "text": "a"}, {"type": "tool_use", "id": "1", "name": "look", "input": {}}]});
        let several: SamplingResult = serde_json::from_value(several).expect("a result");
        assert_eq!(several.tool_uses().count(), 1);
        let signed = json!({"type": "tool_use", "id": "1", "name": "look", "input": {}, "_meta": {"signature": "s"}});
        let signed = json!({"role": "assistant", "model": "m", "content": signed});
        let wanted: SamplingResult = serde_json::from_value(signed.clone()).expect("a result");
        let results = SamplingMessage::results([ToolResult::text(
            wanted.tool_uses().next().expect("a call"),
            "nothing",
        )]);
        let next = [SamplingMessage::user("?"), wanted.into(), results];
        let next = SamplingRequest::conversation(next, 1).params(Revision::V2025_11_25);
        let returned = &next.expect("sound")["messages"][1]["content"];
        assert_eq!(*returned, signed["content"]);
        let unknown = json!({"role": "assistant", "content": {"type": "smell"}, "model": "m"});
        assert!(serde_json::from_value::<SamplingResult>(unknown).is_err());
    }
}
