//! Servers without a socket, whose messages are checked like all others.

use std::sync::Mutex;

use longshore::harness::WireMessage;
use longshore::{App, AppError, Harness};

use super::Conversation;

pub(crate) trait Checked {
    /// A harness each of whose messages has to fit the schema of its revision.
    fn checked_harness(self) -> Result<Harness, AppError>;
}

impl Checked for App {
    fn checked_harness(self) -> Result<Harness, AppError> {
        let conversation = Mutex::new(Conversation::default());
        Ok(self.harness()?.on_message(move |passed| {
            let mut conversation = conversation.lock().expect("no panic before");
            match passed {
                WireMessage::ToServer(message) => conversation.sent(message, None),
                WireMessage::ToClient(message) => conversation.received(message, None),
                _ => panic!("a third direction"),
            }
        }))
    }
}
