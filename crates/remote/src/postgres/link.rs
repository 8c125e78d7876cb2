//! Link: one connection to PostgreSQL, opened when needed, and again after it broke.
//!
//! A call is one statement with one text parameter, in one round trip, so that a pooler in transaction mode
//! can route it. Every call may be repeated, so an answer that was lost is asked for again.

use super::place::{Place, Transport};
use crate::runtime::Network;
use crate::{RemoteError, tls};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::error::Error as _;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

const CONNECT_LIMIT: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Failure of a server, without anything that it was sent.
#[derive(Debug)]
pub(crate) struct PgFailure(pub(crate) String);

impl fmt::Display for PgFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PgFailure {}

/// Treatment of a failed statement.
enum Verdict {
    /// The answer was lost, or the server cannot serve now: the same request may be sent again.
    Again(PgFailure),
    Final(RemoteError),
}

/// Limits of time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// For one statement.
    pub(crate) statement: Duration,
    /// For all attempts.
    pub(crate) all: Duration,
}

/// Connection to a server.
pub(crate) struct Link {
    network: Network,
    place: Place,
    tls: Option<MakeRustlsConnect>,
    client: Mutex<Option<Client>>,
    pub(crate) patience: Patience,
}

impl Link {
    pub(crate) fn new(network: Network, place: Place, patience: Patience) -> Result<Self, RemoteError> {
        let tls = match place.transport {
            Transport::Plain => None,
            Transport::Tls => {
                Some(MakeRustlsConnect::new(tls::configuration("records", place.roots.as_deref())?))
            }
        };
        Ok(Self { network, place, tls, client: Mutex::default(), patience })
    }

    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    fn config(&self) -> Config {
        let mut config = Config::new();
        for (host, port) in &self.place.hosts {
            config.host(host).port(*port);
        }
        if let Some(user) = &self.place.user {
            config.user(user);
        }
        if let Some(database) = &self.place.database {
            config.dbname(database);
        }
        if let Some(password) = &self.place.password {
            config.password(&password.0);
        }
        if self.place.hosts.len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let mode = match self.place.transport {
            Transport::Plain => tokio_postgres::config::SslMode::Disable,
            Transport::Tls => tokio_postgres::config::SslMode::Require,
        };
        config.ssl_mode(mode).application_name("safepoint").connect_timeout(CONNECT_LIMIT);
        config.keepalives_idle(Duration::from_secs(30)).tcp_user_timeout(self.patience.statement);
        config
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let config = self.config();
        match &self.tls {
            None => {
                let (client, connection) = config.connect(NoTls).await?;
                // It ends when the client is dropped.
                tokio::spawn(async { drop(connection.await) });
                Ok(client)
            }
            Some(tls) => {
                let (client, connection) = config.connect(tls.clone()).await?;
                tokio::spawn(async { drop(connection.await) });
                Ok(client)
            }
        }
    }

    /// Calls a function of the schema until it is answered.
    pub(crate) fn call<T: DeserializeOwned>(
        &self,
        attempt: &str,
        function: &str,
        project: &str,
        call: &impl Serialize,
    ) -> Result<Option<T>, RemoteError> {
        let call = serde_json::to_string(call)
            .map_err(|error| RemoteError::damaged("a request", error.to_string()))?;
        let sql = format!("SELECT safepoint.{function}($1::text, $2::text)");
        let began = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
            let failure = match self.once(&mut client, &sql, project, &call) {
                Ok(None) => return Ok(None),
                Ok(Some(text)) => {
                    let wrong = |error: serde_json::Error| {
                        RemoteError::damaged("an answer of the records", error.to_string())
                    };
                    return serde_json::from_str(&text).map(Some).map_err(wrong);
                }
                Err(failure) => failure,
            };
            drop(client);
            match verdict(failure, attempt) {
                Verdict::Final(error) => return Err(error),
                Verdict::Again(source) if began.elapsed() + pause > self.patience.all => {
                    return Err(RemoteError::Unreachable { what: "records", source: Box::new(source) });
                }
                Verdict::Again(_) => std::thread::sleep(pause),
            }
            pause *= 2;
        }
    }

    fn once(
        &self,
        slot: &mut Option<Client>,
        sql: &str,
        project: &str,
        call: &str,
    ) -> Result<Option<String>, Option<tokio_postgres::Error>> {
        let statement = async {
            let client = match slot.take() {
                Some(client) if !client.is_closed() => client,
                _ => self.connect().await?,
            };
            let row = client.query_typed_one(sql, &[(&project, Type::TEXT), (&call, Type::TEXT)]).await;
            // After a refusal by the server the connection is good; otherwise it is dropped.
            if row.as_ref().err().is_none_or(|error| error.as_db_error().is_some()) {
                *slot = Some(client);
            }
            row?.try_get(0)
        };
        match self.network.within(self.patience.statement + CONNECT_LIMIT, statement) {
            Some(result) => result.map_err(Some),
            None => Err(None),
        }
    }
}

/// Classifies a failure; `None` is a timeout.
fn verdict(failure: Option<tokio_postgres::Error>, attempt: &str) -> Verdict {
    let Some(error) = failure else { return Verdict::Again(PgFailure("timed out".to_owned())) };
    let Some(refusal) = error.as_db_error() else {
        // The text of the sources names addresses and system errors alone.
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(inner) = source {
            text = format!("{text}: {inner}");
            source = inner.source();
        }
        let is_config = error.to_string().starts_with("invalid configuration");
        return match is_config {
            true => Verdict::Final(RemoteError::Denied {
                attempt: attempt.to_owned(),
                source: Box::new(PgFailure(text)),
            }),
            false => Verdict::Again(PgFailure(text)),
        };
    };
    let code = refusal.code().code();
    let source = PgFailure(format!("{} ({code})", refusal.message()));
    match code {
        "SP001" => Verdict::Final(RemoteError::NoProject { project: String::new() }),
        // The schema or the function is missing.
        "42883" | "3F000" | "42P01" => Verdict::Final(RemoteError::NotInitialized),
        "42501" => {
            Verdict::Final(RemoteError::Denied { attempt: attempt.to_owned(), source: Box::new(source) })
        }
        _ if code.starts_with("28") => {
            Verdict::Final(RemoteError::Denied { attempt: attempt.to_owned(), source: Box::new(source) })
        }
        // Connection failures, shutdown, a standby, a database closed for now, too many connections, deadlocks.
        "25006" | "40001" | "40P01" | "53300" | "55000" | "57014" => Verdict::Again(source),
        _ if code.starts_with("08") || code.starts_with("57P") => Verdict::Again(source),
        _ => Verdict::Final(RemoteError::Server { attempt: attempt.to_owned(), source: Box::new(source) }),
    }
}

/// Returns a failure of a migration or of a plain statement.
pub(crate) fn refused(error: &tokio_postgres::Error, attempt: &str) -> RemoteError {
    let text = error.as_db_error().map_or_else(|| error.to_string(), |refusal| refusal.message().to_owned());
    let source = Box::new(PgFailure(text));
    match error.code().map(|code| code.code()) {
        Some(code) if code == "42501" || code.starts_with("28") => {
            RemoteError::Denied { attempt: attempt.to_owned(), source }
        }
        Some(_) => RemoteError::Server { attempt: attempt.to_owned(), source },
        None => RemoteError::Unreachable { what: "records", source },
    }
}
