//! MCP server from the view of its clients: the real program, spoken to in raw messages.

#![allow(clippy::disallowed_methods, reason = "tests set up folders and start the program")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on fails")]
#![allow(clippy::needless_pass_by_value, reason = "messages are written where they are sent")]

mod client;
mod consent;
mod hostile;
mod http;
mod protocol;
mod tools;
