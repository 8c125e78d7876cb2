//! Model Context Protocol server of Safepoint.
//!
//! The server turns protocol messages into [`Call`]s for a [`Desk`], which the command line implements with its
//! own commands. Results are therefore those of `safepoint --json`. This crate adds the protocol: tools,
//! resources, prompts, limits, preview tokens, confirmation by the user, and two transports.
//!
//! It is the only crate with an async runtime, and the runtime has one thread. Each call runs on a blocking
//! thread, one at a time. The workspace is the desk's: no message can choose another.

mod answer;
mod consent;
mod desk;
mod http;
mod input;
mod origin;
mod prompts;
mod resources;
mod serve;
mod server;
mod tokens;
mod tools;
mod watch;

pub use desk::{Answer, Call, Desk, Page, StepAction, Watch};
pub use http::{Http, HttpError};
pub use origin::CallOrigin;
pub use serve::{ServeError, serve_stdio};
