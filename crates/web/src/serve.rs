//! Listening: a loopback address, or a Unix socket for the same user.

#![allow(clippy::disallowed_methods, reason = "this module owns the socket file")]

use crate::desk::Desk;
use crate::door::{Door, Rights};
use crate::jobs::Jobs;
use crate::previews::Previews;
use crate::routes::Shared;
use crate::stream;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::fs::Mode;
use rustix::process::{geteuid, umask};
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;

/// Maximum size of the request headers.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Maximum wait for the request headers.
const HEADER_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of connections. Each tab holds one for events.
const CONNECTIONS_MAX: usize = 128;
/// Time that running calls get to end.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// Failure of the server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address is in use or not available.
    #[error("cannot listen on {0}")]
    Listen(String, #[source] io::Error),
    /// The system gives no random numbers.
    #[error("cannot make a token")]
    Token,
    /// The runtime could not be started.
    #[error("cannot start the runtime")]
    Runtime(#[source] io::Error),
}

/// Place that is listened on.
#[derive(Debug)]
enum Place {
    Tcp(TcpListener, SocketAddr),
    Socket(UnixListener, PathBuf),
}

/// Server that listens, and has not answered yet.
#[derive(Debug)]
pub struct Server {
    place: Place,
    door: Door,
    rights: Rights,
}

impl Server {
    /// Starts to listen on a port of the loopback address; 0 for a free one.
    ///
    /// # Errors
    /// Fails if the port is in use.
    pub fn bind(port: u16, rights: Rights) -> Result<Self, ServerError> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let failed = |error| ServerError::Listen(address.to_string(), error);
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Self::new(Place::Tcp(listener, address), rights)
    }

    /// Starts to listen on a Unix socket that only the current user can open.
    ///
    /// # Errors
    /// Fails if the path exists and is no socket of a server that ended.
    pub fn bind_socket(path: &Path, rights: Rights) -> Result<Self, ServerError> {
        let failed = |error| ServerError::Listen(path.display().to_string(), error);
        let is_socket = path.symlink_metadata().is_ok_and(|facts| facts.file_type().is_socket());
        if is_socket
            && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        {
            std::fs::remove_file(path).map_err(failed)?;
        }
        let before = umask(Mode::from_raw_mode(0o177));
        let listener = UnixListener::bind(path);
        umask(before);
        let listener = listener.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Self::new(Place::Socket(listener, path.to_owned()), rights)
    }

    fn new(place: Place, rights: Rights) -> Result<Self, ServerError> {
        let door = Door::new().map_err(|_| ServerError::Token)?;
        Ok(Self { place, door, rights })
    }

    /// Address of the page, with the one-time token in its fragment. It works for 60 seconds.
    pub fn url(&self) -> String {
        let host = match &self.place {
            Place::Tcp(_, address) => address.to_string(),
            Place::Socket(..) => "localhost".to_owned(),
        };
        format!("http://{host}/#token={}", self.door.token())
    }

    /// Serves clients until a signal arrives. Calls that run are asked to stop, and end first.
    ///
    /// # Errors
    /// Fails if the runtime cannot be started.
    pub fn serve(self, desk: Arc<dyn Desk>) -> Result<(), ServerError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(ServerError::Runtime)?;
        let Self { place, door, rights } = self;
        let path = match &place {
            Place::Socket(_, path) => Some(path.clone()),
            Place::Tcp(..) => None,
        };
        let result = runtime.block_on(async {
            let last_event = stream::follow(Arc::clone(&desk));
            let (previews, jobs) = (Previews::default(), Jobs::default());
            let shared = Arc::new(Shared { desk, door, rights, previews, jobs, last_event });
            let accepting = async {
                match place {
                    Place::Tcp(listener, address) => {
                        let failed = |error| ServerError::Listen(address.to_string(), error);
                        let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;
                        accept_tcp(&listener, &shared).await;
                    }
                    Place::Socket(listener, path) => {
                        let failed = |error| ServerError::Listen(path.display().to_string(), error);
                        let listener = tokio::net::UnixListener::from_std(listener).map_err(failed)?;
                        accept_socket(&listener, &shared).await;
                    }
                }
                Ok(())
            };
            let result = tokio::select! {
                result = accepting => result,
                () = asked_to_stop() => Ok(()),
            };
            shared.jobs.stop();
            result
        });
        // A rollback that changes files ends first; it cannot be left half way.
        runtime.shutdown_timeout(END_PATIENCE);
        if let Some(path) = path {
            let _ = std::fs::remove_file(path);
        }
        result
    }
}

/// Waits for SIGINT, SIGTERM or SIGHUP.
async fn asked_to_stop() {
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

/// Waits after a failed accept: with too many open files, others may be closed soon.
async fn breathe() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn accept_tcp(listener: &tokio::net::TcpListener, shared: &Arc<Shared>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            breathe().await;
            continue;
        };
        // Small answers are not held back to wait for more.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            let _place = place;
            connection(stream, shared).await;
        });
    }
}

async fn accept_socket(listener: &tokio::net::UnixListener, shared: &Arc<Shared>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            breathe().await;
            continue;
        };
        let is_ours = stream.peer_cred().is_ok_and(|peer| peer.uid() == geteuid().as_raw());
        if !is_ours {
            continue;
        }
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            let _place = place;
            connection(stream, shared).await;
        });
    }
}

async fn connection(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let answer = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.answer(request).await) }
    });
    let mut connection = http1::Builder::new();
    connection.timer(TokioTimer::new()).header_read_timeout(HEADER_PATIENCE).max_buf_size(HEADER_BYTES_MAX);
    // A connection that breaks concerns its client only.
    let _ = connection.serve_connection(TokioIo::new(stream), answer).await;
}
