//! A chat network for agents: a port of the rmcp server `GrantSparks/rmcp-irc`. See README.md beside it.
//!
//! ```sh
//! cargo run --example ported-irc      # http://127.0.0.1:3000/mcp
//! cargo test --example ported-irc
//! ```

mod network;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longshore::extract::{Caller, Progress};
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
    guests: BTreeMap<String, Guest>,
    last_handle: u64,
}

struct Guest {
    nickname: String,
    /// The id of the caller that has connected it. Handles of others are not known to a caller.
    owner: String,
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
        let guest = Guest {
            nickname: nickname.clone(),
            owner,
        };
        state.guests.insert(agent_id.clone(), guest);
        Ok(Connected { agent_id, nickname })
    }

    /// Disconnects a guest.
    #[tool(destructive)]
    async fn disconnect(&self, #[call] caller: Caller, agent_id: String) -> Result<(), ToolError> {
        let (nickname, mut state) = self.guest(&caller, &agent_id)?;
        state.network.quit(&nickname);
        state.guests.remove(&agent_id);
        Ok(())
    }

    /// Returns a guest's nickname and channels.
    #[tool(read_only)]
    async fn status(&self, #[call] caller: Caller, agent_id: String) -> Result<Status, ToolError> {
        let (nickname, state) = self.guest(&caller, &agent_id)?;
        let channels = state.network.channels_of(&nickname);
        Ok(Status { nickname, channels })
    }

    /// Joins a channel, and returns its topic. Asks for the key if it needs one.
    #[tool(idempotent)]
    async fn join(
        &self,
        context: &CallContext,
        #[call] caller: Caller,
        agent_id: String,
        /// The channel, such as `#tests`.
        channel: String,
        key: Option<String>,
    ) -> Result<Option<Topic>, ToolError> {
        if let Err(rejected) = self.try_join(&caller, &agent_id, &channel, key.as_deref())? {
            let (Rejected::NeedsKey(_), None) = (&rejected, &key) else {
                return Err(rejected.into());
            };
            let asked = context.elicit::<ChannelKey>(format!("Which word opens {channel}?"));
            let Elicited::Accepted(ChannelKey { word }) = asked.await? else {
                return Err(rejected.into());
            };
            self.try_join(&caller, &agent_id, &channel, Some(&word))??;
        }
        let (nickname, mut state) = self.guest(&caller, &agent_id)?;
        Ok(state.network.topic(&nickname, &channel)?)
    }

    /// Leaves a channel.
    #[tool(destructive)]
    async fn part(
        &self,
        #[call] caller: Caller,
        agent_id: String,
        channel: String,
    ) -> Result<(), ToolError> {
        let (nickname, mut state) = self.guest(&caller, &agent_id)?;
        Ok(state.network.part(&nickname, &channel)?)
    }

    /// Sends a message to a channel. Lines are messages of their own.
    #[tool]
    async fn send(
        &self,
        #[call] caller: Caller,
        agent_id: String,
        channel: String,
        text: String,
    ) -> Result<usize, ToolError> {
        let (nickname, mut state) = self.guest(&caller, &agent_id)?;
        for line in text.lines() {
            state.network.send(&nickname, &channel, line)?;
        }
        Ok(text.lines().count())
    }

    /// Returns the last messages of a channel.
    #[tool(read_only)]
    async fn history(
        &self,
        #[call] caller: Caller,
        #[call] progress: Progress,
        agent_id: String,
        channel: String,
        #[arg(default = 50)] limit: usize,
    ) -> Result<Vec<Message>, ToolError> {
        progress.report(1.0, Some(2.0), "reading").await;
        let messages = {
            let (nickname, mut state) = self.guest(&caller, &agent_id)?;
            state.network.history(&nickname, &channel, limit)?
        };
        progress.report(2.0, Some(2.0), "read").await;
        Ok(messages)
    }

    /// Returns the members of a channel.
    #[tool(read_only)]
    async fn names(
        &self,
        #[call] caller: Caller,
        agent_id: String,
        channel: String,
    ) -> Result<Vec<String>, ToolError> {
        let (nickname, mut state) = self.guest(&caller, &agent_id)?;
        Ok(state.network.names(&nickname, &channel)?)
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
        #[call] caller: Caller,
        agent_id: String,
        channel: String,
    ) -> Result<Option<Topic>, ToolError> {
        let (nickname, mut state) = self.guest(&caller, &agent_id)?;
        Ok(state.network.topic(&nickname, &channel)?)
    }

    /// Sets the topic of a channel.
    #[tool(name = "topic.set", idempotent)]
    async fn set_topic(
        &self,
        #[call] caller: Caller,
        agent_id: String,
        channel: String,
        topic: String,
    ) -> Result<(), ToolError> {
        let (nickname, mut state) = self.guest(&caller, &agent_id)?;
        Ok(state.network.set_topic(&nickname, &channel, topic)?)
    }

    /// Changes a guest's nickname.
    #[tool(name = "nick.set", idempotent)]
    async fn set_nickname(
        &self,
        #[call] caller: Caller,
        agent_id: String,
        nickname: String,
    ) -> Result<(), ToolError> {
        let (old, mut state) = self.guest(&caller, &agent_id)?;
        state.network.rename(&old, &nickname)?;
        if let Some(guest) = state.guests.get_mut(&agent_id) {
            guest.nickname = nickname;
        }
        Ok(())
    }

    /// Marks a guest as away, or as back if there is no reason.
    #[tool(name = "away.set", idempotent)]
    async fn set_away(
        &self,
        #[call] caller: Caller,
        agent_id: String,
        reason: Option<String>,
    ) -> Result<(), ToolError> {
        let (nickname, mut state) = self.guest(&caller, &agent_id)?;
        state.network.set_away(&nickname, reason);
        Ok(())
    }

    /// Removes a member from a channel. Operators alone may do that.
    #[tool(destructive)]
    async fn kick(
        &self,
        #[call] caller: Caller,
        agent_id: String,
        channel: String,
        nickname: String,
    ) -> Result<(), ToolError> {
        let (own, mut state) = self.guest(&caller, &agent_id)?;
        Ok(state.network.kick(&own, &channel, &nickname)?)
    }

    /// Invites a nickname to a channel; it needs no key then.
    #[tool]
    async fn invite(
        &self,
        #[call] caller: Caller,
        agent_id: String,
        channel: String,
        nickname: String,
    ) -> Result<(), ToolError> {
        let (own, mut state) = self.guest(&caller, &agent_id)?;
        Ok(state.network.invite(&own, &channel, &nickname)?)
    }

    /// The topic of a channel.
    #[resource(uri = "irc://agents/{agent_id}/channels/{channel}/topic")]
    async fn topic_of(
        &self,
        #[call] caller: Caller,
        agent_id: String,
        #[arg(complete = self.channels(caller))] channel: String,
    ) -> Result<Option<String>, ResourceError> {
        let found = self.topic(caller, agent_id, channel).await;
        let topic = found.map_err(|_| ResourceError::not_found())?;
        Ok(topic.map(|topic| topic.text))
    }

    /// Suggests the channels of the guest that is named.
    async fn channels(&self, caller: Caller, request: CompletionRequest) -> Completions {
        let agent_id = request.arguments.get("agent_id").unwrap_or_default();
        match self.guest(&caller, agent_id) {
            Ok((nickname, state)) => {
                Completions::matching(&request.value, state.network.channels_of(&nickname))
            }
            Err(_) => Completions::default(),
        }
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

    /// The nickname of a caller's guest, and the state that it is in.
    fn guest(
        &self,
        caller: &Caller,
        agent_id: &str,
    ) -> Result<(String, MutexGuard<'_, State>), ToolError> {
        let state = self.state();
        match state
            .guests
            .get(agent_id)
            .filter(|guest| guest.owner == caller.id())
        {
            Some(guest) => Ok((guest.nickname.clone(), state)),
            None => Err(ToolError::new(format!(
                "there is no agent {agent_id}; call irc.connect"
            ))),
        }
    }

    fn try_join(
        &self,
        caller: &Caller,
        agent_id: &str,
        channel: &str,
        key: Option<&str>,
    ) -> Result<Result<(), Rejected>, ToolError> {
        let (nickname, mut state) = self.guest(caller, agent_id)?;
        Ok(state.network.join(&nickname, channel, key))
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
