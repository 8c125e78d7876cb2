//! Selects the plan steps to show when space is short: those around the activity; counts the rest.

use safepoint::model::plan::state::{Plan, Step, StepState};

/// One row of the tree.
#[derive(Debug, PartialEq)]
pub(super) enum Row<'p> {
    /// A step; with the number of steps below it where they are folded away.
    Step(&'p Step, usize),
    /// So many rows that are not shown.
    More(usize),
}

/// The tree in at most so many rows.
pub(super) fn cut(plan: &Plan, rows_max: usize) -> Vec<Row<'_>> {
    let all = &plan.steps;
    if all.len() <= rows_max {
        return all.iter().map(|step| Row::Step(step, 0)).collect();
    }
    let rows = folded(all);
    // Each gap costs a row itself, so that fewer and fewer steps are tried until all fits.
    (1..=rows_max.min(rows.len()))
        .rev()
        .map(|count| around(&rows, count))
        .find(|shown| shown.len() <= rows_max)
        .unwrap_or_default()
}

/// Subplans in which nothing happens are one row each.
fn folded(all: &[Step]) -> Vec<(&Step, usize)> {
    let mut rows = Vec::new();
    let mut at = 0;
    while let Some(step) = all.get(at) {
        let inside =
            |other: &&Step| other.path.strip_prefix(&step.path).is_some_and(|rest| rest.starts_with('/'));
        let below = all[at + 1..].iter().take_while(inside).count();
        let still = matches!(step.state, StepState::Done | StepState::Pending);
        let hidden = if still { below } else { 0 };
        rows.push((step, hidden));
        at += 1 + hidden;
    }
    rows
}

/// The rows nearest to what happens, so many of them, and the gaps between.
fn around<'p>(rows: &[(&'p Step, usize)], count: usize) -> Vec<Row<'p>> {
    let happens = |at: &usize| !matches!(rows[*at].0.state, StepState::Done | StepState::Pending);
    let mut centres: Vec<usize> = (0..rows.len()).filter(happens).collect();
    if centres.is_empty() {
        // Between two steps the next one is the centre.
        let next = rows.iter().position(|(step, _)| step.state == StepState::Pending);
        centres.push(next.unwrap_or(rows.len().saturating_sub(1)));
    }
    let distance = |at: &usize| centres.iter().map(|centre| centre.abs_diff(*at)).min();
    let mut nearest: Vec<usize> = (0..rows.len()).collect();
    nearest.sort_by_key(distance);
    nearest.truncate(count);
    nearest.sort_unstable();
    let mut shown = Vec::new();
    let mut next = 0;
    for at in nearest {
        gap(rows, next, at, &mut shown);
        shown.push(Row::Step(rows[at].0, rows[at].1));
        next = at + 1;
    }
    gap(rows, next, rows.len(), &mut shown);
    shown
}

fn gap<'p>(rows: &[(&'p Step, usize)], from: usize, to: usize, shown: &mut Vec<Row<'p>>) {
    match &rows[from..to] {
        [] => {}
        // One row takes no more room than to say that it is missing.
        [(step, below)] => shown.push(Row::Step(step, *below)),
        hidden => shown.push(Row::More(hidden.iter().map(|(_, below)| 1 + below).sum())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safepoint::model::plan::spec::{PlanSpec, StepSpec};

    /// Ten subplans of a hundred steps each; so many of the first are done, and one runs.
    fn plan(done: usize, running: Option<usize>) -> Plan {
        let step = |id: String| StepSpec { run: Some("true".to_owned()), ..StepSpec::new(id) };
        let sub = |number: usize| StepSpec {
            steps: (0..100).map(|below| step(format!("s{}", number * 100 + below))).collect(),
            ..StepSpec::new(format!("sub{number}"))
        };
        let spec = PlanSpec { steps: (0..10).map(sub).collect(), ..PlanSpec::new("Large") };
        let mut plan = Plan::new("large".to_owned(), &spec);
        let number = |step: &Step| step.spec.id.strip_prefix('s').and_then(|id| id.parse::<usize>().ok());
        for step in &mut plan.steps {
            match number(step) {
                Some(at) if at < done => step.state = StepState::Done,
                Some(at) if Some(at) == running => step.state = StepState::Running,
                _ => {}
            }
        }
        for at in 0..10 {
            let state = match running {
                _ if done >= (at + 1) * 100 => StepState::Done,
                Some(running) if running / 100 == at => StepState::Running,
                _ => StepState::Pending,
            };
            let path = format!("sub{at}");
            plan.steps.iter_mut().filter(|step| step.path == path).for_each(|step| step.state = state);
        }
        plan
    }

    fn names(rows: &[Row<'_>]) -> Vec<String> {
        let name = |row: &Row<'_>| match row {
            Row::Step(step, 0) => step.path.clone(),
            Row::Step(step, below) => format!("{} +{below}", step.path),
            Row::More(count) => format!("... {count}"),
        };
        rows.iter().map(name).collect()
    }

    #[test]
    fn what_fits_is_whole_and_what_does_not_is_counted() {
        let large = plan(250, Some(250));
        let shown = cut(&large, 12);
        assert_eq!(
            names(&shown),
            [
                "sub0 +100",
                "sub1 +100",
                "sub2",
                "sub2/s200",
                "sub2/s201",
                "... 46",
                "sub2/s248",
                "sub2/s249",
                "sub2/s250",
                "sub2/s251",
                "sub2/s252",
                "... 754",
            ]
        );
        assert!(cut(&large, 2000).iter().all(|row| matches!(row, Row::Step(_, 0))));
        assert_eq!(cut(&large, 2000).len(), 1010);
    }

    #[test]
    fn however_small_the_room_and_wherever_the_plan_is_every_step_is_accounted_for() {
        for (done, running) in
            [(0, None), (0, Some(0)), (99, Some(99)), (555, None), (999, Some(999)), (1000, None)]
        {
            let plan = plan(done, running);
            for rows_max in 3..60 {
                let shown = cut(&plan, rows_max);
                assert!(shown.len() <= rows_max, "{rows_max}: {:?}", names(&shown));
                let all: usize = shown
                    .iter()
                    .map(|row| match row {
                        Row::Step(_, below) => 1 + below,
                        Row::More(count) => *count,
                    })
                    .sum();
                assert_eq!(all, 1010, "{rows_max}: {:?}", names(&shown));
                let wanted = running.map(|at| format!("sub{}/s{at}", at / 100));
                let seen = names(&shown);
                assert!(
                    wanted.is_none_or(|wanted| seen.contains(&wanted) || rows_max < 6),
                    "{rows_max}: {seen:?}"
                );
            }
        }
    }
}
