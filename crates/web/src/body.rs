//! Bodies of answers and requests, with their limits.

use crate::problem::Problem;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde_json::Value;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Maximum size of the body of a request.
const BODY_BYTES_MAX: usize = 1 << 20;

pub(crate) type Answered = Response<BoxBody<Bytes, Infallible>>;

/// Headers of every answer.
const ALWAYS: [(&str, &str); 5] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("x-frame-options", "DENY"),
];

/// Policy of answers that are no page: nothing in them may load or run.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

pub(crate) fn full(status: StatusCode, bytes: Vec<u8>) -> Answered {
    let mut answer = Response::new(Full::new(Bytes::from(bytes)).boxed());
    *answer.status_mut() = status;
    protect(&mut answer, NOTHING);
    answer
}

pub(crate) fn protect(answer: &mut Answered, policy: &'static str) {
    let headers = answer.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("content-security-policy", HeaderValue::from_static(policy));
}

pub(crate) fn streamed(pieces: Pieces) -> Answered {
    let mut answer = Response::new(pieces.boxed());
    protect(&mut answer, NOTHING);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    answer
}

pub(crate) fn json(status: StatusCode, value: &Value) -> Answered {
    let mut answer = full(status, value.to_string().into_bytes());
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

/// Reads the body of a request as a JSON object.
pub(crate) async fn object(mut body: Incoming) -> Result<Value, Problem> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::usage("the body broke off"))?;
        if let Ok(data) = frame.into_data() {
            if bytes.len() + data.len() > BODY_BYTES_MAX {
                return Err(Problem::own("too_large", "the body is too large", "At most 1 MiB is read."));
            }
            bytes.extend_from_slice(&data);
        }
    }
    match serde_json::from_slice(&bytes) {
        Ok(value @ Value::Object(_)) => Ok(value),
        _ => Err(Problem::usage("the body is not a JSON object")),
    }
}

/// Body whose pieces come from a channel.
pub(crate) struct Pieces(pub(crate) tokio::sync::mpsc::Receiver<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
