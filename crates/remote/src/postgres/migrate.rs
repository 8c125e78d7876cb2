//! Migrations: a line of their own, applied only by `remote init` and `remote migrate`.
//!
//! The schema expands first and contracts later: functions of older protocols stay until their clients are
//! gone. All migrations share one transaction. Connect directly, not through a pooler.

use super::PostgresRecords;
use super::link::{PgFailure, refused};
use crate::RemoteError;
use safepoint_planted::planted;
use tokio_postgres::Client;

mod embedded {
    refinery::embed_migrations!("migrations");
}

/// Returns the version of the schema that this program knows.
pub fn records_schema() -> u32 {
    let known = embedded::migrations::runner();
    known.get_migrations().iter().map(|it| u32::try_from(it.version()).unwrap_or(0)).max().unwrap_or(0)
}

/// Role that owns the schema, if it exists: so that row-level security holds for the functions, too.
pub(crate) const OWNER: &str = "safepoint_owner";

const PREPARE: &str = "
    SELECT set_config('role', rolname, false) FROM pg_roles WHERE rolname = 'safepoint_owner';
    SELECT set_config('search_path', 'safepoint, pg_temp', false);
";

impl PostgresRecords {
    /// Creates or updates the schema, and returns the number of applied migrations. Needs the right to create
    /// schemas in the database, or the SQL of [`super::roles_sql`] applied by an administrator before.
    ///
    /// # Errors
    /// When the role lacks a right, or a migration fails; then the schema is unchanged.
    pub fn migrate(&self) -> Result<usize, RemoteError> {
        let attempt = "migrate the records";
        self.patient.network().run(async {
            let mut client = self.patient.connect().await.map_err(|error| refused(&error, attempt))?;
            prepare(&client).await.map_err(|error| refused(&error, attempt))?;
            let mut runner = embedded::migrations::runner().set_grouped(true);
            runner.set_migration_table_name("safepoint.schema_history");
            let report = runner.run_async(&mut client).await.map_err(|error| {
                let text =
                    std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                RemoteError::Migrate { source: Box::new(PgFailure(text)) }
            })?;
            plant(&client).await.map_err(|error| refused(&error, attempt))?;
            Ok(report.applied_migrations().len())
        })
    }

    /// Creates the project; this role becomes its administrator. An existing one stays.
    ///
    /// # Errors
    /// When the role does not own the schema.
    pub fn create_project(&self) -> Result<(), RemoteError> {
        let attempt = "create the project";
        self.patient.network().run(async {
            let client = self.patient.connect().await.map_err(|error| refused(&error, attempt))?;
            client.batch_execute(PREPARE).await.map_err(|error| refused(&error, attempt))?;
            let name = self.project.as_str();
            let sql = "SELECT safepoint.create_project_1($1::text, '{}')";
            let types =
                [(&name as &(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type::TEXT)];
            client.query_typed_one(sql, &types).await.map_err(|error| refused(&error, attempt))?;
            Ok(())
        })
    }

    /// Returns the protocols of the schema.
    pub(crate) fn protocols(&self) -> Result<Vec<u32>, RemoteError> {
        let attempt = "read the protocols of the remote";
        self.link.network().run(async {
            let client = self.link.connect().await.map_err(|error| refused(&error, attempt))?;
            let row = client.query_typed_one("SELECT safepoint.protocols()", &[]).await;
            match row.and_then(|row| row.try_get::<_, Vec<i32>>(0)) {
                Ok(protocols) => Ok(protocols.into_iter().filter_map(|it| u32::try_from(it).ok()).collect()),
                Err(error) if error.as_db_error().is_some() => match error.code().map(|code| code.code()) {
                    Some("42883" | "3F000" | "42P01" | "42501") => Err(RemoteError::NotInitialized),
                    _ => Err(refused(&error, attempt)),
                },
                Err(error) => Err(refused(&error, attempt)),
            }
        })
    }
}

async fn prepare(client: &Client) -> Result<(), tokio_postgres::Error> {
    let found = client.query_typed("SELECT FROM pg_namespace WHERE nspname = 'safepoint'", &[]).await?;
    let owner = client.query_typed("SELECT FROM pg_roles WHERE rolname = 'safepoint_owner'", &[]).await?;
    if found.is_empty() {
        let of_owner = format!("CREATE SCHEMA safepoint AUTHORIZATION {OWNER}");
        let sql = if owner.is_empty() { "CREATE SCHEMA safepoint" } else { &of_owner };
        client.batch_execute(sql).await?;
    }
    client.batch_execute(PREPARE).await
}

/// Replaces parts of functions by planted bugs, in debug builds of tests.
async fn plant(client: &Client) -> Result<(), tokio_postgres::Error> {
    let mut wrong: Vec<(&str, &str, &str)> = Vec::new();
    if planted!("remote-no-lock") {
        wrong.push(("publish_1", "PERFORM pg_advisory_xact_lock_shared(23294, v_project);", ""));
        wrong.push(("condemn_1", "PERFORM pg_advisory_xact_lock(23294, v_project);", ""));
    }
    if planted!("remote-seq-not-compared") {
        let condition = "AND token = v_token AND seq = v_seq\n            AND chain = v_call->>'base_chain'";
        wrong.push(("publish_1", condition, "AND token = v_token"));
    }
    if planted!("remote-token-not-compared") {
        wrong.push(("publish_1", "AND token = v_token AND seq = v_seq\n", "AND seq = v_seq\n"));
    }
    for (function, part, by) in wrong {
        let name = format!("safepoint.{function}(text, text)");
        let types =
            [(&name as &(dyn tokio_postgres::types::ToSql + Sync), tokio_postgres::types::Type::TEXT)];
        let row = client.query_typed_one("SELECT pg_get_functiondef($1::regprocedure)", &types).await?;
        let text: String = row.try_get(0)?;
        client.batch_execute(&text.replace(part, by)).await?;
    }
    Ok(())
}
