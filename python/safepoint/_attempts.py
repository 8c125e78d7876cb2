"""Attempts: work on a project in rooms of their own, compared, kept whole or dropped."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, List, Literal, Union

from ._calls import path_argument, path_of
from ._errors import UsageError
from ._records import Change, Rollback, time_of

if TYPE_CHECKING:
    from ._aio import AsyncWorkspace
    from ._workspace import Workspace

AnyPath = Union[str, "os.PathLike[str]"]
Others = Literal["drop", "open"]
Outside = Literal["real", "read-only"]

#: Time that a command gets to end after SIGTERM.
_GRACE_SECONDS = 5.0
#: Bytes of the output of a check that are searched for test results.
_OUTPUT_BYTES_MAX = 4 << 20


@dataclass(frozen=True)
class TestCounts:
    """Number of tests by result."""

    #: pytest collects no tests here.
    __test__ = False

    passed: int
    failed: int
    skipped: int


@dataclass(frozen=True)
class Attempt:
    """Record of an attempt, with what is known of it now."""

    id: str
    number: int
    name: str
    #: ``overlay``, ``reflink`` or ``copy``.
    kind: str
    #: ``open``, ``kept`` or ``dropped``.
    state: str
    room: str
    #: Checkpoint of the project at the start.
    base: str
    #: Newest checkpoint of what it made.
    result: str | None
    command: tuple[str, ...]
    exit_status: int | None
    #: Result of the check, if one was requested.
    verified: bool | None
    #: True if command and check were successful.
    passes: bool
    tests: TestCounts | None
    metrics: Mapping[str, float] = field(hash=False)
    files_added: int
    files_modified: int
    files_removed: int
    seconds: float | None
    disk_bytes: int
    #: Processes in its room: number and name.
    processes: tuple[tuple[int, str], ...]
    created_at: datetime
    closed_at: datetime | None
    #: Reasons why it is a copy although an overlay was wanted. Known of an attempt that was just started.
    refused: tuple[str, ...] = ()
    #: Lines that it added and removed. Known of a comparison.
    lines_added: int | None = None
    lines_removed: int | None = None

    def __str__(self) -> str:
        return self.name

    @classmethod
    def _read(cls, fields: Mapping[str, Any]) -> Attempt:
        added, modified, removed = fields["changes"]
        lines = fields.get("lines") or (None, None)
        milliseconds, tests, closed_at = fields["milliseconds"], fields["tests"], fields["closed_at"]
        return cls(
            id=fields["id"],
            number=fields["number"],
            name=fields["name"],
            kind=fields["kind"],
            state=fields["state"],
            room=path_of(fields["room"]),
            base=fields["base"],
            result=fields["result"],
            command=tuple(fields["command"]),
            exit_status=fields["exit_status"],
            verified=fields["verified"],
            passes=fields["passes"],
            tests=None if tests is None else TestCounts(**tests),
            metrics=fields["metrics"] or {},
            files_added=added,
            files_modified=modified,
            files_removed=removed,
            seconds=None if milliseconds is None else milliseconds / 1000,
            disk_bytes=fields["disk_bytes"],
            processes=_processes(fields["processes"]),
            created_at=time_of(fields["created_at"]),
            closed_at=None if closed_at is None else time_of(closed_at),
            refused=tuple(fields.get("refused", ())),
            lines_added=lines[0],
            lines_removed=lines[1],
        )


@dataclass(frozen=True)
class AttemptComparison:
    """The open attempts side by side."""

    attempts: tuple[Attempt, ...]
    #: Name of the attempt with the best value of the requested metric, among those that pass.
    best: str | None


@dataclass(frozen=True)
class AttemptRan:
    """A command that ended in an attempt."""

    attempt: Attempt
    #: Exit status as a shell reports it: 128 and the signal, if one ended it.
    exit_status: int
    #: Output of the command, if it was captured: standard output and standard error together.
    output: bytes | None
    #: Output of the check, if it ran.
    check_output: bytes | None


@dataclass(frozen=True)
class AttemptKept:
    """Result of keeping an attempt, or its preview."""

    attempt: Attempt
    #: Checkpoint that is taken over.
    result: str
    #: Changes to the project; ``None`` if the attempt changed nothing.
    rollback: Rollback | None
    #: Text files of which the lines of both sides are taken.
    merged: tuple[str, ...]
    #: Paths that changed in the project since the start, and stay as they are.
    changed_in_project: tuple[str, ...]
    #: Names of the other attempts that are dropped.
    dropped: tuple[str, ...]
    #: Processes that were ended: number and name.
    ended: tuple[tuple[int, str], ...]
    #: Rooms that could not be deleted yet, each with the reason.
    left: tuple[tuple[str, str], ...]
    #: True for a preview.
    dry_run: bool
    _expect: tuple[str, str]
    _others: Others

    @classmethod
    def _read(cls, fields: Mapping[str, Any], dry_run: bool, others: Others) -> AttemptKept:
        rollback = fields["rollback"]
        return cls(
            attempt=Attempt._read(fields["attempt"]),
            result=fields["result"],
            rollback=None if rollback is None else Rollback._read(rollback),
            merged=tuple(path_of(path) for path in fields["merged"]),
            changed_in_project=tuple(path_of(path) for path in fields["changed_in_project"]),
            dropped=tuple(fields["dropped"]),
            ended=_processes(fields["ended"]),
            left=tuple((path_of(room), why) for room, why in fields["left"]),
            dry_run=dry_run,
            _expect=(fields["result"], fields["present"]),
            _others=others,
        )


AttemptLike = Union[str, int, Attempt]


def _processes(found: Iterable[Sequence[Any]]) -> tuple[tuple[int, str], ...]:
    return tuple((pid, name) for pid, name in found)


def _name(attempt: AttemptLike) -> str:
    if isinstance(attempt, Attempt):
        # A name may be used again once its attempt is closed; the number is not.
        return str(attempt.number)
    if isinstance(attempt, bool) or not isinstance(attempt, (str, int)):
        raise TypeError(f"expected an attempt, its name or its number, not {type(attempt).__name__}")
    return str(attempt)


def _one_of(value: str, allowed: tuple[str, ...], name: str) -> None:
    if value not in allowed:
        raise UsageError(f"{name} must be {' or '.join(allowed)}, not {value!r}", code="usage")


class _Run:
    """A command of an attempt: how it is started, and what is noted of it. The caller waits for it."""

    def __init__(
        self,
        workspace: Workspace,
        attempt: AttemptLike,
        command: Sequence[AnyPath],
        *,
        outside: Outside,
        writable: Iterable[AnyPath],
        cwd: AnyPath | None,
        env: Mapping[str, str] | None,
    ) -> None:
        if isinstance(command, (str, bytes)):
            raise TypeError("command must be a list of words, not one text; use ['sh', '-c', text]")
        self.words = [os.fspath(word) for word in command]
        if not self.words:
            raise UsageError("command is empty", code="usage")
        _one_of(outside, ("real", "read-only"), "outside")
        self._ws, self._name = workspace, _name(attempt)
        self._writable = None if outside == "real" else [path_argument(os.path.abspath(path)) for path in writable]
        self._directory = os.path.join(workspace.root, "" if cwd is None else os.fspath(cwd))
        self._env = dict(os.environ) if env is None else dict(env)
        self._begun = time.monotonic()
        self.exit_status: int | None = None
        self._milliseconds: int | None = None
        self._verified: bool | None = None
        self._check_output: bytes | None = None

    def prepare(self, words: Sequence[str]) -> tuple[list[str], dict[str, str], str | None]:
        """Returns words, environment and directory of the process to start."""
        self._begun = time.monotonic()
        found = self._ws._call(
            "attempt_command",
            name=self._name,
            words=[path_argument(word) for word in words],
            directory=path_argument(self._directory),
            writable=self._writable,
        )
        variables = {name: path_of(value) for name, value in found["variables"].items()}
        directory = found["directory"]
        return (
            [path_of(word) for word in found["words"]],
            {**self._env, **variables},
            None if directory is None else path_of(directory),
        )

    def entered(self) -> None:
        """Raises the reason if the process could not enter the room."""
        self._ws._call("attempt_entered", name=self._name)

    def ended(self, returncode: int) -> None:
        """Notes the end of the command."""
        self.exit_status = returncode if returncode >= 0 else 128 - returncode
        self._milliseconds = int((time.monotonic() - self._begun) * 1000)

    def checked(self, output: IO[bytes] | None) -> Callable[[int], None]:
        """Returns what notes the end of the check."""

        def note(returncode: int) -> None:
            self._verified, self._check_output = returncode == 0, _content(output)

        return note

    def finish(self) -> Attempt:
        """Captures what the command left."""
        text = None
        if self._check_output is not None:
            text = self._check_output[:_OUTPUT_BYTES_MAX].decode(errors="replace")
        fields = self._ws._home.call(
            "attempt_finish",
            interruptible=False,
            workspace=self._ws.id,
            name=self._name,
            command=[os.fsencode(word).decode(errors="replace") for word in self.words],
            exit_status=self.exit_status,
            verified=self._verified,
            output=text,
            milliseconds=self._milliseconds,
        )
        return Attempt._read(fields)

    def result(self, attempt: Attempt, output: bytes | None) -> AttemptRan:
        return AttemptRan(attempt, -1 if self.exit_status is None else self.exit_status, output, self._check_output)


def _content(file: IO[bytes] | None) -> bytes | None:
    if file is None:
        return None
    file.seek(0)
    return file.read()


def _output_file(stack: contextlib.ExitStack, wanted: bool) -> IO[bytes] | None:
    # Not a pipe: a daemon that the command leaves would hold it open.
    return stack.enter_context(tempfile.TemporaryFile()) if wanted else None


def _streams(file: IO[bytes] | None) -> dict[str, Any]:
    return {} if file is None else {"stdout": file, "stderr": subprocess.STDOUT}


class Attempts:
    """Attempts of a workspace. Each method is all or nothing.

    >>> made = ws.attempts.start("refactor")                   # doctest: +SKIP
    >>> ws.attempts.run(made, ["make", "test"])                # doctest: +SKIP
    >>> ws.attempts.keep(made)                                 # doctest: +SKIP
    """

    def __init__(self, workspace: Workspace) -> None:
        self._ws = workspace

    def start(self, name: str | None = None, *, copy: bool = False) -> Attempt:
        """Starts an attempt, which runs nothing yet. ``copy`` asks for a copy at another path instead of an overlay.

        The name is ``try-`` and its number if not given.
        """
        return Attempt._read(self._ws._call_on_files("attempt_start", name=name, copy=copy))

    def list(self, *, all: bool = False) -> List[Attempt]:
        """Returns the open attempts, oldest first. ``all`` includes those that were kept or dropped."""
        return [Attempt._read(one) for one in self._ws._call("attempt_list", all=all)]

    def show(self, attempt: AttemptLike) -> Attempt:
        """Returns the attempt of a name or a number, with what runs in it."""
        return Attempt._read(self._ws._call("attempt_show", name=_name(attempt)))

    def compare(self, *, best: str | None = None, lowest: bool = False) -> AttemptComparison:
        """Compares the open attempts. ``best`` names the metric with which the best one is chosen: the highest value, or the lowest."""
        found = self._ws._call("attempt_compare", best=best, lowest=lowest)
        return AttemptComparison(tuple(Attempt._read(one) for one in found["attempts"]), found["best"])

    def diff(self, attempt: AttemptLike, other: AttemptLike | None = None) -> List[Change]:
        """Returns the differences between the start of an attempt and its result, or between the results of two."""
        found = self._ws._call(
            "attempt_diff", name=_name(attempt), other=None if other is None else _name(other)
        )
        return [Change._read(one) for one in found]

    def run(
        self,
        attempt: AttemptLike,
        command: Sequence[AnyPath],
        *,
        verify: str | None = None,
        outside: Outside = "real",
        writable: Iterable[AnyPath] = (),
        capture_output: bool = False,
        timeout: float | None = None,
        cwd: AnyPath | None = None,
        env: Mapping[str, str] | None = None,
    ) -> AttemptRan:
        """Runs a command in an attempt, waits for it, and captures what it did as the result of the attempt.

        ``verify`` is a shell command that checks the result, if the command succeeded; the tests that it counts are noted. With
        ``outside="read-only"`` the rest of the file system is read-only, but for ``writable``. ``cwd`` is relative to the workspace.
        If the wait is interrupted, or takes longer than ``timeout`` seconds, the command is ended, its result is captured, and the
        exception goes on (``subprocess.TimeoutExpired``).
        """
        run = _Run(self._ws, attempt, command, outside=outside, writable=writable, cwd=cwd, env=env)
        with contextlib.ExitStack() as stack:
            output, check = _output_file(stack, capture_output), _output_file(stack, verify is not None)
            try:
                _wait(run, run.words, run.ended, output, timeout)
                if verify is not None and run.exit_status == 0:
                    _wait(run, ["/bin/sh", "-c", verify], run.checked(check), check, timeout)
            except (KeyboardInterrupt, SystemExit, subprocess.TimeoutExpired):
                run.finish()
                raise
            return run.result(run.finish(), _content(output))

    def preview_keep(self, attempt: AttemptLike, *, others: Others = "drop") -> AttemptKept:
        """Shows what :meth:`keep` would do, and changes nothing. The attempt is captured."""
        return self._keep(attempt, others, dry_run=True, expect=None)

    def keep(self, attempt: AttemptLike | AttemptKept, *, others: Others | None = None) -> AttemptKept:
        """Takes the result of an attempt over into the workspace, all of it or nothing. ``undo`` takes the workspace back.

        Of a preview, exactly what it showed is done, or :class:`Conflict` is raised. The other open attempts are dropped, unless
        ``others="open"``. What runs in closed attempts is ended.
        """
        if not isinstance(attempt, AttemptKept):
            return self._keep(attempt, others or "drop", dry_run=False, expect=None)
        if others not in (None, attempt._others):
            raise UsageError("others is that of the preview", code="usage")
        return self._keep(attempt.attempt, attempt._others, dry_run=False, expect=attempt._expect)

    def _keep(
        self, attempt: AttemptLike, others: Others, *, dry_run: bool, expect: tuple[str, str] | None
    ) -> AttemptKept:
        _one_of(others, ("drop", "open"), "others")
        found = self._ws._call_on_files(
            "attempt_keep", name=_name(attempt), others=others, dry_run=dry_run, expect=expect
        )
        return AttemptKept._read(found, dry_run, others)

    def drop(self, attempt: AttemptLike, *, delete_commits: bool = False) -> Attempt:
        """Closes an attempt. Its last state stays as a checkpoint. What runs in it is ended.

        ``delete_commits`` also deletes a room that is kept for commits which only its ``.git`` has.
        """
        return Attempt._read(
            self._ws._call("attempt_drop", name=_name(attempt), delete_commits=delete_commits)
        )


def _wait(
    run: _Run, words: Sequence[str], note: Callable[[int], None], output: IO[bytes] | None, timeout: float | None
) -> None:
    """Runs a process to its end, and notes that. If the wait fails, the process is ended first."""
    started, environment, directory = run.prepare(words)
    child = subprocess.Popen(started, env=environment, cwd=directory, **_streams(output))
    try:
        child.wait(timeout)
    except BaseException:
        child.terminate()
        try:
            child.wait(_GRACE_SECONDS)
        except BaseException:
            child.kill()
            child.wait()
        note(child.returncode)
        raise
    run.entered()
    note(child.returncode)


class AsyncAttempts:
    """Attempts of a workspace, for asyncio. Each method does what that of :class:`Attempts` does."""

    def __init__(self, workspace: AsyncWorkspace) -> None:
        self._workspace = workspace

    async def _inner(self) -> Attempts:
        return (await self._workspace._opened()).sync.attempts

    async def start(self, name: str | None = None, *, copy: bool = False) -> Attempt:
        """Starts an attempt."""
        inner = await self._inner()
        return await self._workspace._pool.run(lambda: inner.start(name, copy=copy))

    async def list(self, *, all: bool = False) -> List[Attempt]:
        """Returns the open attempts, oldest first."""
        inner = await self._inner()
        return await self._workspace._pool.run(lambda: inner.list(all=all))

    async def show(self, attempt: AttemptLike) -> Attempt:
        """Returns one attempt."""
        inner = await self._inner()
        return await self._workspace._pool.run(lambda: inner.show(attempt))

    async def compare(self, *, best: str | None = None, lowest: bool = False) -> AttemptComparison:
        """Compares the open attempts."""
        inner = await self._inner()
        return await self._workspace._pool.run(lambda: inner.compare(best=best, lowest=lowest))

    async def diff(self, attempt: AttemptLike, other: AttemptLike | None = None) -> List[Change]:
        """Returns differences."""
        inner = await self._inner()
        return await self._workspace._pool.run(lambda: inner.diff(attempt, other))

    async def run(
        self,
        attempt: AttemptLike,
        command: Sequence[AnyPath],
        *,
        verify: str | None = None,
        outside: Outside = "real",
        writable: Iterable[AnyPath] = (),
        capture_output: bool = False,
        timeout: float | None = None,
        cwd: AnyPath | None = None,
        env: Mapping[str, str] | None = None,
    ) -> AttemptRan:
        """Runs a command in an attempt. No thread waits for it, so that any number runs at once. If the task is cancelled, the command is
        ended and its result captured."""
        ws = (await self._workspace._opened()).sync
        pool = self._workspace._pool
        run = _Run(ws, attempt, command, outside=outside, writable=writable, cwd=cwd, env=env)
        with contextlib.ExitStack() as stack:
            output, check = _output_file(stack, capture_output), _output_file(stack, verify is not None)
            try:
                await self._wait(run, run.words, run.ended, output, timeout)
                if verify is not None and run.exit_status == 0:
                    await self._wait(run, ["/bin/sh", "-c", verify], run.checked(check), check, timeout)
            except (asyncio.CancelledError, subprocess.TimeoutExpired):
                await pool.finish(run.finish)
                raise
            return run.result(await pool.finish(run.finish), _content(output))

    async def _wait(
        self,
        run: _Run,
        words: Sequence[str],
        note: Callable[[int], None],
        output: IO[bytes] | None,
        timeout: float | None,
    ) -> None:
        pool = self._workspace._pool
        started, environment, directory = await pool.run(lambda: run.prepare(words))
        child = await asyncio.create_subprocess_exec(
            *started, env=environment, cwd=directory, **_streams(output)
        )
        waiting = asyncio.ensure_future(child.wait())
        try:
            done, _ = await asyncio.wait({waiting}, timeout=timeout)
            if not done:
                raise subprocess.TimeoutExpired(list(words), timeout or 0.0)
        except BaseException:
            await _end(child, waiting)
            note(waiting.result())
            raise
        await pool.run(run.entered)
        note(waiting.result())

    async def preview_keep(self, attempt: AttemptLike, *, others: Others = "drop") -> AttemptKept:
        """Shows what keeping would do."""
        inner = await self._inner()
        return await self._workspace._pool.run(lambda: inner.preview_keep(attempt, others=others))

    async def keep(self, attempt: AttemptLike | AttemptKept, *, others: Others | None = None) -> AttemptKept:
        """Takes the result of an attempt over into the workspace."""
        inner = await self._inner()
        return await self._workspace._pool.run(lambda: inner.keep(attempt, others=others))

    async def drop(self, attempt: AttemptLike, *, delete_commits: bool = False) -> Attempt:
        """Closes an attempt."""
        inner = await self._inner()
        return await self._workspace._pool.run(lambda: inner.drop(attempt, delete_commits=delete_commits))


async def _end(child: asyncio.subprocess.Process, waiting: asyncio.Future[int]) -> None:
    """Ends a process, even if the task is cancelled again."""
    for number, seconds in ((signal.SIGTERM, _GRACE_SECONDS), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)
        until = None if seconds is None else time.monotonic() + seconds
        while not waiting.done() and (until is None or time.monotonic() < until):
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({waiting}, timeout=None if until is None else until - time.monotonic())
        if waiting.done():
            return
