//! Server over HTTP, for this machine alone.
//!
//! It listens on a loopback address only. A request needs the token, a loopback `Host` (a name that an attacker
//! rebinds to this machine is refused) and no foreign `Origin`: browsers send the origin of their page.

use crate::desk::Desk;
use crate::serve::{ServeError, asked_to_stop, runtime};
use crate::server::{Server, Shared};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Path of the endpoint.
const ENDPOINT: &str = "/mcp";
/// Maximum size of a request body.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Maximum size of the request headers.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Maximum wait for the request headers.
const HEADER_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of connections.
const CONNECTIONS_MAX: usize = 64;
/// Minimum length of a token.
const TOKEN_BYTES_MIN: usize = 32;

/// Failure of the HTTP server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HttpError {
    /// Other machines could reach the address.
    #[error("{0} is not a loopback address")]
    NotLoopback(SocketAddr),
    /// The token is easy to guess.
    #[error("the token has fewer than {TOKEN_BYTES_MIN} characters")]
    WeakToken,
    /// The address is in use or not available.
    #[error("cannot listen on {0}")]
    Listen(SocketAddr, #[source] io::Error),
    /// The server could not be started.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// Server that listens on a loopback address.
#[derive(Debug)]
pub struct Http {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
}

type Answered = Response<BoxBody<Bytes, Infallible>>;
type Service = StreamableHttpService<Server, LocalSessionManager>;

impl Http {
    /// Starts to listen. Without a token, a random one is chosen.
    ///
    /// # Errors
    /// Fails if the address is not a loopback address or not available, or the token is too short.
    pub fn bind(address: SocketAddr, token: Option<String>) -> Result<Self, HttpError> {
        if !address.ip().is_loopback() {
            return Err(HttpError::NotLoopback(address));
        }
        let token = token.unwrap_or_else(crate::tokens::secret);
        if token.len() < TOKEN_BYTES_MIN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(HttpError::WeakToken);
        }
        let failed = |error| HttpError::Listen(address, error);
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, token })
    }

    /// Endpoint for clients.
    pub fn url(&self) -> String {
        format!("http://{}{ENDPOINT}", self.address)
    }

    /// Token that each request must carry: `Authorization: Bearer TOKEN`.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Serves clients until a signal arrives. Work in progress ends first.
    ///
    /// # Errors
    /// Fails if the runtime cannot be started.
    pub fn serve(self, desk: Arc<dyn Desk>) -> Result<(), HttpError> {
        let runtime = runtime()?;
        let address = self.address;
        let result = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)
                .map_err(|error| HttpError::Listen(address, error))?;
            let shared = Shared::new(desk);
            let door = Arc::new(Door { service: service(&shared, address), token: self.token });
            tokio::select! {
                () = accept(&listener, &door) => {}
                () = asked_to_stop() => {}
            }
            shared.finish(true).await;
            Ok(())
        });
        runtime.shutdown_background();
        result
    }
}

fn service(shared: &Arc<Shared>, address: SocketAddr) -> Service {
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins([format!("http://{address}"), format!("http://localhost:{}", address.port())])
        .enforce_origin_validation()
        .with_max_request_body_bytes(BODY_BYTES_MAX);
    let shared = Arc::clone(shared);
    StreamableHttpService::new(move || Ok(Server::new(&shared)), Arc::default(), config)
}

async fn accept(listener: &tokio::net::TcpListener, door: &Arc<Door>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files: others may be closed soon.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let door = Arc::clone(door);
        tokio::spawn(async move {
            let _place = place;
            door.connection(stream).await;
        });
    }
}

/// Checks each request before the protocol sees it.
struct Door {
    service: Service,
    token: String,
}

impl Door {
    async fn connection(self: Arc<Self>, stream: TcpStream) {
        let answer = service_fn(move |request| {
            let door = Arc::clone(&self);
            async move { Ok::<_, Infallible>(door.answer(request).await) }
        });
        let mut connection = hyper::server::conn::http1::Builder::new();
        connection
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_PATIENCE)
            .max_buf_size(HEADER_BYTES_MAX);
        // A connection that breaks concerns its client only.
        let _ = connection.serve_connection(TokioIo::new(stream), answer).await;
    }

    async fn answer(&self, request: Request<Incoming>) -> Answered {
        let given = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
        if !given.is_some_and(|given| self.is_allowed(given)) {
            let mut refusal = refusal(StatusCode::UNAUTHORIZED, "the token is missing or wrong");
            refusal.headers_mut().insert(WWW_AUTHENTICATE, hyper::header::HeaderValue::from_static("Bearer"));
            return refusal;
        }
        if request.uri().path() != ENDPOINT {
            return refusal(StatusCode::NOT_FOUND, "not found; the endpoint is /mcp");
        }
        self.service.handle(request).await
    }

    /// Compares the token in a time that does not depend on its content.
    fn is_allowed(&self, given: &[u8]) -> bool {
        let Some((scheme, token)) = given.split_at_checked(7) else { return false };
        let differs = token.iter().zip(self.token.bytes()).fold(0, |all, (one, other)| all | (one ^ other));
        scheme.eq_ignore_ascii_case(b"bearer ") && token.len() == self.token.len() && differs == 0
    }
}

fn refusal(status: StatusCode, text: &'static str) -> Answered {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_reach_is_refused() {
        for address in ["0.0.0.0:0", "192.168.1.2:0", "[::]:0", "8.8.8.8:80"] {
            let refused = Http::bind(address.parse().unwrap(), None);
            assert!(matches!(refused, Err(HttpError::NotLoopback(_))), "{address}");
        }
        let weak = Http::bind("127.0.0.1:0".parse().unwrap(), Some("short".to_owned()));
        assert!(matches!(weak, Err(HttpError::WeakToken)));
    }
}
