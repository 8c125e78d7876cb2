//! To come.
use crate::cli::Context;
use crate::cli::args::DemoArgs;
use crate::cli::output::Reply;
use crate::problem::Problem;
pub(crate) fn run(_: &Context, _: &DemoArgs) -> Result<Reply, Problem> {
    Err(Problem::not_available("demo", ""))
}
