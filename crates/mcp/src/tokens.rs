//! Preview tokens: a rollback happens only as it was previewed.
//!
//! A token is single-use, expires, and is bound to the target and the current state of the workspace. Tokens are in
//! the memory of this process, so they are bound to its workspace, too.

use crate::input::OthersInput;
use safepoint::{Environment, Failure, FailureKind, SystemEnvironment};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lifetime of a token.
const VALID_FOR: Duration = Duration::from_secs(600);
/// Maximum number of tokens; the oldest one is dropped first.
const TOKENS_MAX: usize = 64;

/// Action that a token allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Intent {
    Rollback { to: String, paths: Vec<String> },
    Undo,
    Redo,
    Keep { attempt: String, others: OthersInput },
}

/// Previewed action, with the state that was previewed.
#[derive(Debug, Clone)]
pub(crate) struct Previewed {
    pub(crate) intent: Intent,
    /// Fingerprint of the workspace; of a keep with its effect.
    pub(crate) tree: String,
    /// Effect, for the question to the user.
    pub(crate) summary: String,
}

#[derive(Debug, Default)]
pub(crate) struct Tokens {
    issued: Mutex<HashMap<String, (Instant, Previewed)>>,
}

/// Returns 32 random bytes as text.
pub(crate) fn secret() -> String {
    let environment = SystemEnvironment::default();
    format!("{:032x}{:032x}", environment.random_bits(), environment.random_bits())
}

/// Failure for a token that allows nothing any more.
pub(crate) fn stale(message: &str) -> Failure {
    Failure {
        code: "stale_preview",
        kind: FailureKind::Conflict,
        message: message.to_owned(),
        causes: Vec::new(),
        hints: vec!["Nothing was changed. Call `preview` again and use its token.".to_owned()],
    }
}

impl Tokens {
    fn issued(&self) -> MutexGuard<'_, HashMap<String, (Instant, Previewed)>> {
        let mut issued = self.issued.lock().unwrap_or_else(PoisonError::into_inner);
        issued.retain(|_, (at, _)| at.elapsed() < VALID_FOR);
        issued
    }

    /// Issues a token.
    pub(crate) fn issue(&self, previewed: Previewed) -> String {
        let token = secret();
        let mut issued = self.issued();
        if issued.len() >= TOKENS_MAX
            && let Some(oldest) = issued.iter().min_by_key(|(_, (at, _))| *at).map(|(token, _)| token.clone())
        {
            issued.remove(&oldest);
        }
        issued.insert(token.clone(), (Instant::now(), previewed));
        token
    }

    /// Returns the action of a token, which stays valid.
    pub(crate) fn peek(&self, token: &str) -> Result<Previewed, Failure> {
        let found = self.issued().get(token).map(|(_, previewed)| previewed.clone());
        found.ok_or_else(|| stale("the token is unknown, used or expired"))
    }

    /// Returns the action of a token and invalidates the token.
    pub(crate) fn redeem(&self, token: &str) -> Result<Previewed, Failure> {
        let found = self.issued().remove(token).map(|(_, previewed)| previewed);
        found.ok_or_else(|| stale("the token is unknown, used or expired"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn previewed() -> Previewed {
        Previewed { intent: Intent::Undo, tree: "t".to_owned(), summary: String::new() }
    }

    #[test]
    fn a_token_is_redeemed_once() {
        let tokens = Tokens::default();
        let token = tokens.issue(previewed());
        assert!(tokens.peek(&token).is_ok() && tokens.peek(&token).is_ok());
        assert_eq!(tokens.redeem(&token).unwrap().intent, Intent::Undo);
        assert_eq!(tokens.redeem(&token).unwrap_err().code, "stale_preview");
        assert!(tokens.redeem("guess").is_err());
    }

    #[test]
    fn a_token_expires() {
        let tokens = Tokens::default();
        let token = tokens.issue(previewed());
        let then = Instant::now().checked_sub(VALID_FOR).unwrap();
        tokens.issued.lock().unwrap().get_mut(&token).unwrap().0 = then;
        assert!(tokens.peek(&token).is_err());
    }

    #[test]
    fn the_number_of_tokens_is_bounded() {
        let tokens = Tokens::default();
        let all: Vec<String> = (0..TOKENS_MAX + 3).map(|_| tokens.issue(previewed())).collect();
        assert_eq!(tokens.issued().len(), TOKENS_MAX);
        assert!(tokens.peek(&all[0]).is_err() && tokens.peek(&all[TOKENS_MAX + 2]).is_ok());
        assert_eq!(all[0].len(), 64);
    }
}
