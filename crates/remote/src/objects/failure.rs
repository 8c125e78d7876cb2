//! Failures of object stores, without addresses and bodies: both may contain keys and signatures.

use crate::RemoteError;
use object_store::Error as StoreFailure;
use std::error::Error;
use std::fmt;

/// Failure in a few words: a status, and the code of the server.
#[derive(Debug)]
struct Brief(String);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Brief {}

/// Codes of servers without space, or over a quota of the bucket.
const FULL: [&str; 6] = [
    "QuotaExceeded",
    "XMinioStorageFull",
    "InsufficientStorage",
    "ServiceQuotaExceeded",
    "StorageFull",
    "507",
];
const DENIED: [&str; 7] = [
    "AccessDenied",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "AuthenticationFailed",
    "TokenRefreshRequired",
];

fn whole_text(error: &StoreFailure) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text.push('\n');
        text.push_str(&inner.to_string());
        source = inner.source();
    }
    text
}

/// Returns the text between two marks.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?])
}

fn is_word(text: &str) -> bool {
    (1..64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns what is safe to show of a failure.
pub(crate) fn brief(error: &StoreFailure) -> String {
    let text = whole_text(error);
    let code = between(&text, "<Code>", "</Code>").filter(|code| is_word(code));
    let status = between(&text, "status code: ", ":").map(str::trim).filter(|status| {
        status.len() < 64 && status.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b' ')
    });
    match (status, code) {
        (Some(status), Some(code)) => format!("{status} ({code})"),
        (Some(status), None) => status.to_owned(),
        (None, Some(code)) => code.to_owned(),
        (None, None) => kind(error, &text).to_owned(),
    }
}

fn kind(error: &StoreFailure, text: &str) -> &'static str {
    let has = |part: &str| text.contains(part);
    match error {
        StoreFailure::NotFound { .. } => "not found",
        StoreFailure::PermissionDenied { .. } => "permission denied",
        StoreFailure::Unauthenticated { .. } => "not authenticated",
        StoreFailure::AlreadyExists { .. } => "it exists already",
        StoreFailure::Precondition { .. } => "a condition failed",
        StoreFailure::NotImplemented { .. } | StoreFailure::NotSupported { .. } => "not supported",
        StoreFailure::UnknownConfigurationKey { .. } => "a setting is unknown",
        _ if has("Connection refused") => "connection refused",
        _ if has("timed out") || has("deadline") => "timed out",
        _ if has("dns error") || has("failed to lookup") => "the host name is unknown",
        _ if has("certificate") => "the certificate is not trusted",
        _ if has("169.254.169.254") || has("metadata") => "no credentials were found",
        _ if has("error sending request") || has("client error") || has("connection") => {
            "the connection broke"
        }
        _ => "the request failed",
    }
}

/// Returns true if the server refused a request because of its condition.
pub(crate) fn refuses_conditions(error: &StoreFailure) -> bool {
    let text = whole_text(error);
    ["NotImplemented", "501 Not Implemented", "InvalidArgument"].iter().any(|code| text.contains(code))
}

/// Returns true if the server sent a whole object instead of a range: some do if the range covers it.
pub(crate) fn is_whole_answer(error: &StoreFailure) -> bool {
    whole_text(error).contains("non-partial response")
}

/// Classifies a failure.
pub(crate) fn failed(attempt: &str, error: &StoreFailure) -> RemoteError {
    let text = whole_text(error);
    let words = brief(error);
    let source = Box::new(Brief(words.clone()));
    let attempt = attempt.to_owned();
    let status: Option<u16> = words.get(..3).and_then(|digits| digits.parse().ok());
    if FULL.iter().any(|code| words.contains(code)) {
        return RemoteError::Full { source };
    }
    let is_denied =
        matches!(error, StoreFailure::PermissionDenied { .. } | StoreFailure::Unauthenticated { .. })
            || DENIED.iter().any(|code| words.contains(code));
    match status {
        _ if is_denied => RemoteError::Denied { attempt, source },
        Some(status) if status >= 500 || status == 429 || status == 408 => {
            RemoteError::Unreachable { what: "bytes", source }
        }
        Some(_) => RemoteError::Server { attempt, source },
        None if words == "no credentials were found" => RemoteError::Denied { attempt, source },
        None if matches!(error, StoreFailure::Generic { .. }) && !text.contains("Missing") => {
            RemoteError::Unreachable { what: "bytes", source }
        }
        None => RemoteError::Server { attempt, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> StoreFailure {
        StoreFailure::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn bodies_and_addresses_are_not_shown() {
        let body = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code>\
                    <AWSAccessKeyId>hunter2</AWSAccessKeyId></Error>";
        let error = failed("read a pack", &generic(body));
        assert!(matches!(error, RemoteError::Denied { .. }), "{error:?}");
        let shown = format!("{error} {error:?} {}", error.source().unwrap());
        assert!(shown.contains("SignatureDoesNotMatch") && !shown.contains("hunter2"), "{shown}");
        let error = failed("read", &generic("error sending request for url (https://x/?sig=hunter2)"));
        assert!(error.is_transient() && !format!("{error:?}").contains("hunter2"));
    }

    #[test]
    fn a_full_server_is_not_retried() {
        let body = "status code: 507 Insufficient Storage: <Error><Code>XMinioStorageFull</Code></Error>";
        assert!(matches!(failed("upload", &generic(body)), RemoteError::Full { .. }));
        assert!(failed("upload", &generic("status code: 503 Service Unavailable: x")).is_transient());
        assert!(!failed("upload", &generic("status code: 400 Bad Request: x")).is_transient());
    }
}
