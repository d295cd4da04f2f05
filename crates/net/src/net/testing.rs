//! Test servers whose response is a function of the request.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Starts a server that responds with the result of a function of the request text, then closes.
pub async fn serve<F>(answer: F) -> (SocketAddr, Arc<Mutex<Vec<String>>>)
where
    F: Fn(&str) -> Vec<u8> + Send + Sync + 'static,
{
    let listener = TcpListener::bind((LOCAL, 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let answer = Arc::new(answer);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let (answer, log) = (answer.clone(), log.clone());
            tokio::spawn(async move {
                let mut text = String::new();
                let mut buffer = [0; 4096];
                while !is_whole(&text) {
                    match socket.read(&mut buffer).await {
                        Ok(n) if n > 0 => text.push_str(&String::from_utf8_lossy(&buffer[..n])),
                        _ => return,
                    }
                }
                let bytes = answer(&text);
                log.lock().expect("no panic").push(text);
                let _ = socket.write_all(&bytes).await;
                let _ = socket.shutdown().await;
            });
        }
    });
    (address, seen)
}

fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head.lines().find_map(|line| {
        line.to_ascii_lowercase()
            .strip_prefix("content-length: ")?
            .parse()
            .ok()
    });
    length.unwrap_or(0) <= body.len()
}

pub fn response(head: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").into_bytes();
    bytes.extend_from_slice(body);
    bytes
}
