"""The same for asyncio: a small pool of threads does the work.

Work that has begun ends, even if its task is cancelled. Leaving a transaction cannot be cancelled.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, List, NoReturn, TypeVar

from ._attempts import AsyncAttempts
from ._records import Change, Checkpoint, Counters, Entry, Kind, Phase, Reason, Rollback, Status
from ._transaction import Transaction, Unfinished
from ._workspace import AnyPath, CheckpointLike, Git, GitReset, OnCrash, Workspace

T = TypeVar("T")
_THREADS = 4


class _Pool:
    """Threads of one process. With one thread, work is done in the order of the calls."""

    def __init__(self, threads: int = _THREADS) -> None:
        self._size = threads
        self._process = os.getpid()
        self._threads: ThreadPoolExecutor | None = None

    def _submit(self, act: Callable[[], T]) -> Future[T]:
        if self._threads is None or self._process != os.getpid():
            self._process = os.getpid()
            self._threads = ThreadPoolExecutor(self._size, thread_name_prefix="safepoint")
        return self._threads.submit(act)

    async def run(self, act: Callable[[], T]) -> T:
        """Runs ``act``. If the task is cancelled, work that has not begun is dropped, and work that has begun ends unobserved."""
        work = self._submit(act)
        waiting = asyncio.wrap_future(work)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            work.cancel()
            waiting.add_done_callback(_observe)
            raise

    async def finish(self, act: Callable[[], T], cancel: Callable[[], None] | None = None) -> T:
        """Runs ``act`` to its end. A cancellation takes effect afterwards; ``cancel`` may ask ``act`` to end early."""
        waiting = asyncio.wrap_future(self._submit(act))
        cancelled: asyncio.CancelledError | None = None
        while not waiting.done():
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError as error:
                cancelled = error
                if cancel is not None:
                    cancel()
            except BaseException:
                break
        if cancelled is not None:
            if waiting.exception() is None:
                raise cancelled
            raise waiting.exception() from cancelled  # type: ignore[misc]
        return waiting.result()

    def close(self) -> None:
        if self._threads is not None and self._process == os.getpid():
            self._threads.shutdown(wait=False)
        self._threads = None


def _observe(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()


class AsyncWorkspace:
    """A registered folder, for asyncio. Each method does what that of :class:`Workspace` does."""

    def __init__(self, opens: Callable[[], Workspace]) -> None:
        self._opens = opens
        self._pool = _Pool()
        self._sync: Workspace | None = None

    @classmethod
    def open(
        cls,
        path: AnyPath,
        *,
        home: AnyPath | None = None,
        session: str | None = None,
        lock_wait: float = 10.0,
        force: bool = False,
        on_crash: OnCrash = "keep",
    ) -> AsyncWorkspace:
        """Opens a folder: ``async with AsyncWorkspace.open(path) as ws``, or ``ws = await AsyncWorkspace.open(path)``."""
        return cls(
            lambda: Workspace.open(
                path, home=home, session=session, lock_wait=lock_wait, force=force, on_crash=on_crash
            )
        )

    async def _opened(self) -> AsyncWorkspace:
        if self._sync is None:
            self._sync = await self._pool.run(self._opens)
        return self

    def __await__(self) -> Generator[Any, None, AsyncWorkspace]:
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncWorkspace:
        return await self._opened()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def sync(self) -> Workspace:
        """The same workspace for code without asyncio. It must be open."""
        if self._sync is None:
            raise RuntimeError("the workspace is not open yet: await it, or use `async with`")
        return self._sync

    @property
    def id(self) -> str:
        """Id of the workspace."""
        return self.sync.id

    @property
    def root(self) -> str:
        """Folder."""
        return self.sync.root

    async def close(self) -> None:
        """Closes the home."""
        if self._sync is not None:
            self._sync.close()
        self._pool.close()

    async def create(
        self,
        label: str | None = None,
        *,
        kind: Kind = "manual",
        reason: Reason = "manual",
        phase: Phase | None = None,
        plan: str | None = None,
        session: str | None = None,
        tool: str | None = None,
        pinned: bool = False,
        progress: Counters | None = None,
        git: Git = "no",
        only_if_changed: bool = False,
    ) -> Checkpoint:
        """Takes a checkpoint."""
        ws = (await self._opened()).sync
        return await self._pool.run(
            lambda: ws.create(
                label,
                kind=kind,
                reason=reason,
                phase=phase,
                plan=plan,
                session=session,
                tool=tool,
                pinned=pinned,
                progress=progress,
                git=git,
                only_if_changed=only_if_changed,
            )
        )

    async def list(
        self,
        *,
        limit: int | None = None,
        plan: str | None = None,
        session: str | None = None,
        kind: Kind | None = None,
        all: bool = False,
    ) -> List[Checkpoint]:
        """Returns checkpoints, newest first."""
        ws = (await self._opened()).sync
        return await self._pool.run(lambda: ws.list(limit=limit, plan=plan, session=session, kind=kind, all=all))

    async def show(self, checkpoint: CheckpointLike = "@") -> Checkpoint:
        """Returns one checkpoint."""
        ws = (await self._opened()).sync
        return await self._pool.run(lambda: ws.show(checkpoint))

    async def files(self, checkpoint: CheckpointLike = "@") -> List[Entry]:
        """Returns the entries of a checkpoint."""
        ws = (await self._opened()).sync
        return await self._pool.run(lambda: ws.files(checkpoint))

    async def read(self, path: AnyPath, checkpoint: CheckpointLike = "@") -> bytes:
        """Returns a file's content in a checkpoint."""
        ws = (await self._opened()).sync
        return await self._pool.run(lambda: ws.read(path, checkpoint))

    async def diff(self, old: CheckpointLike = "@", new: CheckpointLike | None = None) -> List[Change]:
        """Returns differences."""
        ws = (await self._opened()).sync
        return await self._pool.run(lambda: ws.diff(old, new))

    async def status(self) -> Status:
        """Returns the changes since the last checkpoint."""
        ws = (await self._opened()).sync
        return await self._pool.run(ws.status)

    async def rollback(
        self,
        to: CheckpointLike = "@",
        *,
        paths: Iterable[AnyPath] = (),
        leave: Iterable[AnyPath] = (),
        parts: Iterable[str] = (),
        dry_run: bool = False,
        keep_times: bool = False,
        git: GitReset = "no",
    ) -> Rollback:
        """Makes the workspace equal to a checkpoint."""
        ws = (await self._opened()).sync
        return await self._pool.run(
            lambda: ws.rollback(
                to, paths=paths, leave=leave, parts=parts, dry_run=dry_run, keep_times=keep_times, git=git
            )
        )

    async def undo(
        self, *, paths: Iterable[AnyPath] = (), dry_run: bool = False, replace_changes: bool = False
    ) -> Rollback:
        """Undoes the last rollback."""
        ws = (await self._opened()).sync
        return await self._pool.run(
            lambda: ws.undo(paths=paths, dry_run=dry_run, replace_changes=replace_changes)
        )

    async def redo(self, *, dry_run: bool = False, replace_changes: bool = False) -> Rollback:
        """Repeats the rollback that was last undone."""
        ws = (await self._opened()).sync
        return await self._pool.run(lambda: ws.redo(dry_run=dry_run, replace_changes=replace_changes))

    async def pin(self, checkpoint: CheckpointLike, pinned: bool = True) -> Checkpoint:
        """Pins a checkpoint, so that it is never pruned, or unpins it."""
        ws = (await self._opened()).sync
        return await self._pool.run(lambda: ws.pin(checkpoint, pinned))

    async def delete(self, *checkpoints: CheckpointLike, keep_tags: bool = False) -> None:
        """Deletes all these checkpoints or none."""
        ws = (await self._opened()).sync
        await self._pool.run(lambda: ws.delete(*checkpoints, keep_tags=keep_tags))

    @property
    def attempts(self) -> AsyncAttempts:
        """Attempts: work in rooms of their own, compared, kept or dropped."""
        return AsyncAttempts(self)

    async def report_metrics(self, metrics: Mapping[str, float]) -> None:
        """Notes numbers for the next checkpoint."""
        ws = (await self._opened()).sync
        await self._pool.run(lambda: ws.report_metrics(metrics))

    async def unfinished(self) -> List[Unfinished]:
        """Returns the transactions that a killed process left open."""
        ws = (await self._opened()).sync
        return await self._pool.run(ws.unfinished)

    def transaction(
        self,
        name: str = "transaction",
        *,
        plan: str | None = None,
        on_crash: OnCrash = "keep",
        leave: Iterable[AnyPath] = (),
    ) -> AsyncTransaction:
        """Returns an async context manager: ``async with ws.transaction("refactor") as a``."""
        left = list(leave)
        return AsyncTransaction(self, lambda ws: ws.transaction(name, plan=plan, on_crash=on_crash, leave=left))


class AsyncTransaction:
    """Async context manager of a block that is done as a whole or not at all."""

    def __init__(self, workspace: AsyncWorkspace, begins: Callable[[Workspace], Transaction]) -> None:
        self._workspace, self._begins = workspace, begins
        self._sync: Transaction | None = None

    def __reduce__(self) -> NoReturn:
        raise TypeError("a transaction belongs to its process and cannot be pickled")

    async def __aenter__(self) -> AsyncTransaction:
        ws = (await self._workspace._opened()).sync
        inner = self._begins(ws)
        pool = self._workspace._pool
        try:
            await pool.finish(inner.__enter__)
        except asyncio.CancelledError:
            # The block never runs, so there is nothing to roll back.
            await pool.finish(lambda: inner.__exit__(None, None, None))
            raise
        self._sync = inner
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        inner = self.sync
        return await self._workspace._pool.finish(lambda: inner.__exit__(kind, error, traceback))

    @property
    def sync(self) -> Transaction:
        """The same transaction for code without asyncio. It must be open."""
        if self._sync is None:
            raise RuntimeError("the transaction is not open: use `async with`")
        return self._sync

    @property
    def checkpoint(self) -> Checkpoint | None:
        """State before the block."""
        return self.sync.checkpoint

    @property
    def rolled_back(self) -> Rollback | None:
        """The rollback, if there was one."""
        return self.sync.rolled_back

    @property
    def rejected(self) -> str | None:
        """Reason of :meth:`reject`."""
        return self.sync.rejected

    def reject(self, reason: str = "rejected") -> NoReturn:
        """Leaves the block, and rolls back. Nothing is raised behind the block."""
        self.sync.reject(reason)
