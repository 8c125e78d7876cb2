//! Command line from the user's view: output, streams and exit code, in an isolated environment.

#![allow(clippy::disallowed_methods, reason = "tests set up folders and start the program")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]
#![allow(clippy::too_many_lines, reason = "tests hold the whole output of each command")]

mod answers;
mod clock;
mod complete;
mod databases;
mod diff;
mod doctor;
mod empty;
mod everyday;
mod fleet;
mod git;
mod help;
mod history;
mod hook_course;
mod hook_failures;
mod hook_notes;
mod hooks;
mod install;
mod json;
mod layouts;
mod list;
mod long_work;
mod man;
mod names;
mod odd;
mod outside;
mod pager;
mod parts;
mod paths;
mod plan;
mod plan_answers;
mod plan_back;
mod plan_correct;
mod plan_live;
mod plan_run;
mod plan_sandbox;
mod plan_story;
mod remote;
mod requirements;
mod rollback;
mod rpc;
mod run;
mod run_watch;
mod sandbox;
mod schemas;
mod search;
mod session;
mod terminal;
mod upkeep;
mod validate;
mod way;
mod whole;
mod world;
mod wrong;
