//! Server on standard input and output, and the runtime of both transports.

use crate::desk::Desk;
use crate::server::{Server, Shared};
use rmcp::ServiceExt;
use rmcp::transport::stdio;
use std::io;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// Maximum length of a message on standard input.
const LINE_BYTES_MAX: usize = 4 << 20;

/// Failure of a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The runtime could not be started.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
    /// The client did not begin the protocol.
    #[error("cannot begin the protocol: {0}")]
    Begin(String),
}

/// Runtime with one thread for the protocol; calls run on blocking threads.
pub(crate) fn runtime() -> Result<Runtime, ServeError> {
    Builder::new_current_thread().enable_all().build().map_err(ServeError::Runtime)
}

/// Waits for SIGINT, SIGTERM or SIGHUP.
pub(crate) async fn asked_to_stop() {
    let listen = |kind| signal(kind).ok();
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(listen);
    let [interrupt, terminate, hangup] = &mut signals;
    let next = async |signal: &mut Option<tokio::signal::unix::Signal>| match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    };
    tokio::select! {
        () = next(interrupt) => {}
        () = next(terminate) => {}
        () = next(hangup) => {}
    }
}

/// Serves one client on standard input and output until it closes the input, or a signal arrives. Work in
/// progress ends first.
///
/// # Errors
/// Fails if the runtime cannot be started or the first message is invalid.
pub fn serve_stdio(desk: Arc<dyn Desk>) -> Result<(), ServeError> {
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let shared = Shared::new(desk);
        let (input, output) = stdio();
        let transport = rmcp::transport::async_rw::AsyncRwTransport::new_server(input, output)
            .with_max_line_length(LINE_BYTES_MAX);
        let served = async {
            let service = Server::new(&shared).serve(transport).await;
            let service = match service {
                Ok(service) => service,
                // A client that goes away before it says anything wants nothing.
                Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
                Err(error) => return Err(ServeError::Begin(error.to_string())),
            };
            // The task of the protocol cannot be cancelled from elsewhere.
            let _ = service.waiting().await;
            Ok(())
        };
        let (result, stop) = tokio::select! {
            result = served => (result, false),
            () = asked_to_stop() => (Ok(()), true),
        };
        shared.finish(stop).await;
        result
    });
    // A read of standard input may never end.
    runtime.shutdown_background();
    result
}
