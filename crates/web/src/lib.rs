//! Local page of Safepoint: an HTTP API for one workspace, and the files of the page.
//!
//! In: requests on a loopback address or a Unix socket. Out: the answers of a [`Desk`], which the command line implements
//! with its own commands. `docs/schemas/web-api.openapi.json` describes both.
//!
//! Invariants:
//! - Every route except the page itself and the trade of the token needs the key. No cookie is read or set.
//! - The runtime has one thread; calls of the desk run on blocking threads.
//! - Content of files is never sent as a document: text travels in JSON, bytes as images or attachments.
//! - A rollback happens only as it was previewed.

mod body;
mod desk;
mod diff;
mod door;
mod highlight;
mod jobs;
mod page;
mod previews;
mod problem;
mod query;
mod routes;
mod serve;
mod stream;

pub use desk::{
    Blob, BlobKind, Bound, Call, Desk, Find, Letters, Listing, Own, Place, PreviewOf, State, Watch, Wish,
};
pub use door::Rights;
pub use problem::{OWN_CODES, status};
pub use serve::{Server, ServerError};
