//! `version`.

use crate::commands::Context;
use crate::problem::Problem;
use crate::render::json;
use crate::render::output::Reply;
use serde_json::json;

pub(crate) fn run(context: &Context) -> Result<Reply, Problem> {
    let version = env!("CARGO_PKG_VERSION");
    context.out.line(format!("safepoint {version}"));
    Ok(Reply::done(json!({ "version": version, "json": json::VERSION })))
}
