//! A chat network in memory: channels with topics, keys, members and messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use longshore::JsonSchema;
use serde::Serialize;

/// Messages that a channel keeps.
const HISTORY_MAX: usize = 1000;

#[derive(Default)]
pub(crate) struct Network {
    users: BTreeMap<String, User>,
    channels: BTreeMap<String, Channel>,
}

#[derive(Default)]
struct User {
    away: Option<String>,
}

#[derive(Default)]
struct Channel {
    topic: Option<Topic>,
    key: Option<String>,
    /// The operator is the one who has opened the channel.
    operator: String,
    members: BTreeSet<String>,
    invited: BTreeSet<String>,
    messages: VecDeque<Message>,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Topic {
    pub(crate) text: String,
    pub(crate) set_by: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Message {
    /// Seconds of Unix time.
    pub(crate) time: u64,
    pub(crate) from: String,
    pub(crate) text: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListedChannel {
    pub(crate) channel: String,
    pub(crate) members: usize,
    pub(crate) topic: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Whois {
    pub(crate) nickname: String,
    pub(crate) channels: Vec<String>,
    pub(crate) away: Option<String>,
}

/// The reason for which the network rejects a command.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Rejected {
    #[error("the nickname {0} is in use")]
    NicknameInUse(String),
    #[error("{0} is not a valid {1}: use 1 to 32 letters, digits, - and _{2}")]
    Malformed(String, &'static str, &'static str),
    #[error("there is no {0}")]
    Unknown(String),
    #[error("the channel {0} needs a key")]
    NeedsKey(String),
    #[error("{0} is not on {1}")]
    NotOnChannel(String, String),
    #[error("{0} is not an operator of {1}")]
    NotOperator(String, String),
}

impl Network {
    pub(crate) fn register(&mut self, nickname: &str) -> Result<(), Rejected> {
        check(nickname, "nickname", "")?;
        if self.users.contains_key(nickname) {
            return Err(Rejected::NicknameInUse(nickname.to_owned()));
        }
        self.users.insert(nickname.to_owned(), User::default());
        Ok(())
    }

    pub(crate) fn quit(&mut self, nickname: &str) {
        self.users.remove(nickname);
        self.channels.retain(|_, channel| {
            channel.members.remove(nickname);
            !channel.members.is_empty()
        });
    }

    pub(crate) fn rename(&mut self, old: &str, new: &str) -> Result<(), Rejected> {
        self.register(new)?;
        if let Some(user) = self.users.remove(old) {
            self.users.insert(new.to_owned(), user);
        }
        for channel in self.channels.values_mut() {
            if channel.members.remove(old) {
                channel.members.insert(new.to_owned());
            }
            if channel.operator == old {
                new.clone_into(&mut channel.operator);
            }
        }
        Ok(())
    }

    /// Joins a channel, and opens it if it does not exist.
    pub(crate) fn join(
        &mut self,
        nickname: &str,
        name: &str,
        key: Option<&str>,
    ) -> Result<(), Rejected> {
        check(
            name.strip_prefix('#').unwrap_or(""),
            "channel",
            " after a #",
        )?;
        let channel = self
            .channels
            .entry(name.to_owned())
            .or_insert_with(|| Channel {
                operator: nickname.to_owned(),
                key: key.map(str::to_owned),
                ..Channel::default()
            });
        let is_open = channel.key.is_none() || channel.key.as_deref() == key;
        if !is_open && !channel.invited.contains(nickname) {
            return Err(Rejected::NeedsKey(name.to_owned()));
        }
        channel.members.insert(nickname.to_owned());
        Ok(())
    }

    pub(crate) fn part(&mut self, nickname: &str, name: &str) -> Result<(), Rejected> {
        let channel = self.joined(nickname, name)?;
        channel.members.remove(nickname);
        if channel.members.is_empty() {
            self.channels.remove(name);
        }
        Ok(())
    }

    pub(crate) fn send(&mut self, nickname: &str, name: &str, text: &str) -> Result<(), Rejected> {
        let channel = self.joined(nickname, name)?;
        channel.messages.truncate(HISTORY_MAX - 1);
        channel.messages.push_front(Message {
            time: now(),
            from: nickname.to_owned(),
            text: text.to_owned(),
        });
        Ok(())
    }

    /// The last messages of a channel, in their order.
    pub(crate) fn history(
        &mut self,
        nickname: &str,
        name: &str,
        limit: usize,
    ) -> Result<Vec<Message>, Rejected> {
        let messages = &self.joined(nickname, name)?.messages;
        Ok(messages.iter().take(limit).rev().cloned().collect())
    }

    pub(crate) fn names(&mut self, nickname: &str, name: &str) -> Result<Vec<String>, Rejected> {
        Ok(self
            .joined(nickname, name)?
            .members
            .iter()
            .cloned()
            .collect())
    }

    pub(crate) fn topic(&mut self, nickname: &str, name: &str) -> Result<Option<Topic>, Rejected> {
        Ok(self.joined(nickname, name)?.topic.clone())
    }

    pub(crate) fn set_topic(
        &mut self,
        nickname: &str,
        name: &str,
        text: String,
    ) -> Result<(), Rejected> {
        let set_by = nickname.to_owned();
        self.joined(nickname, name)?.topic = Some(Topic { text, set_by });
        Ok(())
    }

    pub(crate) fn kick(&mut self, nickname: &str, name: &str, who: &str) -> Result<(), Rejected> {
        let channel = self.joined(nickname, name)?;
        if channel.operator != nickname {
            return Err(Rejected::NotOperator(nickname.to_owned(), name.to_owned()));
        }
        match channel.members.remove(who) {
            true => Ok(()),
            false => Err(Rejected::NotOnChannel(who.to_owned(), name.to_owned())),
        }
    }

    pub(crate) fn invite(&mut self, nickname: &str, name: &str, who: &str) -> Result<(), Rejected> {
        if !self.users.contains_key(who) {
            return Err(Rejected::Unknown(who.to_owned()));
        }
        self.joined(nickname, name)?.invited.insert(who.to_owned());
        Ok(())
    }

    pub(crate) fn set_away(&mut self, nickname: &str, reason: Option<String>) {
        if let Some(user) = self.users.get_mut(nickname) {
            user.away = reason;
        }
    }

    /// The channels without a key.
    pub(crate) fn list(&self) -> Vec<ListedChannel> {
        let open = self
            .channels
            .iter()
            .filter(|(_, channel)| channel.key.is_none());
        open.map(|(name, channel)| ListedChannel {
            channel: name.clone(),
            members: channel.members.len(),
            topic: channel.topic.as_ref().map(|topic| topic.text.clone()),
        })
        .collect()
    }

    pub(crate) fn whois(&self, nickname: &str) -> Result<Whois, Rejected> {
        let user = self.users.get(nickname);
        let user = user.ok_or_else(|| Rejected::Unknown(nickname.to_owned()))?;
        Ok(Whois {
            nickname: nickname.to_owned(),
            channels: self.channels_of(nickname),
            away: user.away.clone(),
        })
    }

    pub(crate) fn channels_of(&self, nickname: &str) -> Vec<String> {
        let all = self.channels.iter();
        let joined = all.filter(|(_, channel)| channel.members.contains(nickname));
        joined.map(|(name, _)| name.clone()).collect()
    }

    fn joined(&mut self, nickname: &str, name: &str) -> Result<&mut Channel, Rejected> {
        let channel = self.channels.get_mut(name);
        let channel = channel.ok_or_else(|| Rejected::Unknown(name.to_owned()))?;
        match channel.members.contains(nickname) {
            true => Ok(channel),
            false => Err(Rejected::NotOnChannel(nickname.to_owned(), name.to_owned())),
        }
    }
}

fn check(name: &str, what: &'static str, after: &'static str) -> Result<(), Rejected> {
    let is_letter = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    match (1..=32).contains(&name.len()) && name.chars().all(is_letter) {
        true => Ok(()),
        false => Err(Rejected::Malformed(name.to_owned(), what, after)),
    }
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}
