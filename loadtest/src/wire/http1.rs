//! One HTTP/1.1 connection.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::response::Response;
use super::{Answer, Post, WireError};

/// A keep-alive connection: one write and, for short answers, one read for each request.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: TcpStream,
    request: Vec<u8>,
    response: Response,
}

impl Connection {
    /// Connects.
    pub(super) async fn open(address: SocketAddr) -> Result<Self, WireError> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            request: Vec::new(),
            response: Response::new(),
        })
    }

    /// Writes the request down, to be sent as it is.
    pub(super) fn prepare(&mut self, post: &Post) {
        self.request = post.to_http1();
    }

    /// Sends the request and reads the answer.
    pub(super) async fn exchange(&mut self) -> Result<Answer<'_>, WireError> {
        self.socket.write_all(&self.request).await?;
        self.response.clear();
        loop {
            let count = self.socket.read(self.response.spare()).await?;
            if count == 0 {
                return Err(WireError::Closed);
            }
            if self.response.advance(count)? {
                break;
            }
        }
        Ok(Answer {
            status: self.response.status(),
            session: self.response.session(),
            body: self.response.body(),
        })
    }
}

impl Post {
    /// The bytes of the request.
    pub(crate) fn to_http1(&self) -> Vec<u8> {
        let mut head = format!(
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: application/json, text/event-stream\r\n",
            self.path, self.address
        );
        for (name, value) in &self.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.extend([
            "content-length: ",
            &self.body.len().to_string(),
            "\r\n\r\n",
            &self.body,
        ]);
        head.into_bytes()
    }
}
