//! `version`.

use crate::cli::Context;
use crate::cli::output::Reply;
use crate::json;
use crate::problem::Problem;
use serde_json::json;

pub(crate) fn run(context: &Context) -> Result<Reply, Problem> {
    let version = env!("CARGO_PKG_VERSION");
    context.out.line(format!("safepoint {version}"));
    Ok(Reply::done(json!({ "version": version, "json": json::VERSION })))
}
