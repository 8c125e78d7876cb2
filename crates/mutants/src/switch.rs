
/// Returns true if a mutant is enabled; with `SAFEPOINT_MUTANTS_REACHED`, records in that file that the
/// process reached it.
#[allow(clippy::disallowed_methods, reason = "the variables are set by the program that tries the mutants")]
pub fn mutant(number: usize) -> bool {
    use std::io::Write;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    static CHOSEN: OnceLock<Option<usize>> = OnceLock::new();
    static NOTES: OnceLock<Option<Mutex<std::fs::File>>> = OnceLock::new();
    static REACHED: [AtomicBool; 4096] = [const { AtomicBool::new(false) }; 4096];

    let notes = NOTES.get_or_init(|| {
        let path = std::env::var_os("SAFEPOINT_MUTANTS_REACHED")?;
        std::fs::OpenOptions::new().append(true).create(true).open(path).ok().map(Mutex::new)
    });
    if let Some(notes) = notes
        && !REACHED[number].swap(true, Ordering::Relaxed)
        && let Ok(mut file) = notes.lock()
    {
        let _ = file.write_all(format!("{number}\n").as_bytes());
    }
    *CHOSEN.get_or_init(|| std::env::var("SAFEPOINT_MUTANT").ok()?.parse().ok()) == Some(number)
}
