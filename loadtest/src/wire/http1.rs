//! HTTP/1.1 connection.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::response::Response;
use super::{Answer, Post, WireError};

/// A keep-alive connection: one write and, for short answers, one read for each request.
#[derive(Debug)]
pub(crate) struct Connection {
    address: SocketAddr,
    socket: TcpStream,
    request: Vec<u8>,
    response: Response,
}

impl Connection {
    /// Connects.
    pub(super) async fn open(address: SocketAddr) -> Result<Self, WireError> {
        Ok(Self {
            address,
            socket: connect(address).await?,
            request: Vec::new(),
            response: Response::new(),
        })
    }

    /// Writes the request down, to be sent as it is.
    pub(super) fn prepare(&mut self, post: &Post) {
        self.request = post.to_http1();
    }

    /// Sends the request and reads the answer. Over a new connection, if the server has said with its last answer
    /// that it closes the old one: servers do so after some thousands of requests.
    pub(super) async fn exchange(&mut self) -> Result<Answer<'_>, WireError> {
        if self.response.closes() {
            self.socket = connect(self.address).await?;
        }
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

async fn connect(address: SocketAddr) -> Result<TcpStream, WireError> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    Ok(socket)
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
