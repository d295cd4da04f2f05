//! A load balancer without affinity: each request goes to the next server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Running;

/// Maximum silence of either side.
const PATIENCE: Duration = Duration::from_secs(30);

/// A balancer in front of servers that may come and go.
pub(crate) struct RoundRobin {
    front: Running,
    behind: Arc<Mutex<Behind>>,
}

#[derive(Default)]
struct Behind {
    servers: Vec<SocketAddr>,
    next: usize,
    /// The server of each request, in order.
    sent: Vec<SocketAddr>,
}

impl RoundRobin {
    pub(crate) fn before(servers: &[SocketAddr]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let behind = Arc::new(Mutex::new(Behind {
            servers: servers.to_vec(),
            ..Behind::default()
        }));
        let shared = Arc::downgrade(&behind);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // The proxy was dropped.
                let Some(behind) = shared.upgrade() else {
                    return;
                };
                std::thread::spawn(move || pass_on(client, &behind));
            }
        });
        Self {
            front: Running::at(address),
            behind,
        }
    }

    /// Address for clients.
    pub(crate) fn front(&self) -> &Running {
        &self.front
    }

    /// Replaces a server by another.
    pub(crate) fn replace(&self, old: SocketAddr, new: SocketAddr) {
        let mut behind = self.behind.lock().expect("no panic");
        for server in &mut behind.servers {
            if *server == old {
                *server = new;
            }
        }
    }

    /// Returns the server of each request since the last call.
    pub(crate) fn sent(&self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.behind.lock().expect("no panic").sent)
    }
}

/// Passes one request on, and its answer back, to the end of both.
fn pass_on(mut client: TcpStream, behind: &Mutex<Behind>) {
    let _ = client.set_read_timeout(Some(PATIENCE));
    let Some(request) = read_request(&mut client) else {
        return;
    };
    let tries = behind.lock().expect("no panic").servers.len();
    for _ in 0..tries {
        let server = {
            let mut behind = behind.lock().expect("no panic");
            let server = behind.servers[behind.next % behind.servers.len()];
            behind.next += 1;
            server
        };
        // A stopped server is skipped, as load balancers do.
        let Ok(mut upstream) = TcpStream::connect(server) else {
            continue;
        };
        behind.lock().expect("no panic").sent.push(server);
        let _ = upstream.set_nodelay(true);
        if upstream.write_all(&request).is_err() {
            return;
        }
        let Ok(mut answers) = upstream.try_clone() else {
            return;
        };
        let Ok(mut to_client) = client.try_clone() else {
            return;
        };
        // The client's end is the server's end.
        let watched = std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while matches!(client.read(&mut buffer), Ok(n) if n > 0) {}
            let _ = upstream.shutdown(Shutdown::Both);
        });
        let mut buffer = [0; 16 * 1024];
        while let Ok(n) = answers.read(&mut buffer)
            && n > 0
            && to_client.write_all(&buffer[..n]).is_ok()
        {}
        let _ = to_client.shutdown(Shutdown::Both);
        let _ = watched.join();
        return;
    }
}

/// A whole request, which asks for the connection to be closed after it.
fn read_request(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let n = client.read(&mut buffer).ok().filter(|n| *n > 0)?;
        request.extend_from_slice(&buffer[..n]);
        let Some(end) = request.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = std::str::from_utf8(&request[..end]).ok()?.to_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse::<usize>().ok())?
        });
        if request.len() < end + 4 + length.unwrap_or(0) {
            continue;
        }
        let mut closing = format!("{head}\r\nconnection: close\r\n\r\n").into_bytes();
        closing.extend_from_slice(&request[end + 4..]);
        return Some(closing);
    }
}
