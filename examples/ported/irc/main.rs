//! A chat network for agents: a port of the rmcp server `GrantSparks/rmcp-irc`. See README.md beside it.
//!
//! ```sh
//! cargo run --example ported-irc      # http://127.0.0.1:3000/mcp
//! cargo test --example ported-irc
//! ```

mod network;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longshore::extract::{Caller, FromArgument, FromCall, Progress, Rejection, RequiredState};
use longshore::{
    App, CallContext, CompletionRequest, Completions, Elicited, JsonSchema, ResourceError,
    ToolError, tools,
};
use network::{ListedChannel, Message, Network, Rejected, Topic, Whois};
use serde::{Deserialize, Serialize};

/// The guests that callers have connected, and the network that they are on.
#[derive(Default)]
struct Irc(Mutex<State>);

#[derive(Default)]
struct State {
    network: Network,
    /// Guests by their handles.
    guests: BTreeMap<String, Connection>,
    last_handle: u64,
}

struct Connection {
    nickname: String,
    /// The id of the caller that has connected the guest.
    owner: String,
}

/// A guest of the caller. Handles of other callers are not known to it.
struct Guest {
    handle: String,
    nickname: String,
}

impl FromArgument for Guest {
    /// The handle.
    type Argument = String;

    fn requires(state: &mut RequiredState<'_>) {
        state.needs::<Irc>();
    }

    async fn from_argument(handle: String, context: &Arc<CallContext>) -> Result<Self, Rejection> {
        let caller = Caller::from_call(context).await?;
        let irc = context.state::<Irc>()?;
        let nickname = irc.nickname(&caller, &handle).ok_or_else(|| {
            Rejection::new(format!("there is no agent {handle}; call irc.connect"))
        })?;
        Ok(Self { handle, nickname })
    }
}

#[derive(Serialize, JsonSchema)]
struct Connected {
    /// The handle that all other tools want.
    agent_id: String,
    nickname: String,
}

#[derive(Serialize, JsonSchema)]
struct Status {
    nickname: String,
    channels: Vec<String>,
}

/// The key of a channel, asked for when it is missing.
#[derive(Deserialize, JsonSchema)]
struct ChannelKey {
    /// The word that opens the channel.
    word: String,
}

#[tools(prefix = "irc.")]
impl Irc {
    /// Connects a guest, and returns its handle.
    #[tool]
    async fn connect(
        &self,
        #[call] caller: Caller,
        /// The nickname: letters, digits, - and _.
        nickname: String,
    ) -> Result<Connected, ToolError> {
        let mut state = self.state();
        state.network.register(&nickname)?;
        state.last_handle += 1;
        let agent_id = format!("agent-{}", state.last_handle);
        let owner = caller.id().to_owned();
        let connection = Connection {
            nickname: nickname.clone(),
            owner,
        };
        state.guests.insert(agent_id.clone(), connection);
        Ok(Connected { agent_id, nickname })
    }

    /// Disconnects a guest.
    #[tool(destructive)]
    async fn disconnect(
        &self,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
    ) -> Result<(), ToolError> {
        let mut state = self.state();
        state.network.quit(&guest.nickname);
        state.guests.remove(&guest.handle);
        Ok(())
    }

    /// Returns a guest's nickname and channels.
    #[tool(read_only)]
    async fn status(
        &self,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
    ) -> Result<Status, ToolError> {
        let state = self.state();
        Ok(Status {
            channels: state.network.channels_of(&guest.nickname),
            nickname: guest.nickname,
        })
    }

    /// Joins a channel, and returns its topic. Asks for the key if it needs one.
    #[tool(idempotent)]
    async fn join(
        &self,
        context: &CallContext,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
        /// The channel, such as `#tests`.
        channel: String,
        key: Option<String>,
    ) -> Result<Option<Topic>, ToolError> {
        let join = |key| self.state().network.join(&guest.nickname, &channel, key);
        if let Err(rejected) = join(key.as_deref()) {
            let (Rejected::NeedsKey(_), None) = (&rejected, &key) else {
                return Err(rejected.into());
            };
            let asked = context.elicit::<ChannelKey>(format!("Which word opens {channel}?"));
            let Elicited::Accepted(ChannelKey { word }) = asked.await? else {
                return Err(rejected.into());
            };
            join(Some(&word))?;
        }
        let mut state = self.state();
        Ok(state.network.topic(&guest.nickname, &channel)?)
    }

    /// Leaves a channel.
    #[tool(destructive)]
    async fn part(
        &self,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
        channel: String,
    ) -> Result<(), ToolError> {
        let mut state = self.state();
        Ok(state.network.part(&guest.nickname, &channel)?)
    }

    /// Sends a message to a channel. Lines are messages of their own.
    #[tool]
    async fn send(
        &self,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
        channel: String,
        text: String,
    ) -> Result<usize, ToolError> {
        let mut state = self.state();
        for line in text.lines() {
            state.network.send(&guest.nickname, &channel, line)?;
        }
        Ok(text.lines().count())
    }

    /// Returns the last messages of a channel.
    #[tool(read_only)]
    async fn history(
        &self,
        #[call] progress: Progress,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
        channel: String,
        #[arg(default = 50)] limit: usize,
    ) -> Result<Vec<Message>, ToolError> {
        progress.report(1.0, Some(2.0), "reading").await;
        let messages = {
            let mut state = self.state();
            state.network.history(&guest.nickname, &channel, limit)?
        };
        progress.report(2.0, Some(2.0), "read").await;
        Ok(messages)
    }

    /// Returns the members of a channel.
    #[tool(read_only)]
    async fn names(
        &self,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
        channel: String,
    ) -> Result<Vec<String>, ToolError> {
        let mut state = self.state();
        Ok(state.network.names(&guest.nickname, &channel)?)
    }

    /// Returns the channels without a key.
    #[tool(read_only)]
    async fn list(&self) -> Vec<ListedChannel> {
        self.state().network.list()
    }

    /// Returns the channels of a nickname, and its away message.
    #[tool(read_only)]
    async fn whois(&self, nickname: String) -> Result<Whois, ToolError> {
        Ok(self.state().network.whois(&nickname)?)
    }

    /// Returns the topic of a channel.
    #[tool(name = "topic.get", read_only)]
    async fn topic(
        &self,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
        channel: String,
    ) -> Result<Option<Topic>, ToolError> {
        let mut state = self.state();
        Ok(state.network.topic(&guest.nickname, &channel)?)
    }

    /// Sets the topic of a channel.
    #[tool(name = "topic.set", idempotent)]
    async fn set_topic(
        &self,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
        channel: String,
        topic: String,
    ) -> Result<(), ToolError> {
        let mut state = self.state();
        Ok(state.network.set_topic(&guest.nickname, &channel, topic)?)
    }

    /// Changes a guest's nickname.
    #[tool(name = "nick.set", idempotent)]
    async fn set_nickname(
        &self,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
        nickname: String,
    ) -> Result<(), ToolError> {
        let mut state = self.state();
        state.network.rename(&guest.nickname, &nickname)?;
        if let Some(connection) = state.guests.get_mut(&guest.handle) {
            connection.nickname = nickname;
        }
        Ok(())
    }

    /// Marks a guest as away, or as back if there is no reason.
    #[tool(name = "away.set", idempotent)]
    async fn set_away(
        &self,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
        reason: Option<String>,
    ) -> Result<(), ToolError> {
        let mut state = self.state();
        state.network.set_away(&guest.nickname, reason);
        Ok(())
    }

    /// Removes a member from a channel. Operators alone may do that.
    #[tool(destructive)]
    async fn kick(
        &self,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
        channel: String,
        nickname: String,
    ) -> Result<(), ToolError> {
        let mut state = self.state();
        Ok(state.network.kick(&guest.nickname, &channel, &nickname)?)
    }

    /// Invites a nickname to a channel; it needs no key then.
    #[tool]
    async fn invite(
        &self,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
        channel: String,
        nickname: String,
    ) -> Result<(), ToolError> {
        let mut state = self.state();
        Ok(state.network.invite(&guest.nickname, &channel, &nickname)?)
    }

    /// The topic of a channel.
    #[resource(uri = "irc://agents/{agent_id}/channels/{channel}/topic")]
    async fn topic_of(
        &self,
        #[arg(resolve, rename = "agent_id")] guest: Guest,
        #[arg(complete = self.channels(guest))] channel: String,
    ) -> Result<Option<String>, ResourceError> {
        let found = self.topic(guest, channel).await;
        let topic = found.map_err(|_| ResourceError::not_found())?;
        Ok(topic.map(|topic| topic.text))
    }

    /// Suggests the channels of the guest.
    async fn channels(&self, guest: Guest, request: CompletionRequest) -> Completions {
        let channels = self.state().network.channels_of(&guest.nickname);
        Completions::matching(&request.value, channels)
    }

    /// Joins a channel and reads it before anything is said.
    #[prompt(name = "irc-join")]
    async fn join_prompt(
        &self,
        /// The handle of the guest.
        agent_id: String,
        channel: String,
    ) -> String {
        format!(
            "As the IRC agent {agent_id}, call `irc.join` for {channel}. Take the topic as the channel's \
             instructions. Read `irc.history` and `irc.names` before you say what you are about to do."
        )
    }

    /// Sums up a channel and drafts a response.
    #[prompt(name = "irc-summarize-respond")]
    async fn summarize_prompt(
        &self,
        agent_id: String,
        channel: String,
        /// The goal of the response.
        objective: Option<String>,
    ) -> String {
        let objective = objective.unwrap_or("answer the most important open question".to_owned());
        format!(
            "As the IRC agent {agent_id}, read `irc.history` of {channel}. Sum up who takes part, what was \
             decided and what is open. Then {objective}, and show the draft before `irc.send`."
        )
    }
}

impl Irc {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nickname of a caller's guest.
    fn nickname(&self, caller: &Caller, handle: &str) -> Option<String> {
        let state = self.state();
        let connection = state.guests.get(handle)?;
        (connection.owner == caller.id()).then(|| connection.nickname.clone())
    }
}

fn app() -> App {
    App::new().name("irc", "1.0.0").toolset(Irc::default())
}

fn main() -> longshore::Result {
    app().run()
}

#[cfg(test)]
mod tests;
