//! Effects of the kernel on this process: stop signals and the limit of open files.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, getrlimit, pidfd_open, pidfd_send_signal, setrlimit,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Reaction of a command to a stop signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// Checks a flag and stops while nothing has changed. Later signals have no effect.
    WhenSafe,
    /// Ends at once, because it changes nothing.
    AtOnce,
}

/// Listens for Ctrl-C and `kill`, which set the flag.
pub(crate) fn listen(stopping: Stopping) -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let at_once = Arc::new(AtomicBool::new(stopping == Stopping::AtOnce));
    for signal in not_ignored(&[SIGINT, SIGTERM]) {
        // Registration fails only for signals that cannot be caught. Then the process dies at once, which is
        // safe too.
        let _ = signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&at_once));
        let _ = signal_hook::flag::register(signal, Arc::clone(&flag));
    }
    let _ = LISTENING.set((Arc::clone(&flag), at_once));
    flag
}

/// Flag of [`listen`], and true if the process ends at once instead.
static LISTENING: OnceLock<(Arc<AtomicBool>, Arc<AtomicBool>)> = OnceLock::new();

/// Lets only `kill -9` end this process at once, because a child runs that would be orphaned. Other signals
/// set the flag.
pub(crate) fn listen_for_another() {
    let Some((flag, at_once)) = LISTENING.get() else { return };
    for signal in not_ignored(&[SIGHUP, SIGQUIT]) {
        let _ = signal_hook::flag::register(signal, Arc::clone(flag));
    }
    at_once.store(false, Ordering::SeqCst);
}

/// Standard input that ends once this process is asked to stop. A read that waits would not notice a flag.
pub(crate) struct InputUntilStop {
    /// Without the buffer of the standard library, in which requests would wait unseen.
    input: File,
    stop: UnixStream,
}

impl InputUntilStop {
    pub(crate) fn listen() -> io::Result<Self> {
        let (stop, told) = UnixStream::pair()?;
        for signal in not_ignored(&[SIGHUP, SIGINT, SIGTERM]) {
            signal_hook::low_level::pipe::register(signal, told.try_clone()?)?;
        }
        Ok(Self { input: File::from(io::stdin().as_fd().try_clone_to_owned()?), stop })
    }

    /// Returns true once this process is asked to stop.
    pub(crate) fn is_over(&self) -> bool {
        let mut stop = [PollFd::new(&self.stop, PollFlags::IN)];
        matches!(poll(&mut stop, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }
}

impl Read for InputUntilStop {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut waited = [PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&self.input, PollFlags::IN)];
        // An interrupted wait is tried again by the caller.
        poll(&mut waited, None)?;
        // Asked again: a signal that comes with a request is handled as the wait returns.
        if self.is_over() { Ok(0) } else { self.input.read(buffer) }
    }
}

/// Counter of Ctrl-C presses. Simultaneous ones count as one.
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

    /// Count; must be polled.
    pub(crate) fn count(&self) -> usize {
        let new = usize::from(self.pressed.swap(false, Ordering::SeqCst));
        self.count.fetch_add(new, Ordering::SeqCst) + new
    }
}

/// Returns the signals that this process does not ignore since its start. Settings of `nohup` and shells for
/// background jobs stay, and child programs inherit them.
fn not_ignored(signals: &[i32]) -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    signals.iter().copied().filter(|signal| mask >> (signal - 1) & 1 == 0).collect()
}

/// Leaves signals to a child while alive. Signals of a terminal reach the child directly, because it is in
/// the same process group; signals to this process alone are forwarded.
pub(crate) struct Deferred {
    signals: Option<Signals>,
    handle: Handle,
    courier: Option<JoinHandle<()>>,
}

impl Deferred {
    /// Starts before the child, so that no signal is missed.
    pub(crate) fn begin() -> io::Result<Self> {
        let signals = Signals::new(not_ignored(&[SIGINT, SIGQUIT, SIGTERM, SIGHUP]))?;
        let handle = signals.handle();
        Ok(Self { signals: Some(signals), handle, courier: None })
    }

    /// Sets the child. Uses a handle, because its process id could be reused before a signal arrives.
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
    // An ended child needs no signal.
    let _ = pidfd_send_signal(child, signal);
}

impl Drop for Deferred {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(courier) = self.courier.take() {
            // The thread only forwards signals and cannot fail.
            let _ = courier.join();
        }
    }
}

/// Makes a write beyond the file size limit (`ulimit -f`) fail with EFBIG instead of ending the process. An
/// empty handler is enough, and `exec` resets it for child programs (signal(7)).
pub(crate) fn survive_file_limit() {
    for signal in not_ignored(&[SIGXFSZ]) {
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
}

/// Raises the limit of open files to the maximum: a deep tree needs one handle per level and thread.
pub(crate) fn raise_open_files_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    let _ = FILES_AT_START.set(limit.current);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Limit of open files at the start of this process.
static FILES_AT_START: OnceLock<Option<u64>> = OnceLock::new();

/// Returns that limit for starting other programs; `None` if unlimited.
pub(crate) fn files_at_start() -> Option<u64> {
    FILES_AT_START.get().copied().flatten()
}

/// Starts a program with the original limit: some programs fail with a larger one (select(2)).
pub(crate) fn with_limit_as_given<T>(start: impl FnOnce() -> T) -> T {
    let ours = getrlimit(Resource::Nofile);
    let given = FILES_AT_START.get().copied().unwrap_or(ours.current);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: given, maximum: ours.maximum });
    let started = start();
    let _ = setrlimit(Resource::Nofile, ours);
    started
}
