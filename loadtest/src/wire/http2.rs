//! HTTP/2 connection, shared by many streams.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use h2::Reason;
use h2::client::SendRequest;
use http::Request;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::{Answer, MAX_BODY, Post, WireError};

/// The connection, closed on drop. If the server accepts no further streams on it, it is replaced.
#[derive(Debug)]
pub(crate) struct Multiplexed {
    current: Arc<Mutex<Current>>,
    sender: SendRequest<Bytes>,
}

#[derive(Debug)]
struct Current {
    address: SocketAddr,
    sender: SendRequest<Bytes>,
    /// Number of earlier connections.
    number: usize,
    drivers: Vec<JoinHandle<()>>,
}

impl Multiplexed {
    /// Connects with prior knowledge: no upgrade, no TLS.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, WireError> {
        let (sender, driver) = connect(address).await?;
        let current = Current {
            address,
            sender: sender.clone(),
            number: 0,
            drivers: vec![driver],
        };
        Ok(Self {
            current: Arc::new(Mutex::new(current)),
            sender,
        })
    }

    /// Adds a stream.
    pub(super) fn stream(&self) -> Stream {
        Stream {
            current: Arc::clone(&self.current),
            number: 0,
            sender: self.sender.clone(),
            request: Request::new(()),
            payload: Bytes::new(),
            session: None,
            body: Vec::new(),
        }
    }
}

async fn connect(address: SocketAddr) -> Result<(SendRequest<Bytes>, JoinHandle<()>), WireError> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let (sender, connection) = h2::client::Builder::new()
        .initial_window_size(1 << 20)
        .initial_connection_window_size(16 << 20)
        .handshake(socket)
        .await?;
    // Streams report what goes wrong with the connection.
    let driver = tokio::spawn(async { drop(connection.await) });
    Ok((sender, driver))
}

impl Current {
    /// The connection that comes after one that takes no more streams.
    async fn after(&mut self, number: usize) -> Result<(usize, SendRequest<Bytes>), WireError> {
        if self.number == number {
            let (sender, driver) = connect(self.address).await?;
            self.sender = sender;
            self.number += 1;
            self.drivers.retain(|driver| !driver.is_finished());
            self.drivers.push(driver);
        }
        Ok((self.number, self.sender.clone()))
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        for driver in &self.drivers {
            driver.abort();
        }
    }
}

/// Sends one request at a time on a stream.
#[derive(Debug)]
pub(crate) struct Stream {
    current: Arc<Mutex<Current>>,
    number: usize,
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

    /// Sends the request and reads the response. A request that the server did not process because it accepts no
    /// further streams (RFC 9113 section 6.8) is sent on a new connection.
    pub(super) async fn exchange(&mut self) -> Result<Answer<'_>, WireError> {
        let mut farewells = 0;
        let status = loop {
            match self.try_exchange().await {
                // The next connection may have accepted its last stream too, from the other slots.
                Err(WireError::Http2(error))
                    if is_farewell(&error) && farewells < FAREWELLS_MAX =>
                {
                    farewells += 1;
                    let next = self.current.lock().await.after(self.number).await?;
                    (self.number, self.sender) = next;
                }
                tried => break tried?,
            }
        };
        Ok(Answer {
            status,
            session: self.session.as_deref(),
            body: &self.body,
        })
    }

    /// Opens a stream; returns the status of the answer.
    async fn try_exchange(&mut self) -> Result<u16, WireError> {
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
        Ok(head.status.as_u16())
    }
}

/// Maximum number of connections in turn that accept no further stream before a request counts as failed.
const FAREWELLS_MAX: usize = 8;

/// Returns true if a stream was rejected because its connection shuts down gracefully.
fn is_farewell(error: &h2::Error) -> bool {
    error.is_remote() && error.is_go_away() && error.reason() == Some(Reason::NO_ERROR)
}
