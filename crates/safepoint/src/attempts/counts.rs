//! Test results in the output of a check: cargo, pytest, jest, go and JUnit XML. `None` for any other.

use safepoint_model::attempt::TestCounts;

/// Counts the tests in the output of a program: those of all summaries of the first format that is found.
pub fn test_counts(output: &str) -> Option<TestCounts> {
    let plain = without_colours(output);
    [cargo, pytest, jest, junit, go].into_iter().find_map(|format| format(&plain))
}

/// Removes escape sequences of colours.
fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => {
                letters.by_ref().find(|letter| letter.is_ascii_alphabetic());
            }
            letter => plain.push(letter),
        }
    }
    plain
}

/// Returns the number before each of these words, of lists such as `3 failed, 5 passed`.
fn numbered(list: &str) -> impl Iterator<Item = (u64, &str)> {
    list.split([',', ';']).filter_map(|part| {
        let mut words = part.split_whitespace();
        let number = words.next()?.parse().ok()?;
        Some((number, words.next()?))
    })
}

fn add(counts: &mut TestCounts, list: &str) {
    for (number, word) in numbered(list) {
        match word {
            "passed" => counts.passed += number,
            "failed" | "error" | "errors" => counts.failed += number,
            "ignored" | "skipped" | "todo" | "xfailed" | "deselected" => counts.skipped += number,
            _ => {}
        }
    }
}

fn found(counts: TestCounts, is_found: bool) -> Option<TestCounts> {
    is_found.then_some(counts)
}

/// `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; ...`
fn cargo(output: &str) -> Option<TestCounts> {
    let (mut counts, mut is_found) = (TestCounts::default(), false);
    for line in output.lines() {
        if let Some(rest) = line.trim().strip_prefix("test result: ")
            && let Some((_, list)) = rest.split_once(". ")
        {
            add(&mut counts, list);
            is_found = true;
        }
    }
    found(counts, is_found)
}

/// `===== 3 failed, 5 passed, 1 skipped in 0.12s =====`, or the same without the frame.
fn pytest(output: &str) -> Option<TestCounts> {
    let line = output.lines().rev().find_map(|line| {
        let line = line.trim().trim_matches('=').trim();
        let (list, time) = line.rsplit_once(" in ")?;
        let seconds = time.split_whitespace().next()?.strip_suffix('s')?;
        let is_summary = seconds.parse::<f64>().is_ok() && numbered(list).next().is_some();
        is_summary.then_some(list)
    })?;
    let mut counts = TestCounts::default();
    add(&mut counts, line);
    Some(counts)
}

/// `Tests:       1 failed, 2 skipped, 5 passed, 8 total`
fn jest(output: &str) -> Option<TestCounts> {
    let (mut counts, mut is_found) = (TestCounts::default(), false);
    for list in output.lines().filter_map(|line| line.trim().strip_prefix("Tests:")) {
        if list.contains(" total") {
            add(&mut counts, list);
            is_found = true;
        }
    }
    found(counts, is_found)
}

/// `--- PASS: TestName (0.00s)` of `go test -v`; without -v `ok` and `FAIL` for each package.
fn go(output: &str) -> Option<TestCounts> {
    let begins =
        |word: &str| output.lines().filter(|line| line.trim_start().starts_with(word)).count() as u64;
    let tests = TestCounts {
        passed: begins("--- PASS: "),
        failed: begins("--- FAIL: "),
        skipped: begins("--- SKIP: "),
    };
    if tests != TestCounts::default() {
        return Some(tests);
    }
    let packages = TestCounts { passed: begins("ok  \t"), failed: begins("FAIL\t"), skipped: 0 };
    found(packages, packages != TestCounts::default())
}

/// `<testsuite tests="5" failures="1" errors="0" skipped="1">`. Of nested suites the outermost count.
fn junit(output: &str) -> Option<TestCounts> {
    let outer = if output.contains("<testsuites ") { "<testsuites " } else { "<testsuite " };
    let (mut counts, mut is_found) = (TestCounts::default(), false);
    for part in output.split(outer).skip(1) {
        let tag = part.split('>').next().unwrap_or_default();
        let value = |name: &str| -> Option<u64> {
            let (_, rest) = tag.split_once(&format!("{name}=\""))?;
            rest.split('"').next()?.parse().ok()
        };
        let Some(all) = value("tests") else { continue };
        let failed = value("failures").unwrap_or(0) + value("errors").unwrap_or(0);
        let skipped = value("skipped").unwrap_or(0) + value("disabled").unwrap_or(0);
        counts.failed += failed;
        counts.skipped += skipped;
        counts.passed += all.saturating_sub(failed + skipped);
        is_found = true;
    }
    found(counts, is_found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_is_counted() {
        let counts = |passed, failed, skipped| Some(TestCounts { passed, failed, skipped });
        let cases = [
            (
                "running 6 tests\ntest result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s\n\
                 test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out",
                counts(7, 3, 1),
            ),
            (
                "\u{1b}[31m===== 3 failed, 5 passed, 1 skipped, 2 errors in 0.12s =====\u{1b}[0m\n",
                counts(5, 5, 1),
            ),
            ("5 passed in 0.02s", counts(5, 0, 0)),
            ("Tests:       1 failed, 2 skipped, 5 passed, 8 total\nTime: 1 s", counts(5, 1, 2)),
            (
                "--- PASS: TestA (0.00s)\n    --- PASS: TestA/b (0.00s)\n--- FAIL: TestC (0.01s)\nFAIL",
                counts(2, 1, 0),
            ),
            ("ok  \texample/a\t0.01s\nFAIL\texample/b\t0.02s\n", counts(1, 1, 0)),
            (
                "<testsuites tests=\"5\" failures=\"1\" errors=\"1\" skipped=\"1\"><testsuite tests=\"5\" failures=\"1\"/></testsuites>",
                counts(2, 2, 1),
            ),
            (
                "<testsuite name=\"a\" tests=\"2\" failures=\"0\"></testsuite><testsuite tests=\"1\"/>",
                counts(3, 0, 0),
            ),
            ("all is well", None),
            ("it took 3 passes in the end", None),
        ];
        for (output, wanted) in cases {
            assert_eq!(test_counts(output), wanted, "{output}");
        }
    }
}
