//! Registers of a stopped tracee: number, arguments and result of its system call.
//!
//! The only file that depends on the architecture; `x86_64` for now.

use nix::sys::ptrace;
use nix::unistd::Pid;

/// Registers of a thread in a system call.
pub(crate) struct Regs(nix::libc::user_regs_struct);

impl Regs {
    pub(crate) fn read(tid: Pid) -> nix::Result<Regs> {
        ptrace::getregs(tid).map(Regs)
    }

    /// Returns the number of the system call.
    pub(crate) fn number(&self) -> i64 {
        self.0.orig_rax.cast_signed()
    }

    pub(crate) fn args(&self) -> [u64; 6] {
        let r = &self.0;
        [r.rdi, r.rsi, r.rdx, r.r10, r.r8, r.r9]
    }

    /// Returns the result; only valid at the exit of the call.
    pub(crate) fn result(&self) -> i64 {
        self.0.rax.cast_signed()
    }

    /// Makes the kernel skip the call, at its entry.
    pub(crate) fn skip(mut self, tid: Pid) -> nix::Result<()> {
        self.0.orig_rax = u64::MAX;
        ptrace::setregs(tid, self.0)
    }

    /// Makes the program see this result, at the exit.
    pub(crate) fn answer(mut self, tid: Pid, result: i64) -> nix::Result<()> {
        self.0.rax = result.cast_unsigned();
        ptrace::setregs(tid, self.0)
    }
}
