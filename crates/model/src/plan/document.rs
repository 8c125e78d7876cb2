//! Storage of a plan as objects: one document that refers to pages, so that a checkpoint of a large plan
//! costs only the changes.
//!
//! The same plan gives the same objects, so the id of the first object is the hash of the whole state.

use super::state::{Decision, Plan, Step};
use crate::{ObjectError, ObjectId, ObjectSink, ObjectSource, document};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Maximum number of items on a page, and of pages under one.
const PAGE_ITEMS: usize = 64;
/// More levels than any list that fits in memory.
const DEPTH_MAX: usize = 8;
/// More pages than any list that fits in memory. A page can be referenced many times, so a few objects can
/// expand to any number.
const PAGES_MAX: usize = 65_536;

/// Content of the first document.
#[derive(Debug, Serialize, Deserialize)]
struct PlanDocument {
    /// Plan without its lists.
    head: Plan,
    steps: ObjectId,
    decisions: ObjectId,
    context: ObjectId,
    outputs: ObjectId,
}

/// Page of a list: its items, or the pages below it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Page<T> {
    Items(Vec<T>),
    Pages(Vec<ObjectId>),
}

/// Stores a plan. The resulting id is the hash of the state.
///
/// # Errors
/// When the sink fails.
pub fn store(sink: &dyn ObjectSink, plan: &Plan) -> Result<ObjectId, ObjectError> {
    let document = PlanDocument {
        head: plan.head(),
        steps: store_list(sink, &plan.steps)?,
        decisions: store_list(sink, &plan.decisions)?,
        context: store_list(sink, &plan.context.iter().collect::<Vec<_>>())?,
        outputs: store_list(sink, &plan.outputs.iter().collect::<Vec<_>>())?,
    };
    document::store(sink, &document)
}

/// Loads a plan.
///
/// # Errors
/// When an object is missing, damaged or of a newer version.
pub fn load(source: &dyn ObjectSource, id: ObjectId) -> Result<Plan, ObjectError> {
    let document: PlanDocument = document::load(source, id)?;
    if document.head.format != Plan::FORMAT {
        let what = format!("its format {} is unsupported", document.head.format);
        return Err(ObjectError::Damaged { id, what });
    }
    let mut plan = document.head;
    plan.steps = load_list::<Step>(source, document.steps)?;
    plan.decisions = load_list::<Decision>(source, document.decisions)?;
    plan.context = load_list::<(String, Value)>(source, document.context)?.into_iter().collect();
    plan.outputs = load_list::<(String, Value)>(source, document.outputs)?.into_iter().collect();
    Ok(plan)
}

/// Visits every object of a plan. Objects below one for which `visit` returns false are skipped.
///
/// # Errors
/// When an object that refers to others is missing or damaged.
pub fn objects(
    source: &dyn ObjectSource,
    id: ObjectId,
    visit: &mut dyn FnMut(ObjectId) -> bool,
) -> Result<(), ObjectError> {
    if !visit(id) {
        return Ok(());
    }
    let document: PlanDocument = document::load(source, id)?;
    let lists = [document.steps, document.decisions, document.context, document.outputs];
    let mut pages: Vec<(ObjectId, usize)> = lists.into_iter().map(|list| (list, 0)).collect();
    while let Some((page, depth)) = pages.pop() {
        if !visit(page) {
            continue;
        }
        if let Page::Pages(below) = load_page::<Value>(source, page, depth)? {
            pages.extend(below.into_iter().map(|page| (page, depth + 1)));
        }
    }
    // The log of a step is an object, too.
    for step in load_list::<Step>(source, document.steps)? {
        if let Some(log) = step.log {
            visit(log);
        }
    }
    Ok(())
}

fn store_list<T: Serialize>(sink: &dyn ObjectSink, items: &[T]) -> Result<ObjectId, ObjectError> {
    let mut pages = Vec::new();
    for items in items.chunks(PAGE_ITEMS) {
        pages.push(document::store(sink, &Page::Items(items.iter().collect()))?);
    }
    if pages.is_empty() {
        return document::store(sink, &Page::<T>::Items(Vec::new()));
    }
    while pages.len() > 1 {
        let mut above = Vec::new();
        for below in pages.chunks(PAGE_ITEMS) {
            above.push(document::store(sink, &Page::<T>::Pages(below.to_vec()))?);
        }
        pages = above;
    }
    Ok(pages.remove(0))
}

fn load_page<T: DeserializeOwned>(
    source: &dyn ObjectSource,
    id: ObjectId,
    depth: usize,
) -> Result<Page<T>, ObjectError> {
    if depth > DEPTH_MAX {
        return Err(ObjectError::Damaged { id, what: "its pages are nested too deeply".to_owned() });
    }
    document::load(source, id)
}

fn load_list<T: DeserializeOwned>(source: &dyn ObjectSource, id: ObjectId) -> Result<Vec<T>, ObjectError> {
    let (mut items, mut pages, mut seen) = (Vec::new(), vec![(id, 0)], 0);
    while let Some((page, depth)) = pages.pop() {
        seen += 1;
        if seen > PAGES_MAX {
            return Err(ObjectError::Damaged { id, what: "it has too many pages".to_owned() });
        }
        match load_page(source, page, depth)? {
            Page::Items(more) => items.extend(more),
            // Taken from the end, so they are pushed in reverse.
            Page::Pages(below) => pages.extend(below.into_iter().rev().map(|page| (page, depth + 1))),
        }
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::tests::Memory;
    use crate::plan::spec::{PlanSpec, StepSpec};
    use crate::{ObjectKind, Timestamp};
    use serde_json::json;
    use std::collections::HashSet;

    fn decision(number: usize) -> Decision {
        Decision {
            id: crate::id::DecisionId::from_bits(number as u128),
            question: format!("question {number}"),
            choice: "yes".to_owned(),
            alternatives: vec!["no".to_owned()],
            rationale: None,
            parent: None,
            depends_on: Vec::new(),
            step: None,
            made_at: Timestamp::from_micros(number as i64),
        }
    }

    fn large() -> Plan {
        let steps = (0..1_000).map(|number| StepSpec::new(format!("s{number}"))).collect();
        let spec = PlanSpec { steps, ..PlanSpec::new("Large") };
        let mut plan = Plan::new("large".to_owned(), &spec);
        plan.decisions = (0..10_000).map(decision).collect();
        plan.context.insert("key".to_owned(), json!({"deep": [1, 2, null]}));
        plan.outputs.insert("out".to_owned(), json!("text"));
        plan
    }

    fn all(memory: &Memory, id: ObjectId) -> HashSet<ObjectId> {
        let mut found = HashSet::new();
        objects(memory, id, &mut |id| found.insert(id)).unwrap();
        found
    }

    #[test]
    fn a_plan_reads_back_and_its_name_is_its_state() {
        let memory = Memory::default();
        let plan = large();
        let id = store(&memory, &plan).unwrap();
        assert_eq!(load(&memory, id).unwrap(), plan);
        assert_eq!(store(&memory, &plan).unwrap(), id);
        let empty = Plan::new("e".to_owned(), &PlanSpec::new("Empty"));
        let empty_id = store(&memory, &empty).unwrap();
        assert_eq!(load(&memory, empty_id).unwrap(), empty);
        assert_ne!(empty_id, id);
    }

    #[test]
    fn a_change_costs_what_changed_and_not_the_plan() {
        let memory = Memory::default();
        let mut plan = large();
        let before = all(&memory, store(&memory, &plan).unwrap());
        assert!(before.len() > 170);
        plan.decisions.push(decision(10_000));
        plan.steps[500].attempts = 1;
        let after = all(&memory, store(&memory, &plan).unwrap());
        assert!(after.difference(&before).count() <= 7, "{}", after.difference(&before).count());
    }

    #[test]
    fn what_a_step_printed_belongs_to_the_plan() {
        let memory = Memory::default();
        let mut plan = large();
        let log = memory.put(ObjectKind::Chunk, b"printed").unwrap();
        plan.steps[0].log = Some(log);
        assert!(all(&memory, store(&memory, &plan).unwrap()).contains(&log));
    }

    #[test]
    fn hostile_documents_are_damage() {
        let memory = Memory::default();
        let mut page = document::store(&memory, &Page::<Step>::Items(Vec::new())).unwrap();
        for _ in 0..20 {
            page = document::store(&memory, &Page::<Step>::Pages(vec![page])).unwrap();
        }
        let head = Plan::new("p".to_owned(), &PlanSpec::new("Plan"));
        let document = |head: &Plan| PlanDocument {
            head: head.clone(),
            steps: page,
            decisions: page,
            context: page,
            outputs: page,
        };
        let deep = document::store(&memory, &document(&head)).unwrap();
        assert!(matches!(load(&memory, deep), Err(ObjectError::Damaged { .. })));
        assert!(objects(&memory, deep, &mut |_| true).is_err());
        let newer = document::store(&memory, &document(&Plan { format: 2, ..head })).unwrap();
        assert!(matches!(load(&memory, newer), Err(ObjectError::Damaged { .. })));
    }

    #[test]
    fn more_pages_than_any_plan_has_are_damage() {
        let memory = Memory::default();
        let mut page = document::store(&memory, &Page::<Step>::Items(Vec::new())).unwrap();
        // Three objects that expand to a quarter of a million pages; with more levels it would never end.
        for _ in 0..3 {
            page = document::store(&memory, &Page::<Step>::Pages(vec![page; PAGE_ITEMS])).unwrap();
        }
        let head = Plan::new("p".to_owned(), &PlanSpec::new("Plan"));
        let wide = PlanDocument { head, steps: page, decisions: page, context: page, outputs: page };
        let wide = document::store(&memory, &wide).unwrap();
        assert!(matches!(load(&memory, wide), Err(ObjectError::Damaged { .. })));
    }
}
