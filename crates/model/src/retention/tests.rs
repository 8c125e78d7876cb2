use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn candidate(number: u128, created_at: Timestamp) -> Candidate {
    Candidate { id: CheckpointId::from_bits(number), created_at, role: None, pinned: false, needed: None }
}

fn policy(keep_last: u64, keep_within: &str, thin_daily_for: &str) -> Policy {
    Policy {
        keep_last,
        keep_within: keep_within.parse().unwrap(),
        thin_daily_for: thin_daily_for.parse().unwrap(),
    }
}

/// Returns the reasons as text, prefixed with `-` for dropped ones.
fn said(candidates: &[Candidate], policy: &Policy, now: Timestamp) -> Vec<String> {
    let text = |verdict: RetentionVerdict| format!("{}{verdict}", if verdict.is_keep() { "" } else { "-" });
    decide(candidates, policy, now).into_iter().map(|(_, verdict)| text(verdict)).collect()
}

#[test]
fn each_verdict_says_why() {
    let now = at("2026-10-20T12:00:00Z");
    let rollback = RollbackId::from_bits(7);
    let mut candidates: Vec<Candidate> = [
        "2026-10-20T11:00:00Z", // the newest
        "2026-10-01T10:00:00Z", // one of the last two
        "2026-10-19T12:00:01Z", // young
        "2026-10-19T12:00:00Z", // no longer young, and another one of its day is kept
        "2026-10-03T23:59:59Z", // daily checkpoint
        "2026-10-03T00:00:00Z",
        "2026-10-02T23:59:59Z",
        "2026-09-20T12:00:00Z", // too old
        "2026-09-20T12:00:00Z", // pinned
        "2026-09-20T12:00:00Z", // head
        "2026-09-20T12:00:00Z", // needed
        "2026-09-20T12:00:00Z", // needed to undo
    ]
    .iter()
    .enumerate()
    .map(|(number, text)| candidate(number as u128, at(text)))
    .collect();
    candidates[8].pinned = true;
    candidates[9].needed = Some(Needed::Head);
    candidates[10].needed = Some(Needed::UnfinishedRollback(rollback));
    candidates[11].needed = Some(Needed::Undo(rollback));
    let id = |number: usize| candidates[number].id;
    assert_eq!(
        said(&candidates, &policy(2, "1d", "30d"), now),
        [
            "the newest".to_owned(),
            "one of the last 2".to_owned(),
            "made within the last 1 day".to_owned(),
            format!("-not the daily checkpoint for 2026-10-19: {} is kept", id(2)),
            "daily checkpoint for 2026-10-03".to_owned(),
            format!("-not the daily checkpoint for 2026-10-03: {} is kept", id(4)),
            "daily checkpoint for 2026-10-02".to_owned(),
            "-older than 30 days".to_owned(),
            "pinned".to_owned(),
            "base of the current state".to_owned(),
            format!("needed by the unfinished rollback {rollback}"),
            format!("needed to undo rollback {rollback}"),
        ]
    );
}

#[test]
fn a_policy_that_keeps_nothing_keeps_the_newest() {
    let now = at("2026-10-20T12:00:00Z");
    let candidates = [candidate(2, now), candidate(1, now)];
    assert_eq!(said(&candidates, &policy(0, "0s", "0s"), now), ["the newest", "-only the newest is kept"]);
    assert_eq!(said(&candidates[..1], &policy(0, "0s", "0s"), now), ["the newest"]);
    let older = [candidates[0], candidates[1], candidate(0, now)];
    assert_eq!(said(&older, &policy(2, "0s", "0s"), now)[2], "-not one of the last 2");
    assert!(decide(&[], &Policy::default(), now).is_empty());
}

#[test]
fn the_default_keeps_a_hundred_a_week_and_a_month_of_days() {
    let now = at("2026-10-20T12:00:00Z");
    // One every hour, for sixty days.
    let hour = 3_600_000_000;
    let candidates: Vec<Candidate> = (0..1_440)
        .map(|back| {
            candidate(back, Timestamp::from_micros(now.micros() - i64::try_from(back).unwrap() * hour))
        })
        .collect();
    let kept =
        decide(&candidates, &Policy::default(), now).iter().filter(|(_, verdict)| verdict.is_keep()).count();
    // 168 within the week; the day at its edge has its youngest among them; then one for each of the 23 days
    // before it.
    assert_eq!(kept, 168 + 23);
}

#[test]
fn a_month_of_safety_checkpoints_pushes_no_ordinary_one_out() {
    let now = at("2026-10-20T12:00:00Z");
    let old = at("2020-01-01T00:00:00Z");
    let mut candidates: Vec<Candidate> = (0..500)
        .map(|number| Candidate { role: Some(Role::Safety), ..candidate(1_000 + number, now) })
        .collect();
    candidates.extend((0..100).map(|number| candidate(number, old)));
    candidates.push(Candidate { role: Some(Role::Rescue), ..candidate(9_999, old) });
    let verdicts = decide(&candidates, &Policy::default(), now);
    assert!(verdicts[..600].iter().all(|(_, verdict)| verdict.is_keep()));
    assert!(!verdicts[600].1.is_keep());
    // And in reverse order.
    let young = candidate(1, now);
    let rescue = Candidate { role: Some(Role::Rescue), ..candidate(2, old) };
    assert_eq!(said(&[young, rescue], &policy(1, "0s", "0s"), now), ["the newest", "the newest"]);
}

#[test]
fn a_moment_in_the_future_counts_as_now_and_stands_for_no_other_day() {
    let now = at("2026-10-20T12:00:00Z");
    let future = candidate(2, at("2031-01-01T00:00:00Z"));
    let candidates = [candidate(3, now), future, candidate(1, at("2026-10-20T08:00:00Z"))];
    let policy = policy(0, "1h", "30d");
    let verdicts = said(&candidates, &policy, now);
    assert_eq!(verdicts[1], "made within the last 1 hour");
    // Those of today are thinned among themselves.
    assert!(verdicts[2].starts_with("-not the daily checkpoint for 2026-10-20"), "{verdicts:?}");
    assert_eq!(said(&[future, candidates[2]], &policy, now)[1], "daily checkpoint for 2026-10-20");
}

#[test]
fn days_are_those_of_utc_even_before_1970() {
    assert_eq!(Day::of(at("1969-12-31T23:59:59.999999Z")).to_string(), "1969-12-31");
    assert_eq!(Day::of(at("1970-01-01T00:00:00Z")).to_string(), "1970-01-01");
    assert_eq!(Day::of(Timestamp::from_micros(i64::MIN)).to_string(), "0001-01-01");
    assert!(Day::of(Timestamp::from_micros(i64::MAX)).to_string().starts_with("9999-12-"));
}

#[test]
fn the_greater_of_two_policies_keeps_what_either_keeps() {
    let (one, two) = (policy(5, "1d", "60d"), policy(3, "9d", "30d"));
    assert_eq!(one.or_more(two), policy(5, "9d", "60d"));
    assert_eq!(Policy::default().or_more(policy(0, "0s", "0s")), Policy::DEFAULT);
}

#[test]
fn verdicts_as_json_name_the_reason() {
    let verdict = RetentionVerdict::Keep(KeepReason::Within(Span::from_days(7)));
    assert_eq!(serde_json::to_string(&verdict).unwrap(), r#"{"keep":{"within":"7d"}}"#);
    let verdict = RetentionVerdict::Keep(KeepReason::OneOfDay(Day::of(at("2026-10-03T01:00:00Z"))));
    assert_eq!(serde_json::to_string(&verdict).unwrap(), r#"{"keep":{"one_of_day":"2026-10-03"}}"#);
}

/// The laws hold for any clock: times in any order, many in one hour, some in the future.
fn any_candidates() -> impl Strategy<Value = Vec<Candidate>> {
    let half_hour = 1_800_000_000i64;
    let one = (-96 * 30..96i64, 0..6u8, prop::bool::weighted(0.05), prop::bool::weighted(0.05));
    prop::collection::vec(one, 0..60).prop_map(move |drawn| {
        let make = |(number, (half_hours, role, pinned, needed)): (usize, (i64, u8, bool, bool))| Candidate {
            role: match role {
                0 => Some(Role::Safety),
                1 => Some(Role::Rescue),
                _ => None,
            },
            pinned,
            needed: needed.then_some(Needed::Head),
            ..candidate(number as u128, Timestamp::from_micros(now().micros() + half_hours * half_hour))
        };
        drawn.into_iter().enumerate().map(make).collect()
    })
}

fn now() -> Timestamp {
    at("2026-10-20T12:34:56Z")
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (0..20u64, 0..20u64, 0..70u64).prop_map(|(keep_last, days, daily)| Policy {
        keep_last,
        keep_within: Span::from_seconds(days * 43_200),
        thin_daily_for: Span::from_days(daily),
    })
}

fn kept(candidates: &[Candidate], policy: &Policy, now: Timestamp) -> BTreeSet<CheckpointId> {
    let verdicts = decide(candidates, policy, now).into_iter();
    verdicts.filter(|(_, verdict)| verdict.is_keep()).map(|(id, _)| id).collect()
}

proptest! {
    #[test]
    fn pinned_newest_and_needed_ones_and_the_last_always_stay(
        candidates in any_candidates(), policy in any_policy(),
    ) {
        let kept = kept(&candidates, &policy, now());
        for candidate in candidates.iter().filter(|candidate| candidate.pinned || candidate.needed.is_some()) {
            prop_assert!(kept.contains(&candidate.id));
        }
        for with_role in [false, true] {
            let list = candidates.iter().filter(|candidate| candidate.role.is_some() == with_role);
            for candidate in list.take(usize::try_from(policy.keep_last.max(1)).unwrap()) {
                prop_assert!(kept.contains(&candidate.id));
            }
        }
    }

    #[test]
    fn deciding_again_about_what_was_kept_drops_nothing(candidates in any_candidates(), policy in any_policy()) {
        let first = kept(&candidates, &policy, now());
        let left: Vec<Candidate> =
            candidates.into_iter().filter(|candidate| first.contains(&candidate.id)).collect();
        prop_assert_eq!(kept(&left, &policy, now()), first);
    }

    #[test]
    fn what_may_go_now_may_go_later(
        candidates in any_candidates(), policy in any_policy(), hours in 0..2_000i64,
    ) {
        let later = Timestamp::from_micros(now().micros() + hours * 3_600_000_000);
        prop_assert!(kept(&candidates, &policy, later).is_subset(&kept(&candidates, &policy, now())));
    }

    #[test]
    fn a_greater_policy_keeps_no_less(
        candidates in any_candidates(), one in any_policy(), two in any_policy(),
    ) {
        let both = kept(&candidates, &one.or_more(two), now());
        prop_assert!(kept(&candidates, &one, now()).is_subset(&both));
        prop_assert!(kept(&candidates, &two, now()).is_subset(&both));
    }

    #[test]
    fn the_last_ones_are_the_same_whatever_the_clocks_said(
        candidates in any_candidates(), keep_last in 0..20u64, shuffled in any_candidates(),
    ) {
        let policy = Policy { keep_last, keep_within: Span::ZERO, thin_daily_for: Span::ZERO };
        let mut other = candidates.clone();
        for (candidate, odd) in other.iter_mut().zip(shuffled) {
            candidate.created_at = odd.created_at;
        }
        prop_assert_eq!(kept(&candidates, &policy, now()), kept(&other, &policy, now()));
    }

    #[test]
    fn every_day_in_the_window_keeps_one(candidates in any_candidates(), policy in any_policy()) {
        let kept = kept(&candidates, &policy, now());
        for candidate in &candidates {
            let age = (now().micros() - candidate.created_at.micros()).max(0).unsigned_abs();
            let day = Day::of(candidate.created_at);
            let stands_for_it = |other: &&Candidate| {
                other.role.is_some() == candidate.role.is_some() && Day::of(other.created_at) == day
            };
            if age < policy.thin_daily_for.micros() {
                prop_assert!(candidates.iter().filter(stands_for_it).any(|other| kept.contains(&other.id)));
            }
        }
    }
}
