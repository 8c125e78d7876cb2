//! Laws of ignore files over arbitrary bytes, for `crates/fuzzing`; not part of the public API.

use crate::check_patterns;
use crate::rules::Rules;
use safepoint_model::RelPath;

/// Checks that rules from any text answer the same twice for any path, and that each line is a valid pattern
/// or a reported problem.
///
/// The bytes before the first zero byte are the file; the others are paths.
///
/// # Panics
/// Panics if a law is broken.
pub fn rules(bytes: &[u8]) {
    let mut parts = bytes.split(|byte| *byte == 0);
    let text = parts.next().unwrap_or_default();
    let paths: Vec<RelPath> = parts.filter_map(|part| RelPath::new(part).ok()).take(16).collect();
    let (root, problems) = Rules::default().with_file(&RelPath::root(), text);
    let (deep, _) = root.with_file(&RelPath::new("deep").unwrap_or_default(), text);
    for path in &paths {
        for is_dir in [false, true] {
            let out = root.leave_out(path, is_dir);
            assert_eq!(out, root.clone().leave_out(path, is_dir));
            if path.names().next() == Some(b"deep".as_slice()) && path.names().count() > 1 {
                deep.leave_out(path, is_dir);
            }
        }
    }
    let lines: Vec<String> = String::from_utf8_lossy(text).lines().map(str::to_owned).collect();
    let refused = lines.iter().filter(|line| check_patterns(std::slice::from_ref(*line)).is_err()).count();
    assert!(problems.len() >= refused.min(1), "{refused} lines are invalid, but no problem was reported");
}
