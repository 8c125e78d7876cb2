//! The door: a one-time token, the key that it is traded for, and the checks that keep other pages out.
//!
//! No cookie: cookies ignore ports, so that another server on this machine would get ours.

use crate::problem::Problem;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::HeaderMap;
use hyper::header::{AUTHORIZATION, HOST, ORIGIN};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Life of the token.
const TOKEN_LIFE: Duration = Duration::from_secs(60);
/// Bytes of a secret before its encoding.
const SECRET_BYTES: usize = 32;

/// Rights of all clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rights {
    /// Nothing is written: neither the workspace nor the home.
    pub read_only: bool,
    /// Clients may name commands to run.
    pub allow_commands: bool,
}

/// Token and key.
#[derive(Debug)]
pub(crate) struct Door {
    trade: Mutex<Trade>,
    token_life: Duration,
}

#[derive(Debug)]
struct Trade {
    token: String,
    made: Instant,
    key: Option<String>,
    ended: bool,
}

/// Returns a random text that is safe in addresses.
pub(crate) fn secret() -> Result<String, getrandom::Error> {
    let mut bytes = [0; SECRET_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Compares in a time that does not depend on the content.
fn same(given: &[u8], known: &[u8]) -> bool {
    let differs = given.iter().zip(known).fold(0, |all, (one, other)| all | (one ^ other));
    given.len() == known.len() && differs == 0
}

impl Door {
    pub(crate) fn new() -> Result<Self, getrandom::Error> {
        let trade = Trade { token: secret()?, made: Instant::now(), key: None, ended: false };
        Ok(Self { trade: Mutex::new(trade), token_life: TOKEN_LIFE })
    }

    pub(crate) fn token(&self) -> String {
        self.trade.lock().unwrap_or_else(PoisonError::into_inner).token.clone()
    }

    /// Trades the token for a key. A second use ends both: someone else has the token.
    pub(crate) fn trade(&self, given: &str) -> Result<String, Problem> {
        let mut trade = self.trade.lock().unwrap_or_else(PoisonError::into_inner);
        if trade.ended || !same(given.as_bytes(), trade.token.as_bytes()) {
            return Err(Problem::unauthorized());
        }
        if trade.key.is_some() || trade.made.elapsed() > self.token_life {
            trade.ended = true;
            trade.key = None;
            return Err(Problem::unauthorized());
        }
        let key = secret().map_err(|_| Problem::unauthorized())?;
        trade.key = Some(key.clone());
        Ok(key)
    }

    /// Checks the key of a request.
    pub(crate) fn admit(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let given = given.and_then(|given| given.split_at_checked(7));
        let trade = self.trade.lock().unwrap_or_else(PoisonError::into_inner);
        match (given, &trade.key) {
            (Some((scheme, given)), Some(key))
                if scheme.eq_ignore_ascii_case(b"bearer ") && same(given, key.as_bytes()) =>
            {
                Ok(())
            }
            _ => Err(Problem::unauthorized()),
        }
    }
}

/// Kind of a request, by what other pages could do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visit {
    /// The page itself: it may be opened from anywhere, and shows nothing without the key.
    Page,
    /// The API.
    Api,
}

/// Refuses requests that another page could have made, and names that another server could have bound to our address.
pub(crate) fn check_source(headers: &HeaderMap, visit: Visit) -> Result<(), Problem> {
    let text =
        |name| headers.get(name).map(|value: &hyper::header::HeaderValue| value.to_str().unwrap_or("?"));
    let host = text(HOST).unwrap_or("");
    if headers.get_all(HOST).iter().count() != 1 || !is_loopback(host) {
        return Err(Problem::forbidden("the Host is not a loopback name"));
    }
    if let Some(origin) = text(ORIGIN)
        && origin != format!("http://{host}")
    {
        return Err(Problem::forbidden("the Origin is not this server"));
    }
    let site = headers.get("sec-fetch-site").map(|value| value.as_bytes());
    let is_ours = match site {
        None | Some(b"same-origin") => true,
        Some(b"none") => visit == Visit::Page,
        Some(_) => {
            let mode = headers.get("sec-fetch-mode").map(|value| value.as_bytes());
            visit == Visit::Page && mode == Some(b"navigate")
        }
    };
    match is_ours {
        true => Ok(()),
        false => Err(Problem::forbidden("the request comes from another site")),
    }
}

/// Returns true for a loopback name. The port may differ: ssh may forward another one.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_port =
        port.is_none_or(|port| port.parse::<u16>().is_ok() && port.bytes().all(|it| it.is_ascii_digit()));
    is_port && (matches!(name, "127.0.0.1" | "[::1]") || name.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn headers(rows: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        rows.iter().for_each(|(name, value)| {
            map.append(*name, HeaderValue::from_static(value));
        });
        map
    }

    #[test]
    fn a_token_works_once_and_a_second_use_ends_the_key() {
        let door = Door::new().unwrap();
        assert!(door.trade("wrong").is_err());
        let key = door.trade(&door.token()).unwrap();
        let mut with = HeaderMap::new();
        with.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {key}")).unwrap());
        assert!(door.admit(&with).is_ok());
        assert!(door.trade("wrong").is_err(), "a guess ends nothing");
        assert!(door.admit(&with).is_ok());
        assert!(door.trade(&door.token()).is_err());
        assert!(door.admit(&with).is_err(), "the key ended with the second use");
        assert!(door.trade(&door.token()).is_err());
    }

    #[test]
    fn a_token_expires() {
        let door = Door { token_life: Duration::ZERO, ..Door::new().unwrap() };
        std::thread::sleep(Duration::from_millis(2));
        assert!(door.trade(&door.token()).is_err());
    }

    #[test]
    fn only_loopback_names_are_hosts() {
        for host in ["localhost", "localhost:80", "127.0.0.1:7", "[::1]", "[::1]:9", "LOCALHOST:1"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.test",
            "evil.test:80",
            "localhost.evil.test",
            "127.0.0.1.evil.test",
            "127.0.0.1:x",
            "::1",
            "127.0.0.2",
            "localhost:",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn requests_of_other_pages_are_refused() {
        let host = ("host", "127.0.0.1:7");
        let api = |rows: &[(&'static str, &'static str)]| check_source(&headers(rows), Visit::Api).is_ok();
        let page = |rows: &[(&'static str, &'static str)]| check_source(&headers(rows), Visit::Page).is_ok();
        assert!(api(&[host]));
        assert!(api(&[host, ("origin", "http://127.0.0.1:7"), ("sec-fetch-site", "same-origin")]));
        for bad in [
            ("origin", "http://127.0.0.1:8"),
            ("origin", "http://localhost:7"),
            ("origin", "https://127.0.0.1:7"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", "none"),
        ] {
            assert!(!api(&[host, bad]), "{bad:?}");
        }
        assert!(!api(&[]) && !api(&[host, host]));
        assert!(page(&[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")]));
        assert!(!page(&[host, ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")]));
    }
}
