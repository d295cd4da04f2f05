//! One HTTP/2 connection, shared by many streams.

use std::future::poll_fn;
use std::net::SocketAddr;

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::{Answer, MAX_BODY, Post, WireError};

/// The connection. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Multiplexed {
    sender: SendRequest<Bytes>,
    driver: JoinHandle<()>,
}

impl Multiplexed {
    /// Connects with prior knowledge: no upgrade, no TLS.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, WireError> {
        let socket = TcpStream::connect(address).await?;
        socket.set_nodelay(true)?;
        let (sender, connection) = h2::client::Builder::new()
            .initial_window_size(1 << 20)
            .initial_connection_window_size(16 << 20)
            .handshake(socket)
            .await?;
        // Streams report what goes wrong with the connection.
        let driver = tokio::spawn(async { drop(connection.await) });
        Ok(Self { sender, driver })
    }

    /// One more place for a stream.
    pub(super) fn stream(&self) -> Stream {
        Stream {
            sender: self.sender.clone(),
            request: Request::new(()),
            payload: Bytes::new(),
            session: None,
            body: Vec::new(),
        }
    }
}

impl Drop for Multiplexed {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// One stream at a time.
#[derive(Debug)]
pub(crate) struct Stream {
    sender: SendRequest<Bytes>,
    request: Request<()>,
    payload: Bytes,
    session: Option<Vec<u8>>,
    body: Vec<u8>,
}

impl Stream {
    /// Writes the request down, to be cloned for each stream.
    pub(super) fn prepare(&mut self, post: &Post) -> Result<(), WireError> {
        let mut request = Request::post(format!("http://{}{}", post.address, post.path))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("content-length", post.body.len());
        for (name, value) in &post.headers {
            request = request.header(*name, value);
        }
        self.request = request.body(())?;
        self.payload = Bytes::from(post.body.clone());
        Ok(())
    }

    /// Opens a stream, sends the request and reads the answer.
    pub(super) async fn exchange(&mut self) -> Result<Answer<'_>, WireError> {
        poll_fn(|context| self.sender.poll_ready(context)).await?;
        let (response, mut upload) = self.sender.send_request(self.request.clone(), false)?;
        upload.send_data(self.payload.clone(), true)?;

        let (head, mut download) = response.await?.into_parts();
        self.session = head
            .headers
            .get("mcp-session-id")
            .map(|id| id.as_bytes().to_vec());
        self.body.clear();
        while let Some(piece) = download.data().await {
            let piece = piece?;
            download.flow_control().release_capacity(piece.len())?;
            if self.body.len() + piece.len() > MAX_BODY {
                return Err(WireError::TooLong);
            }
            self.body.extend_from_slice(&piece);
        }
        Ok(Answer {
            status: head.status.as_u16(),
            session: self.session.as_deref(),
            body: &self.body,
        })
    }
}
