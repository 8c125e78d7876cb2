//! Effects of both configuration files, and the limits of a hostile one.

use crate::bench::{Bench, assert_same};
use safepoint::model::Span;
use safepoint::model::coverage::Why;
use safepoint::{
    Against, ConfigError, CreateOptions, DryRun, Error, Failure, FailureKind, RollbackOptions, Settings,
    Silent, Warning,
};
use std::fs;
use std::os::unix::fs::symlink;

fn refusal(bench: &Bench) -> Failure {
    let error = bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error}");
    Failure::from(&error)
}

#[test]
fn excludes_of_both_files_hold_and_coverage_says_so() {
    let bench = Bench::with(Settings { excludes: vec!["*.tmp".to_owned()], ..Settings::default() });
    bench.write("a.log", "x");
    bench.write("a.tmp", "x");
    bench.write("key.pem", "x");
    bench.write("kept", "x");
    bench.write(".safepoint.toml", "[capture]\nexcludes = ['*.log', '!*.pem']\n");
    fs::write(bench.home().join("config.toml"), "[capture]\nexcludes = ['*.pem']\n").unwrap();
    let survey = bench.manager.survey(&bench.workspace, &Silent).unwrap();
    let created = bench.manager.create(&bench.workspace, &CreateOptions::default(), &Silent).unwrap();
    let skipped: Vec<_> = created.coverage.skipped.iter().map(|it| (it.path.to_string(), it.why)).collect();
    // The workspace cannot include paths that its user excludes.
    let left_out = ["a.log", "a.tmp", "key.pem"].map(|name| (name.to_owned(), Why::Ignored));
    assert_eq!(skipped, left_out);
    assert_eq!(survey.coverage, created.coverage);
    // The file itself is captured as usual.
    assert_eq!(created.checkpoint.files.count, 2);
    let diff = bench.manager.diff(&bench.workspace, &created.checkpoint, &Against::Present, &Silent).unwrap();
    assert!(diff.changes.is_empty());
}

#[test]
fn the_default_label_names_what_nobody_named() {
    let bench = Bench::new();
    bench.write(".safepoint.toml", "label = 'nightly'");
    assert_eq!(bench.create().label.as_deref(), Some("nightly"));
    let options = CreateOptions { label: Some("mine".to_owned()), ..CreateOptions::default() };
    let created = bench.manager.create(&bench.workspace, &options, &Silent).unwrap().checkpoint;
    assert_eq!(created.label.as_deref(), Some("mine"));
    bench.write("new", "1");
    let safety = bench.rollback(created.id).record().safety_checkpoint.unwrap();
    let safety = bench.manager.checkpoints().find(None, &safety.to_string()).unwrap();
    assert!(safety.label.unwrap().starts_with("before rollback"));
}

#[test]
fn a_checkpoint_is_refused_when_a_file_cannot_be_used() {
    let bench = Bench::new();
    let file = bench.path(".safepoint.toml");
    let check = |said: &str| {
        let failure = refusal(&bench);
        assert_eq!((failure.code, failure.kind), ("bad_configuration", FailureKind::Failed));
        assert!(failure.message.contains(said) && !failure.hints.is_empty(), "{failure:?}");
        assert!(bench.manager.config(Some(&bench.workspace)).is_err());
        // Reading continues with a warning.
        let survey = bench.manager.survey(&bench.workspace, &Silent).unwrap();
        assert!(survey.warnings.iter().any(|warning| warning.contains(said)), "{:?}", survey.warnings);
        bench.manager.config(None).unwrap();
    };
    fs::write(&file, "retension = 1").unwrap();
    check("did you mean `retention`?");
    fs::write(&file, "[checks]\ntest = 'true'").unwrap();
    check("config.toml in Safepoint's home alone");
    fs::write(&file, vec![b'#'; 64 * 1024 + 1]).unwrap();
    check("longer than 65536 bytes");
    fs::write(&file, b"label = '\xff'").unwrap();
    check("not UTF-8");
    fs::remove_file(&file).unwrap();
    fs::write(bench.path("elsewhere"), "label = 'x'").unwrap();
    symlink("elsewhere", &file).unwrap();
    check("not a regular file");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    check("not a regular file");
    fs::remove_dir(&file).unwrap();
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    check("not a regular file");
    fs::remove_file(&file).unwrap();
    fs::write(&file, vec![b'#'; 64 * 1024]).unwrap();
    bench.create();
    assert_eq!(bench.manager.checkpoints().list(&safepoint::Filter::default()).unwrap().len(), 1);
}

#[test]
fn the_users_own_file_is_checked_as_well() {
    let bench = Bench::new();
    let file = bench.home().join("config.toml");
    fs::write(&file, "[store]\ncap = '1GiB'\n[checks]\ntest = 'make test'\n").unwrap();
    let config = bench.manager.config(Some(&bench.workspace)).unwrap();
    assert_eq!(config.cap_bytes, Some(1 << 30));
    let test = config.test.unwrap();
    assert_eq!((test.line.as_str(), test.timeout), ("make test", Span::from_seconds(600)));
    fs::write(&file, "[store]\ncup = 1\n").unwrap();
    assert!(refusal(&bench).message.contains("unknown key `store.cup` in config.toml line 2"));
    fs::remove_file(&file).unwrap();
    symlink("/dev/zero", &file).unwrap();
    assert!(refusal(&bench).message.contains("not a regular file"));
    assert!(matches!(bench.manager.config(None), Err(Error::Config(ConfigError::NotAFile { .. }))));
}

#[test]
fn a_workspace_cannot_lower_retention() {
    let bench = Bench::new();
    bench.write(".safepoint.toml", "[retention]\nkeep_last = 1\nkeep_within = '365d'\n");
    let config = bench.manager.config(Some(&bench.workspace)).unwrap();
    assert_eq!((config.retention.keep_last, config.retention.keep_within), (100, Span::from_days(365)));
    assert_eq!(config.warnings.len(), 1);
    assert!(config.warnings[0].contains("keep_last = 1"), "{:?}", config.warnings);
    assert_eq!(bench.manager.config(None).unwrap().warnings, [""; 0]);
}

/// With any content of the file, rollback and undo work and report the ignored file.
#[test]
fn no_workspace_file_stands_in_the_way_of_a_rollback() {
    let bench = Bench::new();
    bench.write("work", "good");
    bench.write(".safepoint.toml", "[capture]\nexcludes = ['scratch']\n");
    bench.write("scratch", "never captured");
    let good = bench.create();
    let then = bench.image();
    let braces = format!("[capture]\nexcludes = ['{}a{}']\n", "{".repeat(30_000), "}".repeat(30_000));
    for broken in ["[capture]\nexcludes = 3\n".as_bytes(), b"\xff", &[b'#'; 70_000], braces.as_bytes()] {
        bench.write(".safepoint.toml", broken);
        bench.write("work", "bad");
        bench.write("made", "since");
        let before = bench.image();
        let status = bench.manager.status(&bench.workspace, &Silent).unwrap();
        assert!(status.warnings[0].starts_with(".safepoint.toml is ignored: "), "{:?}", status.warnings);
        let dry = RollbackOptions { dry_run: DryRun::Yes, ..RollbackOptions::default() };
        let shown = bench.manager.rollback(&bench.workspace, good.id, &dry, &Silent).unwrap();
        assert_eq!(shown.warnings.len(), 1, "{:?}", shown.warnings);
        let restored = bench.rollback(good.id);
        let safety = restored.record().safety_checkpoint.unwrap().to_string();
        let safety = bench.manager.checkpoints().find(None, &safety).unwrap();
        let [why] = &safety.warnings[..] else { panic!("{:?}", safety.warnings) };
        assert!(why.starts_with(".safepoint.toml is ignored: "), "{why}");
        assert_eq!(restored.warnings, [Warning::SettingsIgnored { why: why.clone() }]);
        // Without the excludes the safety checkpoint holds more; what the target never held is left alone.
        assert_same(&then, &bench.image());
        let undone = bench.undo();
        assert!(undone.warnings.is_empty(), "{:?}", undone.warnings);
        assert_same(&before, &bench.image());
        let redone = bench.redo();
        assert_eq!(redone.warnings.len(), 1);
        assert_same(&then, &bench.image());
    }
}
