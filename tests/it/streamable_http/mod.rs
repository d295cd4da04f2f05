//! HTTP as it comes over a socket: what is answered, what is refused, and what happens to a connection after
//! that.

mod bodies;
mod disconnects;
mod familiar;
mod framing;
mod http2;
mod limits;
mod requests;
mod streams;
mod workers;
