//! Runtime: one thread for network requests. Async code never leaves this crate.
//!
//! In: futures with a limit of time. Out: their results, to blocking callers of any thread.

use crate::RemoteError;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Runtime shared by both halves of a remote.
#[derive(Clone)]
pub(crate) struct Network(Arc<tokio::runtime::Runtime>);

impl Network {
    pub(crate) fn start() -> Result<Self, RemoteError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(RemoteError::Runtime)?;
        Ok(Self(Arc::new(runtime)))
    }

    /// Runs a future to its end.
    pub(crate) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        self.0.block_on(future)
    }

    /// Runs a future to its end, or returns `None` after this time.
    pub(crate) fn within<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        self.0.block_on(async { tokio::time::timeout(limit, future).await.ok() })
    }
}
