//! Plans and todo lists that agents report, and decisions of the user.
//!
//! Read after a tool succeeded: before it, or when it failed, the agent's own list is unchanged.

use super::json::{Fields, cut, whole};
use super::{sql, tools};
use serde_json::{Map, Value};

const STEPS_MAX: usize = 500;
const STEP_BYTES_MAX: usize = 2 << 10;
const DECISIONS_MAX: usize = 50;

/// Plan or todo list that an agent reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanReport {
    /// Extent of the report.
    pub extent: PlanExtent,
    /// Steps in the agent's order.
    pub steps: Vec<ReportedStep>,
}

/// Extent of a reported plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlanExtent {
    /// The steps are the whole list; a step that is missing was removed.
    Whole,
    /// The steps are new or changed; others stay.
    Part,
}

/// Step of a reported plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedStep {
    /// Id in the agent's list, if it has ids. A step without an id is known by its text.
    pub id: Option<String>,
    /// Text; absent if only the status changed.
    pub text: Option<String>,
    /// Status; absent if only the text changed.
    pub status: Option<ReportedStatus>,
}

/// Status of a reported step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedStatus {
    /// Not started.
    Pending,
    /// Started.
    InProgress,
    /// Completed.
    Completed,
    /// Waiting for another step or the user.
    Blocked,
    /// Given up or removed.
    Cancelled,
}

/// Decision of the user that an agent's question shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportedDecision {
    /// Question.
    pub question: String,
    /// Answer.
    pub answer: String,
}

impl ReportedStatus {
    pub(super) fn parse(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().replace(['-', ' '], "_").as_str() {
            "pending" | "todo" | "open" | "not_started" => Self::Pending,
            "in_progress" | "active" | "doing" | "started" => Self::InProgress,
            "completed" | "complete" | "done" => Self::Completed,
            "blocked" | "paused" => Self::Blocked,
            "cancelled" | "canceled" | "deleted" | "skipped" => Self::Cancelled,
            _ => return None,
        })
    }
}

/// Returns the plan that an event reports.
pub(super) fn report(fields: Fields<'_>, event: &str) -> Option<PlanReport> {
    if event == "todo.updated" {
        return listed(fields, "todos", PlanExtent::Whole);
    }
    let input = tools::input(fields);
    let input = Fields(&input);
    match tools::tool(fields) {
        "TodoWrite" if input.0.get("merge") == Some(&Value::Bool(true)) => {
            listed(input, "todos", PlanExtent::Part)
        }
        "TodoWrite" | "todowrite" | "write_todos" => listed(input, "todos", PlanExtent::Whole),
        "update_plan" => listed(input, "plan", PlanExtent::Whole),
        "update_todo" => whole_list(in_markdown(input.text(&["todos"])?)),
        "ExitPlanMode" | "exit_plan_mode" => {
            let response = fields.inner("tool_response");
            let text = input.text(&["plan"]).or_else(|| response?.text(&["plan"]))?;
            whole_list(in_markdown(text))
        }
        "TaskCreate" => part(vec![created_task(input, fields)]),
        "TaskUpdate" => {
            let id = Some(id_text(input.get(&["taskId", "task_id"])?)?);
            part(vec![ReportedStep { id, ..step(input) }])
        }
        "create_goal" | "update_goal" => part(vec![goal(input)]),
        "sql" => part(sql::todos(input.text(&["query"])?)),
        _ => None,
    }
}

fn part(steps: Vec<ReportedStep>) -> Option<PlanReport> {
    (!steps.is_empty()).then_some(PlanReport { extent: PlanExtent::Part, steps })
}

fn whole_list(steps: Vec<ReportedStep>) -> Option<PlanReport> {
    (!steps.is_empty()).then_some(PlanReport { extent: PlanExtent::Whole, steps })
}

/// Returns the steps of a list of objects. An empty list is a report too: all steps were removed.
fn listed(fields: Fields<'_>, name: &str, extent: PlanExtent) -> Option<PlanReport> {
    let steps = fields.get(&[name])?.as_array()?.iter().filter_map(Value::as_object);
    let steps =
        steps.map(|entry| step(Fields(entry))).filter(|step| step.id.is_some() || step.text.is_some());
    Some(PlanReport { extent, steps: steps.take(STEPS_MAX).collect() })
}

fn step(fields: Fields<'_>) -> ReportedStep {
    let text = fields.text(&["content", "description", "step", "subject", "title", "text"]);
    ReportedStep {
        id: fields.get(&["id"]).and_then(id_text),
        text: text.and_then(step_text),
        status: fields.text(&["status"]).and_then(ReportedStatus::parse),
    }
}

pub(super) fn step_text(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| cut(text, STEP_BYTES_MAX).to_owned())
}

fn id_text(id: &Value) -> Option<String> {
    match id {
        Value::String(text) => whole(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Returns a task with the id that the answer gives it.
fn created_task(input: Fields<'_>, fields: Fields<'_>) -> ReportedStep {
    let response = fields.inner("tool_response");
    let answered = response.map(|response| response.inner("task").unwrap_or(response));
    let id = answered.and_then(|task| task.get(&["id", "taskId"])).and_then(id_text);
    let text = input.text(&["subject", "description"]).and_then(step_text);
    ReportedStep { id, text, status: Some(ReportedStatus::Pending) }
}

/// Returns the goal of a session as the step `goal`.
fn goal(input: Fields<'_>) -> ReportedStep {
    let text = input.text(&["objective", "goal"]).and_then(step_text);
    let started = text.as_ref().map(|_| ReportedStatus::InProgress);
    let status = input.text(&["status"]).and_then(ReportedStatus::parse).or(started);
    ReportedStep { id: Some("goal".to_owned()), text, status }
}

/// Returns the items of lists in a Markdown text. Nested items are part of the item above.
fn in_markdown(text: &str) -> Vec<ReportedStep> {
    let items = text.lines().filter_map(|line| {
        let number = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
        let bullet = ["- ", "* ", "+ "].iter().find_map(|mark| line.strip_prefix(mark));
        let numbered =
            || (number.len() < line.len()).then(|| number.strip_prefix(". ").or(number.strip_prefix(") ")));
        let item = bullet.or_else(|| numbered().flatten())?.trim_start();
        let boxes = [
            ("[ ] ", ReportedStatus::Pending),
            ("[x] ", ReportedStatus::Completed),
            ("[X] ", ReportedStatus::Completed),
        ];
        let ticked = boxes.iter().find_map(|(mark, status)| Some((item.strip_prefix(mark)?, *status)));
        let (text, status) = ticked.unwrap_or((item, ReportedStatus::Pending));
        Some(ReportedStep { id: None, text: Some(step_text(text)?), status: Some(status) })
    });
    items.take(STEPS_MAX).collect()
}

/// Returns the decisions that the answers to an agent's questions show.
pub(super) fn decisions(fields: Fields<'_>) -> Vec<ReportedDecision> {
    let asking = ["AskUserQuestion", "request_user_input", "ask_user", "question"];
    if !asking.contains(&tools::tool(fields)) {
        return Vec::new();
    }
    let input = tools::input(fields);
    let response = fields.get(&["tool_response", "toolResult", "tool_output"]);
    let answered = response.and_then(Value::as_object).map(Fields);
    let answers = answered.and_then(|response| response.inner("answers"));
    let one = || {
        let result = answered?.text(&["textResultForLlm", "answer", "output"]);
        decision(Fields(&input).text(&["question"])?, result?)
    };
    match answers {
        Some(answers) => spoken(answers.0).take(DECISIONS_MAX).collect(),
        None => one().into_iter().collect(),
    }
}

fn spoken(answers: &Map<String, Value>) -> impl Iterator<Item = ReportedDecision> {
    answers.iter().filter_map(|(question, answer)| match answer {
        Value::String(answer) => decision(question, answer),
        Value::Array(answers) => {
            let answers: Vec<&str> = answers.iter().filter_map(Value::as_str).collect();
            decision(question, &answers.join(", "))
        }
        _ => None,
    })
}

fn decision(question: &str, answer: &str) -> Option<ReportedDecision> {
    Some(ReportedDecision { question: step_text(question)?, answer: step_text(answer)? })
}
