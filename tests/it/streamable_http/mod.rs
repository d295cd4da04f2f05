//! HTTP over sockets: responses, rejections, and their effect on the connection.

mod bodies;
mod disconnects;
mod familiar;
mod framing;
mod http2;
mod limits;
mod requests;
mod streams;
mod workers;
