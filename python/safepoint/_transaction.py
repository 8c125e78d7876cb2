"""Transactions: everything in a block, or nothing of it.

A transaction is a pinned checkpoint and a record in the home, under a lock of the kernel. The lock ends with the process, so a record
without one names a transaction that a killed process left open. A record has one line of facts; later lines add to it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from ._errors import RollbackFailed, SafepointError, UsageError
from ._records import Checkpoint, Rollback, time_of
from ._signals import held

if TYPE_CHECKING:
    from ._workspace import OnCrash, Workspace

_log = logging.getLogger("safepoint")
_FORMAT = 1
_RECORD_BYTES_MAX = 64 * 1024


class _Rejected(BaseException):
    """Leaves the block of a transaction. Not an ``Exception``, so that the block's own handlers do not catch it."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__("a transaction was rejected")
        self.transaction = transaction


def _started() -> str:
    """Returns the start of this process, in the kernel's words."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as facts:
        return facts.read().rpartition(")")[2].split()[19]


def _folder(workspace: Workspace) -> str:
    return os.path.join(workspace.home, "transactions")


class Transaction:
    """Context manager of a block that is done as a whole or not at all. Transactions nest; each is used once."""

    def __init__(
        self, workspace: Workspace, name: str, *, plan: str | None, on_crash: OnCrash, leave: Sequence[Any] = ()
    ) -> None:
        if not isinstance(name, str):
            raise TypeError(f"expected a name, not {type(name).__name__}")
        self.name: str = name
        #: State before the block.
        self.checkpoint: Checkpoint | None = None
        #: The rollback, if there was one.
        self.rolled_back: Rollback | None = None
        #: Reason of :meth:`reject`.
        self.rejected: str | None = None
        self._workspace = workspace
        self._plan = plan
        self._on_crash = on_crash
        self._leave = leave
        self._process: int | None = None
        self._record: _Record | None = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a transaction belongs to its process and cannot be pickled")

    def __enter__(self) -> Transaction:
        if self._process is not None:
            raise UsageError("a transaction is used once", code="usage")
        self._process = os.getpid()
        workspace = self._workspace
        if self._on_crash != "keep":
            workspace._settle_crashes(self._on_crash)
        self.checkpoint = workspace.create(
            f"before {self.name}", reason="pre_risky_operation", plan=self._plan, tool="python"
        )
        try:
            # The record first: what is pinned without one would stay pinned for ever.
            with held():
                self._begin()
        except BaseException:
            with held():
                self._end()
            raise
        return self

    def _begin(self) -> None:
        assert self.checkpoint is not None
        try:
            self._record = _Record.begin(self._workspace, self)
        except OSError as error:
            raise SafepointError(
                "cannot record the transaction", code="home", causes=(str(error),), kind="failed"
            ) from error
        pinned = self._workspace._home.call("pin", interruptible=False, checkpoint=self.checkpoint.id, pinned=True)
        self.checkpoint = Checkpoint._read(pinned)

    def _end(self) -> None:
        record, self._record = self._record, None
        if record is not None:
            record.end()
            self._unpin()

    def reject(self, reason: str = "rejected") -> NoReturn:
        """Leaves the block, and rolls back. Nothing is raised behind the block; ``rejected`` keeps the reason."""
        if self._record is None:
            raise UsageError("the transaction is not open", code="usage")
        self.rejected = reason
        raise _Rejected(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self._record is None or self._process != os.getpid():
            # A forked child that leaves the block has no part in it.
            return False
        # Another Ctrl-C must not leave the block half done, or on record although it is over.
        with held():
            if error is not None:
                self._roll_back(error)
            self._end()
        return isinstance(error, _Rejected) and error.transaction is self

    def _roll_back(self, error: BaseException) -> None:
        workspace, record = self._workspace, self._record
        assert self.checkpoint is not None and record is not None
        try:
            count = workspace.show(self.checkpoint.id).rollback_count
            record.add({"rolling_back": count})
            done = workspace._home.call(
                "rollback",
                interruptible=False,
                folder=workspace.root,
                workspace=workspace.id,
                to=self.checkpoint.id,
                options={"leave": list(self._leave)},
            )
        except SafepointError as failure:
            failed = RollbackFailed(
                f"cannot roll back transaction {self.name!r}: {failure.message}",
                code=failure.code,
                kind=failure.kind,
                causes=failure.causes,
                hints=(
                    f"Nothing of it is lost. When the cause is fixed: safepoint rollback {self.checkpoint.id}",
                    *failure.hints,
                ),
            )
            failed.failure = failure
            self._leave_open()
            raise failed from error
        except BaseException:
            self._leave_open()
            raise
        self.rolled_back = Rollback._read(done)

    def _leave_open(self) -> None:
        if self._record is not None:
            self._record.leave()
        self._record = None

    def _unpin(self) -> None:
        if self.checkpoint is None:
            return
        try:
            self._workspace._home.call("pin", interruptible=False, checkpoint=self.checkpoint.id, pinned=False)
        except SafepointError as error:
            # The block's result does not depend on it.
            _log.warning("cannot unpin the checkpoint of transaction %r: %s", self.name, error.message)


@dataclass
class _Record:
    """Record of an open transaction, and its lock."""

    path: str
    descriptor: int

    @classmethod
    def begin(cls, workspace: Workspace, transaction: Transaction) -> _Record:
        folder = _folder(workspace)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        assert transaction.checkpoint is not None
        name = f"{transaction.checkpoint.id}-{secrets.token_hex(4)}"
        fields = {
            "format": _FORMAT,
            "workspace": workspace.id,
            "name": transaction.name,
            "checkpoint": transaction.checkpoint.id,
            "plan": transaction._plan,
            "process": os.getpid(),
            "started": _started(),
            "beside": _living(workspace),
            "began": datetime.now(timezone.utc).isoformat(),
        }
        draft, path = os.path.join(folder, f".{name}"), os.path.join(folder, f"{name}.json")
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_whole(descriptor, json.dumps(fields).encode() + b"\n")
            os.fsync(descriptor)
            os.rename(draft, path)
            _sync_folder(folder)
        except OSError:
            os.close(descriptor)
            raise
        return cls(path, descriptor)

    def add(self, facts: dict[str, Any]) -> None:
        """Adds facts. The lock is on this file, so it is not replaced."""
        try:
            _write_whole(self.descriptor, json.dumps(facts).encode() + b"\n")
            os.fsync(self.descriptor)
        except OSError as error:
            _log.warning("cannot add to the record of a transaction: %s", error)

    def end(self) -> None:
        """Removes the record. A crash before it names a transaction that is over: looking again costs nothing."""
        try:
            os.unlink(self.path)
            _sync_folder(os.path.dirname(self.path))
        except OSError as error:
            _log.warning("cannot remove the record of a transaction: %s", error)
        self.leave()

    def leave(self) -> None:
        """Gives up the lock, so that the record is found."""
        try:
            os.close(self.descriptor)
        except OSError:
            pass


def _write_whole(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Unfinished:
    """Transaction that a process left open when it was killed."""

    name: str
    #: State before its block.
    checkpoint: str
    began: datetime
    plan: str | None
    process: int
    _workspace: Workspace = field(repr=False, compare=False)
    _path: str = field(repr=False)
    _facts: dict[str, Any] = field(repr=False, compare=False, default_factory=dict)

    def rollback(self) -> Rollback:
        """Rolls all parts back to the state before the block."""
        done = self._workspace.rollback(self.checkpoint)
        self.keep()
        return done

    def keep(self) -> None:
        """Leaves everything as it is, and ends the transaction."""
        try:
            os.unlink(self._path)
            _sync_folder(os.path.dirname(self._path))
        except FileNotFoundError:
            return
        try:
            self._workspace.pin(self.checkpoint, pinned=False)
        except LookupError:
            pass

    def _is_over(self) -> bool:
        """Returns true if its block was rolled back before the process ended."""
        before = self._facts.get("rolling_back")
        if not isinstance(before, int):
            return False
        try:
            return self._workspace.show(self.checkpoint).rollback_count > before
        except LookupError:
            return False

    def _pass_over(self) -> None:
        """Leaves it to people: a later block took its files as they were."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _write_whole(descriptor, b'{"passed_over": true}\n')
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def settle(workspace: Workspace) -> None:
    """Rolls back what the last process left open, with the processes that had blocks open beside it.

    Blocks of earlier processes stay as they are: the later ones took their files as they were.
    """
    left = read_unfinished(workspace)
    waiting = [one for one in left if not one._facts.get("passed_over")]
    if not waiting:
        return
    chosen = {_owner(waiting[-1])}
    for one in reversed(waiting):
        if _owner(one) in chosen:
            beside = set(one._facts["beside"])
            chosen |= {_owner(other) for other in waiting if os.path.basename(other._path) in beside}
    blocks = [one for one in waiting if _owner(one) in chosen]
    outermost, plans = blocks[0], {blocks[0].plan, None}
    # A plan that an inner block names may be no part of the outermost checkpoint.
    for inner in blocks[1:]:
        if inner.plan not in plans:
            plans.add(inner.plan)
            workspace.rollback(inner.checkpoint, parts=["plan"])
    outermost.rollback()
    for inner in blocks[1:]:
        inner.keep()
    for earlier in waiting:
        if _owner(earlier) not in chosen:
            _log.warning("transaction %r, left open before, stays as it is: see Workspace.unfinished()", earlier.name)
            earlier._pass_over()


def _owner(one: Unfinished) -> tuple[int, str]:
    # A process id is used again; its processes do not share a start.
    return one.process, str(one._facts.get("started"))


def read_unfinished(workspace: Workspace) -> list[Unfinished]:
    """Returns the transactions without a living process, oldest first."""
    # A closed workspace is refused here, too.
    workspace._home.native()
    found = []
    for name, path in _records(workspace):
        fields = _read_record(path)
        if fields is None or fields["workspace"] != workspace.id:
            continue
        one = Unfinished(
            name=fields["name"],
            checkpoint=fields["checkpoint"],
            began=time_of(fields["began"]),
            plan=fields["plan"],
            process=fields["process"],
            _workspace=workspace,
            _path=path,
            _facts=fields,
        )
        if one._is_over():
            one.keep()
        else:
            found.append(one)
    return found


def _records(workspace: Workspace) -> list[tuple[str, str]]:
    folder = _folder(workspace)
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    except FileNotFoundError:
        return []
    return [(name, os.path.join(folder, name)) for name in names]


def _living(workspace: Workspace) -> list[str]:
    """Returns the names of the records whose processes live."""
    found = []
    for name, path in _records(workspace):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            found.append(name)
        finally:
            os.close(descriptor)
    return found


def _read_record(path: str) -> dict[str, Any] | None:
    """Returns a record without a living process. One that cannot be read is reported, and left."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        # It ended just now.
        return None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return None
        return _facts_of(os.read(descriptor, _RECORD_BYTES_MAX))
    except (OSError, ValueError, KeyError, TypeError) as error:
        _log.warning("%s is no record of a transaction: %s", path, error)
        return None
    finally:
        os.close(descriptor)


def _facts_of(text: bytes) -> dict[str, Any]:
    first, *later = text.split(b"\n")
    fields = json.loads(first)
    wanted = {
        "workspace": str, "name": str, "checkpoint": str, "began": str, "started": str, "process": int, "beside": list,
    }  # fmt: skip
    if fields["format"] != _FORMAT or not all(isinstance(fields[key], of) for key, of in wanted.items()):
        raise ValueError("not a record of a transaction")
    if not isinstance(fields["plan"], (str, type(None))):
        raise ValueError("not a record of a transaction")
    time_of(fields["began"])
    facts = dict(fields)
    for line in later:
        try:
            added = json.loads(line)
        except ValueError:
            # The process was killed while it wrote.
            continue
        if isinstance(added, dict):
            facts.update({key: added[key] for key in ("rolling_back", "passed_over") if key in added})
    return facts
