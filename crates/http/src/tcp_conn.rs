//! A TCP socket whose small writes are sent together with those of other connections.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

use super::send_queue::SendQueue;
use super::tcp_writer::TcpWriter;

/// Writes of up to this size wait in the queue, in bytes. Copying them there costs less than a vectored write.
const SMALL_BYTES: usize = 2048;

/// A TCP socket. Small writes go to the queue of its worker and count as written.
#[derive(Debug)]
pub(crate) struct TcpConn {
    reader: OwnedReadHalf,
    writer: Rc<TcpWriter>,
    queue: Rc<SendQueue>,
}

impl TcpConn {
    pub(super) fn new(stream: TcpStream, queue: Rc<SendQueue>) -> Self {
        let (reader, half) = stream.into_split();
        Self {
            reader,
            writer: Rc::new(TcpWriter::new(half)),
            queue,
        }
    }

    /// The socket, for peeking at received bytes.
    pub(super) fn as_stream(&self) -> &TcpStream {
        self.reader.as_ref()
    }
}

impl AsyncRead for TcpConn {
    #[inline]
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buffer)
    }
}

impl AsyncWrite for TcpConn {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.writer.poll_unsent(cx))?;
        let bytes = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if bytes <= SMALL_BYTES {
            self.writer.set_task(cx);
            self.queue.push(&self.writer, pieces, bytes);
            return Poll::Ready(Ok(bytes));
        }
        // An earlier write of this connection may wait in the queue.
        self.queue.send();
        ready!(self.writer.poll_unsent(cx))?;
        let mut output = self.writer.output();
        let half = Pin::new(&mut output.half);
        match pieces {
            [piece] => half.poll_write(cx, piece),
            _ => half.poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Sends what the socket did not accept before. Does not wait for the queue, which is sent soon.
    #[inline]
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer.poll_unsent(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.queue.send();
        ready!(self.writer.poll_unsent(cx))?;
        Pin::new(&mut self.writer.output().half).poll_shutdown(cx)
    }
}

impl Drop for TcpConn {
    fn drop(&mut self) {
        self.queue.send();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::Ipv4Addr;
    use std::task::Waker;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A connection and its client.
    async fn connected(queue: &Rc<SendQueue>) -> (TcpConn, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("bound");
        let client = TcpStream::connect(address).await.expect("it listens");
        let (stream, _) = listener.accept().await.expect("a client");
        stream.writable().await.expect("an open socket");
        (TcpConn::new(stream, Rc::clone(queue)), client)
    }

    /// A queue whose writes wait until this task does.
    async fn kept() -> Rc<SendQueue> {
        let queue = Rc::new(SendQueue::default());
        let kept = Rc::clone(&queue);
        tokio::task::spawn_local(async move { kept.keep().await });
        tokio::task::yield_now().await;
        queue
    }

    fn write(conn: &mut TcpConn, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let cx = &mut Context::from_waker(Waker::noop());
        Pin::new(conn).poll_write(cx, bytes)
    }

    fn nothing_has_come(client: &TcpStream) -> bool {
        let read = client.try_read(&mut [0]);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    async fn read(client: &mut TcpStream, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        client.read_exact(&mut read).await.expect("it was sent");
        read
    }

    #[tokio::test(flavor = "local")]
    async fn small_writes_wait_until_the_tasks_that_are_ready_have_run() {
        let queue = kept().await;
        let (mut one, mut client_of_one) = connected(&queue).await;
        let (mut other, mut client_of_other) = connected(&queue).await;
        assert!(matches!(write(&mut one, b"one"), Poll::Ready(Ok(3))));
        assert!(matches!(write(&mut other, b"other"), Poll::Ready(Ok(5))));
        assert!(matches!(write(&mut one, b" more"), Poll::Ready(Ok(5))));
        assert!(nothing_has_come(&client_of_one) && nothing_has_come(&client_of_other));
        assert_eq!(read(&mut client_of_one, 8).await, b"one more");
        assert_eq!(read(&mut client_of_other, 5).await, b"other");
    }

    #[tokio::test(flavor = "local")]
    async fn nothing_waits_where_nobody_sends_it() {
        let (mut conn, mut client) = connected(&Rc::default()).await;
        for _ in 0..3 {
            assert!(matches!(write(&mut conn, b"abc"), Poll::Ready(Ok(3))));
            assert_eq!(read(&mut client, 3).await, b"abc");
        }
    }

    #[tokio::test(flavor = "local")]
    async fn a_large_write_does_not_overtake_a_small_one() {
        let queue = kept().await;
        let (mut conn, mut client) = connected(&queue).await;
        assert!(matches!(write(&mut conn, b"small"), Poll::Ready(Ok(5))));
        let large = [b'x'; SMALL_BYTES + 1];
        assert!(matches!(write(&mut conn, &large), Poll::Ready(Ok(_))));
        let read = read(&mut client, 5 + large.len()).await;
        assert_eq!(read, [b"small".as_slice(), &large].concat());
    }

    #[tokio::test(flavor = "local")]
    async fn what_waits_is_sent_before_the_end() {
        for shuts_down in [true, false] {
            let queue = kept().await;
            let (mut conn, mut client) = connected(&queue).await;
            assert!(matches!(write(&mut conn, b"last"), Poll::Ready(Ok(4))));
            if shuts_down {
                let cx = &mut Context::from_waker(Waker::noop());
                assert!(Pin::new(&mut conn).poll_shutdown(cx).is_ready());
            } else {
                drop(conn);
            }
            let mut seen = String::new();
            client.read_to_string(&mut seen).await.expect("no reset");
            assert_eq!(seen, "last");
        }
    }

    /// Nothing is lost or sent twice.
    #[tokio::test(flavor = "local")]
    async fn a_full_socket_stops_writes_until_it_has_accepted_the_queued_ones() {
        let queue = kept().await;
        let (mut conn, mut client) = connected(&queue).await;
        let mut written = Vec::new();
        for number in 0_u32.. {
            let line = format!("{number:0width$}\n", width = SMALL_BYTES - 1);
            match write(&mut conn, line.as_bytes()) {
                Poll::Ready(Ok(bytes)) => assert_eq!(bytes, line.len()),
                Poll::Ready(Err(error)) => panic!("{error}"),
                Poll::Pending => break,
            }
            written.extend_from_slice(line.as_bytes());
            tokio::task::yield_now().await;
        }
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut conn).poll_flush(cx).is_pending());
        assert!(write(&mut conn, &[b'x'; SMALL_BYTES + 1]).is_pending());
        let flush = poll_fn(|cx| Pin::new(&mut conn).poll_flush(cx));
        let (flushed, read) = tokio::join!(flush, read(&mut client, written.len()));
        flushed.expect("an open socket");
        assert!(read == written);
        assert!(conn.writer.output().unsent.capacity() == 0);
        conn.write_all(b"more").await.expect("an open socket");
        assert_eq!(super::tests::read(&mut client, 4).await, b"more");
    }

    #[tokio::test(flavor = "local")]
    async fn the_error_of_a_write_that_waited_is_reported_once_and_wakes_its_connection() {
        let queue = kept().await;
        let (mut conn, client) = connected(&queue).await;
        client.set_zero_linger().expect("a setting");
        drop(client);
        let _ = conn.read(&mut [0]).await;
        let mut polls = 0;
        let flushed = poll_fn(|cx| {
            polls += 1;
            if polls == 1 {
                assert!(Pin::new(&mut conn).poll_write(cx, b"lost").is_ready());
                assert!(Pin::new(&mut conn).poll_flush(cx).is_ready());
                return Poll::Pending;
            }
            Pin::new(&mut conn).poll_flush(cx)
        });
        flushed.await.expect_err("nobody reads it");
        poll_fn(|cx| Pin::new(&mut conn).poll_flush(cx))
            .await
            .expect("it was reported");
    }
}
