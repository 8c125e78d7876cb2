//! Failures as problem details (RFC 9457): one status for each code.

use crate::body::{Answered, full};
use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use safepoint::{Failure, FailureKind};
use serde_json::{Value, json};

/// Page of the codes.
const PAGE: &str = "https://github.com/safepoint/safepoint/blob/main/docs/";

/// Codes of the server itself, with their status. `docs/page.md` explains them.
pub const OWN_CODES: &[(&str, u16)] = &[
    ("unauthorized", 401),
    ("forbidden", 403),
    ("read_only", 403),
    ("no_commands", 403),
    ("no_route", 404),
    ("no_job", 404),
    ("no_method", 405),
    ("too_large", 413),
    ("too_many_jobs", 423),
];

/// Status of a failure: by its code where that says more than the kind.
pub fn status(failure: &Failure) -> u16 {
    match (failure.code, failure.kind) {
        ("stale_preview", _) => 412,
        (_, FailureKind::Usage) => 400,
        (_, FailureKind::NotFound) => 404,
        (_, FailureKind::Conflict) => 409,
        (_, FailureKind::Busy) => 423,
        _ => 500,
    }
}

/// Failure of a request.
#[derive(Debug)]
pub(crate) enum Problem {
    /// Of a command.
    Failure(Box<Failure>),
    /// Of the server itself.
    Own { code: &'static str, detail: String, hint: String },
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Problem::Failure(Box::new(failure))
    }
}

impl Problem {
    pub(crate) fn own(code: &'static str, detail: impl Into<String>, hint: &str) -> Self {
        debug_assert!(OWN_CODES.iter().any(|(known, _)| *known == code), "{code} is not in the table");
        Problem::Own { code, detail: detail.into(), hint: hint.to_owned() }
    }

    /// Invalid request.
    pub(crate) fn usage(detail: impl Into<String>) -> Self {
        let hints = vec!["docs/schemas/web-api.openapi.json describes every request.".to_owned()];
        let (code, kind, causes) = ("bad_input", FailureKind::Usage, Vec::new());
        Failure { code, kind, message: detail.into(), causes, hints }.into()
    }

    /// Preview that cannot be confirmed.
    pub(crate) fn stale(message: &str) -> Self {
        let hints = vec!["Nothing was changed. Look at a new preview, then confirm that one.".to_owned()];
        let (code, kind, causes) = ("stale_preview", FailureKind::Conflict, Vec::new());
        Failure { code, kind, message: message.to_owned(), causes, hints }.into()
    }

    pub(crate) fn unauthorized() -> Self {
        Self::own(
            "unauthorized",
            "the key is missing or wrong",
            "Run safepoint ui again, and open its address.",
        )
    }

    pub(crate) fn forbidden(detail: &str) -> Self {
        Self::own("forbidden", detail, "Open the page by the address that safepoint ui printed.")
    }

    pub(crate) fn no_route() -> Self {
        Self::own("no_route", "there is no such address", "The API begins with /api/v1.")
    }

    pub(crate) fn status(&self) -> u16 {
        match self {
            Problem::Failure(failure) => status(failure),
            Problem::Own { code, .. } => {
                OWN_CODES.iter().find(|(known, _)| known == code).map_or(500, |(_, status)| *status)
            }
        }
    }

    /// The document.
    pub(crate) fn json(&self) -> Value {
        let status = self.status();
        match self {
            Problem::Failure(failure) => {
                let kind = serde_json::to_value(failure.kind).unwrap_or_default();
                json!({
                    "type": format!("{PAGE}errors.md#{}", failure.code),
                    "title": kind, "status": status, "code": failure.code, "kind": kind,
                    "detail": failure.message, "causes": failure.causes, "hints": failure.hints,
                })
            }
            Problem::Own { code, detail, hint } => json!({
                "type": format!("{PAGE}page.md#{code}"),
                "title": "denied", "status": status, "code": code, "kind": "denied",
                "detail": detail, "causes": [], "hints": [hint],
            }),
        }
    }

    pub(crate) fn answer(&self) -> Answered {
        let status = StatusCode::from_u16(self.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = full(status, self.json().to_string().into_bytes());
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        answer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const KINDS: [FailureKind; 8] = [
        FailureKind::Failed,
        FailureKind::Usage,
        FailureKind::NotFound,
        FailureKind::Busy,
        FailureKind::Conflict,
        FailureKind::Damaged,
        FailureKind::Interrupted,
        FailureKind::Internal,
    ];

    fn kind(word: &str) -> Option<FailureKind> {
        KINDS.into_iter().find(|kind| serde_json::to_value(kind).unwrap() == word)
    }

    #[test]
    fn every_code_has_one_status() {
        let page = include_str!("../../../docs/errors.md");
        let mut statuses: BTreeMap<&str, u16> = BTreeMap::new();
        for row in page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | ")) {
            let (code, rest) = row;
            // A failure half way has the kind of its cause.
            let Some(kind) = kind(rest.split(" | ").next().unwrap()) else { continue };
            let code: &'static str = Box::leak(code.to_owned().into_boxed_str());
            let (message, causes, hints) = (String::new(), Vec::new(), Vec::new());
            let status = status(&Failure { code, kind, message, causes, hints });
            assert!([400, 404, 409, 412, 423, 500].contains(&status), "{code}");
            assert_eq!(*statuses.entry(code).or_insert(status), status, "{code}");
        }
        assert!(statuses.len() > 60, "{statuses:?}");
        let stale: Vec<_> = statuses.iter().filter(|(_, status)| **status == 412).collect();
        assert_eq!(stale, [(&"stale_preview", &412)]);
        for (code, _) in OWN_CODES {
            assert!(!statuses.contains_key(code), "{code} is a code of the library, too");
            assert_eq!(OWN_CODES.iter().filter(|(other, _)| other == code).count(), 1, "{code}");
        }
    }

    #[test]
    fn the_page_about_the_server_lists_its_codes() {
        let page = include_str!("../../../docs/page.md");
        for (code, status) in OWN_CODES {
            assert!(page.contains(&format!("| `{code}` | {status} | ")), "{code}");
        }
    }
}
