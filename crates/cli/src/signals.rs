//! What the kernel may do to this process: ask it to stop, and limit its open files.

use rustix::fd::OwnedFd;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal, setrlimit,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};
use std::io;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// How a verb reacts to being asked to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// It looks at a flag and stops where nothing has changed yet. Later signals change nothing about that.
    WhenSafe,
    /// It changes nothing, so it ends at once.
    AtOnce,
}

/// Listens for Ctrl-C and `kill`. The flag is set when one came.
pub(crate) fn listen(stopping: Stopping) -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let at_once = Arc::new(AtomicBool::new(stopping == Stopping::AtOnce));
    for signal in not_ignored(&[SIGINT, SIGTERM]) {
        // Registration fails only for signals that cannot be caught. Without it the process dies at once, which is safe too.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&at_once));
        let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
    }
    let _ = LISTENING.set((Arc::clone(&flag), at_once));
    flag
}

/// The flag of [`listen`], and whether the process ends before anybody looks at it.
static LISTENING: OnceLock<(Arc<AtomicBool>, Arc<AtomicBool>)> = OnceLock::new();

/// From now on nothing but `kill -9` ends this process at once: a program runs that would stay behind. The flag is set instead.
pub(crate) fn listen_for_another() {
    let Some((flag, at_once)) = LISTENING.get() else { return };
    for signal in not_ignored(&[SIGHUP, SIGQUIT]) {
        let _ = signal_hook::flag::register(signal, Arc::clone(flag));
    }
    at_once.store(false, Ordering::SeqCst);
}

/// How often Ctrl-C was pressed from now on. Two that come at the same moment count as one.
pub(crate) struct Presses {
    pressed: Arc<AtomicBool>,
    count: AtomicUsize,
}

impl Presses {
    pub(crate) fn listen() -> Self {
        let pressed = Arc::new(AtomicBool::new(false));
        for signal in not_ignored(&[SIGINT]) {
            let _ = signal_hook::flag::register(signal, Arc::clone(&pressed));
        }
        Self { pressed, count: AtomicUsize::new(0) }
    }

    /// To be asked again and again.
    pub(crate) fn count(&self) -> usize {
        let new = usize::from(self.pressed.swap(false, Ordering::SeqCst));
        self.count.fetch_add(new, Ordering::SeqCst) + new
    }
}

/// The signals that this process was not started deaf to. What `nohup` and shells set up for work in the background stays so, and a
/// program that is started here inherits it.
fn not_ignored(signals: &[i32]) -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    signals.iter().copied().filter(|signal| mask >> (signal - 1) & 1 == 0).collect()
}

/// While it lives, signals are a child's business: those that a terminal sends reach the child anyway, since it is in the same
/// process group; those that were sent to this process alone are handed on.
pub(crate) struct Deferred {
    signals: Option<Signals>,
    handle: Handle,
    courier: Option<JoinHandle<()>>,
}

impl Deferred {
    /// Begins before the child does, so that nothing is missed in between.
    pub(crate) fn begin() -> io::Result<Self> {
        let signals = Signals::new(not_ignored(&[SIGINT, SIGQUIT, SIGTERM, SIGHUP]))?;
        let handle = signals.handle();
        Ok(Self { signals: Some(signals), handle, courier: None })
    }

    /// Names the child. It is known by a handle: its number could be another's by the time that a signal comes.
    pub(crate) fn to(&mut self, child: &Child) -> io::Result<()> {
        let Some(mut signals) = self.signals.take() else { return Ok(()) };
        let handle = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        self.courier = Some(std::thread::spawn(move || {
            signals.forever().for_each(|signal| hand_on(&handle, signal));
        }));
        Ok(())
    }
}

fn hand_on(child: &OwnedFd, signal: i32) {
    let signal = match signal {
        SIGTERM => Signal::TERM,
        SIGHUP => Signal::HUP,
        // Ctrl-C and Ctrl-\ went to the whole group.
        _ => return,
    };
    // One that has ended needs no signal.
    let _ = pidfd_send_signal(child, signal);
}

impl Drop for Deferred {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(courier) = self.courier.take() {
            // It only hands on signals; there is nothing in it to fail.
            let _ = courier.join();
        }
    }
}

/// Lets a write beyond the limit of a file's length (`ulimit -f`) fail (EFBIG) where it would end the process. A handler that does
/// nothing is enough, and a program that is started here gets the default back with its `exec` (signal(7)).
pub(crate) fn survive_file_limit() {
    for signal in not_ignored(&[SIGXFSZ]) {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
}

/// Takes as many open files as the system allows: a deep tree is read with one handle per level and thread.
pub(crate) fn raise_open_files_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    let _ = FILES_AT_START.set(limit.current);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// How many files this process could open when it began.
static FILES_AT_START: OnceLock<Option<u64>> = OnceLock::new();

/// The same, for whoever starts programs elsewhere; nothing where there was no limit.
pub(crate) fn files_at_start() -> Option<u64> {
    FILES_AT_START.get().copied().flatten()
}

/// Starts a program with the limit that we were given: some programs cannot live with a larger one (select(2)).
pub(crate) fn with_limit_as_given<T>(start: impl FnOnce() -> T) -> T {
    let ours = getrlimit(Resource::Nofile);
    let given = FILES_AT_START.get().copied().unwrap_or(ours.current);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: given, maximum: ours.maximum });
    let started = start();
    let _ = setrlimit(Resource::Nofile, ours);
    started
}
