//! The same laws on a file system with fewer features, and the messages about it.

use crate::bench::{Bench, assert_same};
use safepoint::{Capabilities, Settings};
use std::fs;

fn without(exchange: bool, no_replace: bool, leases: bool) -> Bench {
    let capabilities = Capabilities { exchange, no_replace, leases, case_matters: true };
    Bench::with(Settings { capabilities, ..Settings::default() })
}

#[test]
fn every_lack_has_a_way_that_works() {
    for (exchange, no_replace, leases) in [(false, true, true), (true, false, true), (false, false, false)] {
        let bench = without(exchange, no_replace, leases);
        bench.write("changed", "1");
        bench.write("dir/gone", "1");
        bench.write("type", "a file");
        std::os::unix::fs::symlink("x", bench.path("link")).unwrap();
        let checkpoint = bench.create();
        let then = bench.image();
        bench.write("changed", "2");
        fs::remove_dir_all(bench.path("dir")).unwrap();
        fs::remove_file(bench.path("type")).unwrap();
        bench.write("type/is/a/directory", "2");
        bench.write("new", "2");
        fs::remove_file(bench.path("link")).unwrap();
        let now = bench.image();
        let restored = bench.rollback(checkpoint.id);
        // Without leases, possible writers to displaced files may be undetectable.
        assert!(leases || [0, 3].contains(&restored.waiting.len()), "{restored:?}");
        bench.release();
        assert_same(&bench.image(), &then);
        let lacking = [exchange, no_replace, leases].iter().filter(|has| !**has).count();
        assert_eq!(restored.warnings.len(), lacking, "{:?}", restored.warnings);
        bench.undo();
        bench.release();
        assert_same(&bench.image(), &now);
        assert!(!bench.path(".safepoint").exists());
    }
}

#[test]
fn names_that_the_file_system_cannot_tell_apart_are_refused() {
    let bench = Bench::new();
    bench.write("Read me", "1");
    bench.write("read me", "2");
    let checkpoint = bench.create();
    bench.write("x", "1");
    let capabilities = Capabilities { case_matters: false, ..Capabilities::default() };
    let folding = crate::bench::open(&bench.home(), Settings { capabilities, ..Settings::default() });
    let error = folding
        .rollback(&bench.workspace, checkpoint.id, &Default::default(), &safepoint::Silent)
        .unwrap_err();
    let failure = safepoint::Failure::from(&error);
    assert_eq!(failure.code, "obstructed");
    assert!(
        failure.hints.iter().any(|hint| hint.contains("these names are the same on this file system")),
        "{failure:?}"
    );
}

#[test]
fn without_leases_the_boot_in_which_something_waits_is_on_record() {
    let bench = without(true, true, false);
    bench.write("a", "1");
    let checkpoint = bench.create();
    bench.write("a", "2");
    let held = fs::OpenOptions::new().append(true).open(bench.path("a")).unwrap();
    let restored = bench.rollback(checkpoint.id);
    assert_eq!(restored.waiting.len(), 1, "{restored:?}");
    let stage = bench.path(&format!(".safepoint/apply-{}", restored.id));
    let names: Vec<_> = fs::read_dir(stage).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let boots = names.iter().filter(|name| name.to_string_lossy().starts_with("boot-"));
    assert_eq!(boots.count(), 1, "{names:?}");
    drop(held);
    bench.release();
    assert!(!bench.path(".safepoint").exists());
}
