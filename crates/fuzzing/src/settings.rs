//! Input by users and agents: plan files and configuration.

use safepoint::{Config, PlanFile, PlanFormat};

/// Checks that any plan file is a valid plan, or problems with their positions in the text.
pub fn plan_files(bytes: &[u8]) {
    for format in [None, Some(PlanFormat::Toml), Some(PlanFormat::Json)] {
        match PlanFile::parse(bytes, format) {
            Ok(file) => assert_eq!(file.spec.check(), Ok(())),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Checks both files with any text: a workspace never requests less than the user keeps.
pub fn configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.splitn(2, '\0');
    let home = Config::parse_home(parts.next().unwrap_or_default());
    let workspace = Config::parse_workspace(parts.next().unwrap_or(&text));
    let home = home.unwrap_or_default();
    let alone = Config { home: home.clone(), ..Config::default() }.effective();
    let Ok(workspace) = workspace else { return };
    let both = Config { home, workspace }.effective();
    assert!(both.retention.keep_last >= alone.retention.keep_last);
    assert!(both.retention.keep_within >= alone.retention.keep_within);
    assert!(both.retention.thin_daily_for >= alone.retention.thin_daily_for);
    assert_eq!((both.cap_bytes, both.test.is_some()), (alone.cap_bytes, alone.test.is_some()));
}
