//! The files of the page, embedded.

use crate::body::{Answered, full, protect};
use crate::problem::Problem;
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};

/// Name and content of each file.
const FILES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/page.rs"));

/// Policy of the page: its own scripts and styles, and pictures that it got with the key.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; \
                      font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// Media type of a file of the page.
fn media(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "woff2" => "font/woff2",
        "txt" | "md" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// Answers with a file of the page. Only names in the table exist.
pub(crate) fn file(path: &str) -> Result<Answered, Problem> {
    let name = match path.strip_prefix('/') {
        Some("") => "index.html",
        Some(name) => name,
        None => return Err(Problem::no_route()),
    };
    let found = FILES.iter().find(|(known, _)| *known == name);
    let (name, bytes) = found.ok_or_else(Problem::no_route)?;
    let mut answer = full(StatusCode::OK, bytes.to_vec());
    protect(&mut answer, POLICY);
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media(name)));
    Ok(answer)
}
