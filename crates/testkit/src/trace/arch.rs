//! The registers of a stopped tracee: in comes a thread id, out come the
//! number, the arguments and the result of the system call it is in.
//!
//! The only file that knows the machine; `x86_64` for now.

use nix::sys::ptrace;
use nix::unistd::Pid;

/// What a thread's registers say about its system call.
pub(crate) struct Regs(nix::libc::user_regs_struct);

impl Regs {
    pub(crate) fn read(tid: Pid) -> nix::Result<Regs> {
        ptrace::getregs(tid).map(Regs)
    }

    /// The system call's number.
    pub(crate) fn number(&self) -> i64 {
        self.0.orig_rax.cast_signed()
    }

    pub(crate) fn args(&self) -> [u64; 6] {
        let r = &self.0;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]
    }

    /// The result; only meaningful at the exit of the call.
    pub(crate) fn result(&self) -> i64 {
        self.0.rax.cast_signed()
    }

    /// At the entry: have the kernel skip the call.
    pub(crate) fn skip(mut self, tid: Pid) -> nix::Result<()> {
        self.0.orig_rax = u64::MAX;
        ptrace::setregs(tid, self.0)
    }

    /// At the exit: have the program see this result.
    pub(crate) fn answer(mut self, tid: Pid, result: i64) -> nix::Result<()> {
        self.0.rax = result.cast_unsigned();
        ptrace::setregs(tid, self.0)
    }
}
