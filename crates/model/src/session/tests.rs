use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(1_763_193_600_000_000 + seconds * 1_000_000)
}

fn session() -> Session {
    Session::new(SessionId::from_bits(7), "Add rate limiting".to_owned(), at(0))
}

/// Transition table: every allowed transition, and no other.
const TABLE: [(&str, &str); 9] = [
    ("initializing", "planning failed paused"),
    ("planning", "generating_tasks failed paused"),
    ("generating_tasks", "implementing failed paused"),
    ("implementing", "validating failed paused"),
    ("validating", "generating_report implementing failed paused"),
    ("generating_report", "completed failed paused"),
    ("completed", ""),
    ("failed", ""),
    // Back to the status before the pause, here implementing.
    ("paused", "implementing failed"),
];

#[test]
fn transitions_are_those_of_the_table_and_no_others() {
    assert_eq!(
        TABLE.map(|row| row.0).to_vec(),
        SessionStatus::ALL.iter().map(|it| it.as_str()).collect::<Vec<_>>()
    );
    for (from, allowed) in TABLE {
        let from: SessionStatus = from.parse().unwrap();
        let allowed: Vec<SessionStatus> =
            allowed.split_whitespace().map(|word| word.parse().unwrap()).collect();
        for to in SessionStatus::ALL.iter().copied() {
            let mut session = session();
            session.status = from;
            session.paused_from = (from == SessionStatus::Paused).then_some(SessionStatus::Implementing);
            let before = session.clone();
            let result = session.go(to, at(9));
            assert_eq!(result.is_ok(), allowed.contains(&to), "{from} to {to}");
            match result {
                Ok(()) => assert_eq!((session.status, session.updated_at), (to, at(9))),
                Err(rule) => {
                    assert_eq!(
                        rule,
                        SessionRule::Transition { id: before.id, from, to, allowed: allowed.clone() }
                    );
                    assert_eq!(session, before);
                }
            }
        }
    }
}

#[test]
fn a_refused_transition_says_what_is_wrong() {
    let mut session = session();
    let error = session.go(SessionStatus::Completed, at(1)).unwrap_err();
    let id = session.id.to_uuid();
    assert_eq!(error.to_string(), format!("session {id} is initializing and cannot become completed"));
}

#[test]
fn a_paused_session_goes_on_where_it_was() {
    let mut session = session();
    session.go(SessionStatus::Planning, at(1)).unwrap();
    session.go(SessionStatus::Paused, at(2)).unwrap();
    assert_eq!(session.paused_from, Some(SessionStatus::Planning));
    session.go(SessionStatus::Planning, at(3)).unwrap();
    assert_eq!((session.paused_from, session.finished_at), (None, None));
}

#[test]
fn it_lasts_until_it_is_over() {
    let mut session = session();
    assert_eq!(session.duration_micros(at(5)), 5_000_000);
    assert_eq!(session.duration_micros(at(-5)), 0);
    session.go(SessionStatus::Failed, at(8)).unwrap();
    assert_eq!(session.finished_at, Some(at(8)));
    assert_eq!(session.duration_micros(at(100)), 8_000_000);
}

#[test]
fn each_thing_is_counted_in_its_own_place() {
    let mut session = session();
    for (times, what) in [
        SessionCount::TaskDone,
        SessionCount::TaskFailed,
        SessionCount::Decision,
        SessionCount::Checkpoint,
        SessionCount::Recovery,
    ]
    .into_iter()
    .enumerate()
    {
        (0..=times).for_each(|_| session.count(what, at(4)));
    }
    let counted = serde_json::to_value(session.statistics).unwrap();
    let expected = json!({
        "tasks_completed": 1, "tasks_failed": 2, "decisions_made": 3, "checkpoints_created": 4, "error_recoveries": 5,
    });
    assert_eq!((counted, session.updated_at), (expected, at(4)));
}

fn key(path: &str, value: Value) -> SessionChange {
    SessionChange::ConfigurationKey { path: path.split('.').map(str::to_owned).collect(), value }
}

#[test]
fn what_may_be_changed_is_changed() {
    let mut session = session();
    let map = |value: Value| value.as_object().unwrap().clone();
    for change in [
        SessionChange::Request("Something else".to_owned()),
        SessionChange::Configuration(map(json!({ "old": 1 }))),
        key("limits.rate", json!(100)),
        key("limits.burst", json!({ "a": [1, null] })),
        key("limits.burst.a", json!("b")),
        SessionChange::GitContext(Some(map(json!({ "branch": "main" })))),
    ] {
        session.change(change, at(3)).unwrap();
    }
    assert_eq!(session.request, "Something else");
    let expected = json!({ "old": 1, "limits": { "rate": 100, "burst": { "a": "b" } } });
    assert_eq!(Value::Object(session.configuration.clone()), expected);
    assert_eq!(session.git_context, Some(map(json!({ "branch": "main" }))));
    session.change(SessionChange::GitContext(None), at(4)).unwrap();
    assert_eq!((session.git_context, session.updated_at), (None, at(4)));
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let mut deep = json!(1);
    (0..=CONTEXT_DEPTH_MAX).for_each(|_| deep = json!([deep.take()]));
    let mut long = Map::new();
    long.insert("a".to_owned(), json!("x".repeat(SETTINGS_BYTES_MAX)));
    for (change, expected) in [
        (SessionChange::Request(" \n".to_owned()), "invalid request: it is empty"),
        (SessionChange::Request("a\0b".to_owned()), "invalid request: text must not contain NUL"),
        (
            SessionChange::Request("x".repeat(REQUEST_BYTES_MAX + 1)),
            "invalid request: it has 65537 bytes; the maximum is 65536",
        ),
        (key("deep", deep), "invalid configuration: values may nest at most 32 levels deep"),
        (key("a..b", json!(1)), "invalid configuration: a key is empty"),
        (
            SessionChange::ConfigurationKey { path: Vec::new(), value: json!(1) },
            "invalid configuration: the key is missing",
        ),
        (key("known.below", json!(1)), "invalid configuration: known is not an object"),
        (
            SessionChange::GitContext(Some(long)),
            "invalid git context: it has 262152 bytes; the maximum is 262144",
        ),
    ] {
        let mut session = session();
        session.configuration.insert("known".to_owned(), json!(1));
        assert_eq!(session.change(change, at(1)).unwrap_err().to_string(), expected);
    }
    let path = vec!["k".to_owned(); CONTEXT_DEPTH_MAX * 8];
    let change = SessionChange::ConfigurationKey { path, value: json!(1) };
    assert!(session().change(change, at(1)).is_err());
}

proptest! {
    #[test]
    fn whatever_is_tried_a_session_stays_on_the_way(tries in vec(0..SessionStatus::ALL.len(), 0..60)) {
        let mut session = session();
        let mut seconds = 0;
        for to in tries.into_iter().map(|at| SessionStatus::ALL[at]) {
            seconds += 1;
            let before = session.clone();
            let allowed = before.status.may_become(before.paused_from);
            if session.go(to, at(seconds)).is_err() {
                prop_assert!(!allowed.contains(&to));
                prop_assert_eq!(&session, &before);
                continue;
            }
            prop_assert!(!before.status.is_over());
            prop_assert_eq!(session.paused_from.is_some(), session.status == SessionStatus::Paused);
            prop_assert_eq!(session.finished_at.is_some(), session.status.is_over());
            // Every status that is not final can fail and, unless paused, pause.
            let next = session.status.may_become(session.paused_from);
            prop_assert_eq!(next.is_empty(), session.status.is_over());
            prop_assert_eq!(next.contains(&SessionStatus::Failed), !session.status.is_over());
            // No phase is skipped: one step forward, the one way back, or the status before the pause.
            if !matches!(to, SessionStatus::Failed | SessionStatus::Paused) {
                let from = before.paused_from.unwrap_or(before.status);
                let step = i64::from(to as u8) - i64::from(from as u8);
                let back = (from, to) == (SessionStatus::Validating, SessionStatus::Implementing);
                let on = before.status == SessionStatus::Paused && step == 0;
                prop_assert!(on || back || (before.status != SessionStatus::Paused && step == 1));
            }
        }
    }
}
