//! HTTP for object stores: hyper with rustls, HTTP/1, connections kept for reuse.
//!
//! In: signed requests of `object_store`. Out: responses. Errors carry no addresses: those may be signed.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use std::fmt;
use std::io;
use std::time::Duration;

const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Limit for sending a request of one part and getting the head of the answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// Limit of silence within an answer.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
const IDLE_LIMIT: Duration = Duration::from_secs(20);

/// Maker of connections.
#[derive(Clone)]
pub(crate) struct Connector {
    client: Client<HttpsConnector<TcpConnector>, HttpRequestBody>,
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl Connector {
    pub(crate) fn new(tls: rustls::ClientConfig) -> Self {
        let mut tcp = TcpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_LIMIT));
        tcp.set_keepalive(Some(IDLE_LIMIT));
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_LIMIT)
            .pool_timer(TokioTimer::new())
            .build(https);
        Self { client }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait::async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let timed_out = || HttpError::new(HttpErrorKind::Timeout, io::Error::from(io::ErrorKind::TimedOut));
        let sent = tokio::time::timeout(ANSWER_LIMIT, self.client.request(request)).await;
        let answer = sent.map_err(|_| timed_out())?.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Request };
            HttpError::new(kind, error)
        })?;
        let (parts, body) = answer.into_parts();
        let stream = futures_util::stream::unfold(Some(body), move |state| async move {
            let mut body = state?;
            match tokio::time::timeout(SILENCE_LIMIT, body.frame()).await {
                Err(_) => Some((Err(timed_out()), None)),
                Ok(None) => None,
                Ok(Some(Ok(frame))) => {
                    let bytes = frame.into_data().unwrap_or_else(|_| Bytes::new());
                    Some((Ok(hyper::body::Frame::data(bytes)), Some(body)))
                }
                Ok(Some(Err(error))) => Some((Err(HttpError::new(HttpErrorKind::Interrupted, error)), None)),
            }
        });
        let body = HttpResponseBody::new(http_body_util::StreamBody::new(stream));
        Ok(HttpResponse::from_parts(parts, body))
    }
}
