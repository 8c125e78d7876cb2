//! Laws of object stores, for every server.

use crate::world::{Place, environment, rclone, seaweed, unique};
use safepoint_model::progress::Silent;
use safepoint_remote::{
    ConditionalPut, FolderBytes, ObjectBytes, RemoteBytes, RemoteEnvironment, RemoteError,
};
use safepoint_testkit::servers::S3Server;
use std::fs::File;
use std::io::Write;
use tempfile::TempDir;

fn open(place: Place, folder: &TempDir) -> Option<Box<dyn RemoteBytes>> {
    let on = |server: Option<&S3Server>| -> Option<Box<dyn RemoteBytes>> {
        let url = server?.url(&unique()).parse().unwrap();
        Some(Box::new(ObjectBytes::open(&url, &environment()).unwrap()))
    };
    match place {
        Place::Folder => Some(Box::new(FolderBytes::new(&folder.path().join("new/bytes")))),
        Place::Seaweed => on(seaweed()),
        Place::Rclone => on(rclone()),
    }
}

fn each(law: impl Fn(Place, &dyn RemoteBytes)) {
    for place in Place::ALL {
        let folder = tempfile::tempdir().unwrap();
        if let Some(bytes) = open(place, &folder) {
            law(place, &*bytes);
        }
    }
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn put(store: &dyn RemoteBytes, name: &str, bytes: &[u8]) -> Result<(), RemoteError> {
    store.put(name, &file(bytes), bytes.len() as u64, &Silent)
}

#[test]
fn what_was_uploaded_comes_back() {
    each(|place, store| {
        let large: Vec<u8> = (0..4_500_000u32).flat_map(u32::to_le_bytes).collect();
        for (name, bytes) in [("p/l/1/empty", &b""[..]), ("p/l/1/small", b"hello"), ("p/l/2/large", &large)] {
            put(store, name, bytes).unwrap();
            let mut out = Vec::new();
            assert_eq!(store.download(name, &mut out, &Silent).unwrap(), bytes.len() as u64);
            assert!(out == bytes, "{place:?} {name}");
        }
        assert_eq!(store.get("p/l/1/small", 1..4).unwrap(), b"ell");
        assert!(store.get("p/l/2/large", 8_388_600..8_388_616).unwrap() == large[8_388_600..8_388_616]);
        let names = |prefix: &str| -> Vec<(String, u64)> {
            let mut found: Vec<_> =
                store.list(prefix).unwrap().into_iter().map(|it| (it.name, it.bytes)).collect();
            found.sort();
            found
        };
        assert_eq!(
            names("p/l/1/"),
            [("p/l/1/empty".to_owned(), 0), ("p/l/1/small".to_owned(), 5)],
            "{place:?}"
        );
        assert_eq!(names("p/").len(), 3);
        assert_eq!(names("q/"), []);
    });
}

#[test]
fn an_upload_may_be_repeated_and_a_deletion_too() {
    each(|place, store| {
        put(store, "p/x", b"bytes").unwrap();
        put(store, "p/x", b"bytes").unwrap();
        store.delete(&["p/x".to_owned(), "p/never".to_owned()]).unwrap();
        store.delete(&["p/x".to_owned()]).unwrap();
        assert!(matches!(store.get("p/x", 0..1), Err(RemoteError::NoPack { .. })), "{place:?}");
        let missing = store.download("p/x", &mut Vec::new(), &Silent);
        assert!(matches!(missing, Err(RemoteError::NoPack { .. })), "{place:?} {missing:?}");
    });
}

#[test]
fn conditions_are_probed() {
    each(|place, store| {
        let expected = match place {
            Place::Rclone => ConditionalPut::Ignored,
            Place::Folder | Place::Seaweed => ConditionalPut::Obeyed,
        };
        assert_eq!(store.probe().unwrap(), expected, "{place:?}");
        assert_eq!(store.list("probe/").unwrap(), [], "{place:?}");
        let refused = put(store, "p/x", b"one").and_then(|()| put(store, "p/x", b"two"));
        assert_eq!(refused.is_err(), expected == ConditionalPut::Obeyed, "{place:?} {refused:?}");
    });
}

#[test]
fn a_wrong_key_is_denied_and_not_shown() {
    for server in [seaweed(), rclone()].into_iter().flatten() {
        let variables = [("AWS_ACCESS_KEY_ID", "other"), ("AWS_SECRET_ACCESS_KEY", "hunter2")];
        let environment =
            RemoteEnvironment::new(variables.map(|(name, value)| (name.into(), value.into())), None);
        let store = ObjectBytes::open(&server.url("x").parse().unwrap(), &environment).unwrap();
        let error = put(&store, "p/x", b"bytes").unwrap_err();
        assert!(matches!(error, RemoteError::Denied { .. }), "{}: {error:?}", server.name);
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}

#[test]
fn a_server_that_is_away_is_reported_soon() {
    let url = S3Server::url_at(1, "x").parse().unwrap();
    let store = ObjectBytes::open(&url, &environment()).unwrap();
    let began = std::time::Instant::now();
    let error = store.get("p/x", 0..1).unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    assert!(began.elapsed().as_secs() < 60);
}
