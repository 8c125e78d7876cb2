"""Runs of attached graphs: which files belong to which state.

A run holds the lock of its folder, and a record in the home. The lock ends with the process; a record that is active without one is that of
a run whose process was killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, List, TypeVar

from langgraph._internal._config import ensure_config

from ._errors import Busy, Conflict, Damaged, SafepointError, UsageError
from ._transaction import _sync_folder, _write_whole

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from .langgraph import SafepointSaver

G = TypeVar("G")
_log = logging.getLogger("safepoint")
_RECORD_BYTES_MAX = 4 << 20
_FORMAT = 1
#: Most states of one page of a list.
_PAGE = 200
#: Key of a config by which a graph knows that it runs inside of another one.
_READ = "__pregel_read"
_RETRY_SECONDS = 0.01
#: Writes that are no result of a node's work.
_KEPT = ("__interrupt__", "__resume__")
#: Fields of a state that is saved by the commit of a rollback.
_STATE_FIELDS = ("id", "parent", "run_id", "metadata", "body", "channels", "values", "serializer")


class _Folder:
    """Lock and record of the runs in one workspace."""

    def __init__(self, saver: SafepointSaver, given_up: threading.Event) -> None:
        assert saver.workspace is not None
        folder = os.path.join(saver.workspace.home, "runs")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self.path = os.path.join(folder, f"{saver.workspace.id}.json")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._lock = os.open(os.path.join(folder, f"{saver.workspace.id}.lock"), flags, 0o600)
        try:
            self._take(saver, given_up)
        except BaseException:
            os.close(self._lock)
            raise
        self.active: dict[str, Any] | None = None
        #: By thread, then by state, the tasks whose writes are those of a run that was killed.
        self.stale: dict[str, dict[str, list[str]]] = {}
        #: Reason why the record could not be read.
        self.unreadable: str | None = None
        #: Parallel nodes save at the same time.
        self._writing = threading.RLock()
        self._read()

    def _take(self, saver: SafepointSaver, given_up: threading.Event) -> None:
        """Takes the lock. A stream that was abandoned ends soon, so it waits as long as for other locks."""
        deadline = time.monotonic() + saver._home._lock_wait_ms / 1000
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() < deadline and not given_up.wait(_RETRY_SECONDS):
                    continue
            assert saver.workspace is not None
            raise Busy(
                f"another run is under way in {saver.workspace.root}",
                code="busy",
                hints=("Wait until it has ended, or give this graph a folder of its own.",),
            )

    def _read(self) -> None:
        try:
            with open(self.path, "rb") as file:
                content = file.read(_RECORD_BYTES_MAX + 1)
            self.active, self.stale = _facts_of(content)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            self.unreadable = f"{type(error).__name__}: {error}"

    def keep_unreadable(self) -> None:
        """Moves a record that cannot be read out of the way. It may tell of a killed run, so it is never overwritten."""
        kept, number = f"{self.path}.unreadable", 1
        while os.path.lexists(kept):
            number += 1
            kept = f"{self.path}.unreadable-{number}"
        try:
            os.rename(self.path, kept)
            _sync_folder(os.path.dirname(self.path))
        except OSError as error:
            raise SafepointError(
                f"cannot keep the record of runs {self.path}",
                code="home",
                causes=(str(error), f"it cannot be read: {self.unreadable}"),
                kind="failed",
            ) from error
        _log.warning(
            "cannot read the record of runs %s: %s; it is kept as %s. If a run was killed, its files were not rolled back",
            self.path, self.unreadable, kept,
        )  # fmt: skip
        self.unreadable = None

    def forget_redone(self) -> None:
        """Drops states all of whose tasks were done again: the record would grow with each killed run."""
        self.stale = {
            thread: left
            for thread, states in self.stale.items()
            if (left := {key: tasks for key, tasks in states.items() if tasks})
        }

    def redone(self, thread: str, key: str, task: str) -> None:
        """Notes that a task of a killed run was done again."""
        with self._writing:
            tasks = self.stale.get(thread, {}).get(key)
            if tasks and task in tasks:
                tasks.remove(task)
                self.write()

    def write(self) -> None:
        """Saves the record."""
        with self._writing:
            self._write()

    def _write(self) -> None:
        fields = {"format": _FORMAT, "active": self.active, "stale": self.stale}
        draft = f"{self.path}.new"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_whole(descriptor, json.dumps(fields).encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(draft, self.path)
        # The name, too: after a power cut an older record would not tell that this run died.
        _sync_folder(os.path.dirname(self.path))

    def leave(self) -> None:
        try:
            os.close(self._lock)
        except OSError:
            pass


def _facts_of(content: bytes) -> tuple[dict[str, Any] | None, dict[str, dict[str, list[str]]]]:
    """Returns the active run of a record, and its stale tasks."""
    if len(content) > _RECORD_BYTES_MAX:
        raise ValueError(f"it has more than {_RECORD_BYTES_MAX} bytes")
    fields = json.loads(content)
    if fields["format"] != _FORMAT:
        raise ValueError(f"its format is {fields['format']!r}, and not {_FORMAT}")
    active, stale = fields["active"], fields["stale"]
    if active is not None:
        wanted = (active["thread"], active["start"], active["head"] or "")
        if not all(isinstance(one, str) for one in wanted):
            raise ValueError("its active run is none")
    if not all(
        isinstance(tasks, list) and all(isinstance(task, str) for task in tasks)
        for states in stale.values()
        for tasks in states.values()
    ):
        raise ValueError("its stale tasks are none")
    return active, stale


def _key(namespace: str, state: str) -> str:
    return f"{namespace}\n{state}"


class Run:
    """One run of an attached graph, or one update of its state."""

    def __init__(
        self, saver: SafepointSaver, config: RunnableConfig, how: Mapping[str, Any], *, is_update: bool = False
    ) -> None:
        self._saver = saver
        self._how = how
        self._is_update = is_update
        #: Older state to which the first save of an update rolls back.
        self._updated: str | None = None
        self.thread = saver._thread(config)
        self._wanted = config.get("configurable", {}).get("checkpoint_id")
        self._namespace = saver._namespace(config) if "configurable" in config else ""
        self._start: str | None = None
        self._folder: _Folder | None = None
        self._process = os.getpid()
        self._saving = 0
        self._saved = threading.Condition()
        self._given_up = threading.Event()

    def give_up(self) -> None:
        """Stops to wait for the lock."""
        self._given_up.set()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """A save of this run. The run ends after those that have begun, and later ones are refused."""
        with self._saved:
            if self._folder is None:
                raise UsageError(f"the run of thread {self.thread!r} has ended", code="usage")
            self._saving += 1
        try:
            yield
        finally:
            with self._saved:
                self._saving -= 1
                self._saved.notify_all()

    # Its begin and end

    def begin(self) -> None:
        """Takes the lock, repairs after a killed run, goes to the wanted state, and captures the files."""
        folder = _Folder(self._saver, self._given_up)
        try:
            if folder.unreadable is not None:
                self._keep_unreadable(folder)
            if folder.active is not None:
                self._after_crash(folder, folder.active)
            self._go_to_wanted()
            workspace = self._saver.workspace
            assert workspace is not None
            start = workspace.create(
                kind="automatic", reason="safe_state", tool="langgraph", only_if_changed=True
            )
            self._start = start.id
            head = self._head(self.thread)
            folder.active = {
                "thread": self.thread,
                "start": start.id,
                "head": None if head is None else head["id"],
            }
            folder.forget_redone()
            folder.write()
        except BaseException:
            folder.leave()
            raise
        self._folder = folder
        self._saver._runs[self.thread] = self

    def end(self, error: BaseException | None) -> None:
        """Ends the run. With ``on_error="rollback"`` an exception takes the files back to the last state."""
        if self._process != os.getpid():
            return
        with self._saved:
            folder, self._folder = self._folder, None
            while self._saving > 0:
                self._saved.wait()
        if folder is None:
            return
        try:
            if isinstance(error, Exception) and self._how["on_error"] == "rollback" and folder.active is not None:
                self._back_to_head(folder, folder.active)
            folder.active = None
            folder.write()
        finally:
            self._saver._runs.pop(self.thread, None)
            folder.leave()

    def _head(self, thread: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._saver._call("thread_get", thread=thread, namespace="", id=None)
        return found

    def _keep_unreadable(self, folder: _Folder) -> None:
        if self._how["on_crash"] == "raise":
            raise Damaged(
                f"cannot read the record of runs {folder.path}",
                code="damaged",
                causes=(str(folder.unreadable),),
                hints=(
                    f"It may tell of a run that was killed. Look at the files, then move it away: mv {folder.path} {folder.path}.kept",
                    'attach(graph, on_crash="rollback") moves it away and goes on.',
                ),
            )
        folder.keep_unreadable()

    def _after_crash(self, folder: _Folder, dead: Mapping[str, Any]) -> None:
        if self._how["on_crash"] == "raise":
            raise Conflict(
                f"a run of thread {dead['thread']!r} was killed",
                code="unfinished_transaction",
                hints=('attach(graph, on_crash="rollback") goes back to its last state.',),
            )
        if self._how["on_crash"] == "rollback":
            self._back_to_head(folder, dead)
        folder.active = None
        folder.write()

    def _back_to_head(self, folder: _Folder, active: Mapping[str, Any]) -> None:
        """Rolls the files back to those of the last state of a run, or of its start if it saved none."""
        thread = active["thread"]
        head = self._head(thread)
        if head is None or head["id"] == active["head"]:
            workspace = self._saver.workspace
            assert workspace is not None
            workspace.rollback(active["start"], parts=["files"])
        elif head["files"] is not None:
            self._saver._call(
                "thread_rollback", thread=thread, namespace="", id=head["id"], options={"parts": ["files"]}
            )
        # Tasks that finished beside the failed one lost their files.
        self._mark_stale(folder, thread)

    def _mark_stale(self, folder: _Folder, thread: str) -> None:
        states = folder.stale.setdefault(thread, {})
        states.clear()
        after = None
        while True:
            page = self._saver._call(
                "thread_list",
                thread=thread, namespace=None, id=None, before=None, metadata={}, limit=50, after=after,
                heads=True, bare=True,
            )  # fmt: skip
            for state in page["states"]:
                tasks = sorted({write[0] for write in state["writes"] if write[2] not in _KEPT})
                if tasks:
                    states[_key(state["namespace"], state["id"])] = tasks
            after = page["next"]
            if after is None:
                return

    def _go_to_wanted(self) -> None:
        if self._wanted is None or self._namespace != "":
            return
        head = self._head(self.thread)
        if head is None or head["id"] == self._wanted:
            return
        if self._is_update:
            # Files, head and the new state follow by one commit; an update that fails before it changes nothing.
            self._updated = str(self._wanted)
            return
        self._saver._call(
            "thread_rollback", thread=self.thread, namespace="", id=str(self._wanted), options={}
        )

    # Its states

    def put(self, state: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        """Saves a state with its files, by one commit. The first state of an update of an older one has the files of that one."""
        updated = self._updated
        if updated is None or state["namespace"] != "":
            self._saver._call("thread_put", **state, **self._files(state, metadata))
            return
        fields = {name: state[name] for name in _STATE_FIELDS}
        self._saver._call("thread_rollback", thread=self.thread, namespace="", id=updated, options={}, state=fields)
        self._updated = None

    def _files(self, state: Mapping[str, Any], metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the files of a state: a checkpoint, or options of one that is captured with the state."""
        source = metadata.get("source")
        nothing = {"files": None, "capture": None}
        if state["namespace"] != "" and self._how["capture"] == "root":
            return nothing
        if source == "input":
            return {"files": self._start, "capture": None}
        if source == "fork":
            known = self._fork_of(state)
            if known is not None:
                return {"files": known, "capture": None}
        return {
            "files": None,
            "capture": {
                "kind": "automatic",
                "reason": "safe_state",
                "tool": "langgraph",
                "unchanged": "reused_of_any_session",
            },
        }

    def _fork_of(self, state: Mapping[str, Any]) -> str | None:
        """Returns the files of the state that a fork repeats: its parent, or a sibling with the same versions."""
        found: Mapping[str, Any] | None = None
        if state["parent"] is not None:
            found = self._saver._call(
                "thread_get", thread=self.thread, namespace=state["namespace"], id=state["parent"]
            )
            if found is None:
                return None
            versions = {name: version for name, (version, _) in found["channels"].items()}
            if versions == state["channels"]:
                files: str | None = found["files"]
                return files
        after = None
        while True:
            page = self._saver._call(
                "thread_list",
                thread=self.thread, namespace=state["namespace"], id=None, before=None, metadata={}, limit=_PAGE, after=after,
                bare=True,
            )  # fmt: skip
            for one in page["states"]:
                same = {name: version for name, (version, _) in one["channels"].items()} == state["channels"]
                if one["parent"] == state["parent"] and one["id"] != state["id"] and same:
                    sibling: str | None = one["files"]
                    return sibling
            after = page["next"]
            if after is None:
                return None if found is None else found["files"]

    # Writes of a run that was killed

    def usable(self, namespace: str, state: str, writes: List[Any]) -> List[Any]:
        """Returns the writes without results of a killed run, whose files were rolled back."""
        folder = self._folder
        if folder is None:
            return writes
        tasks = folder.stale.get(self.thread, {}).get(_key(namespace, state), [])
        return [write for write in writes if write[0] not in tasks or write[2] in _KEPT]

    def redoes(self, namespace: str, state: str) -> bool:
        """Returns true if results of a killed run are on record for this state."""
        folder = self._folder
        return folder is not None and _key(namespace, state) in folder.stale.get(self.thread, {})

    def wrote(self, namespace: str, state: str, task: str) -> None:
        """Notes that this run has redone a task."""
        folder = self._folder
        if folder is not None:
            folder.redone(self.thread, _key(namespace, state), task)


class Attached:
    """Methods of a graph whose states have files. Mixed into the class of the graph."""

    _safepoint_how: Mapping[str, Any]

    def _safepoint_run(self, config: Any, options: dict[str, Any]) -> Run | None:
        """Returns the run of a call; none for a graph that runs as a node of another one, in the run of that graph."""
        if options.get("durability") not in (None, "sync"):
            raise UsageError(
                f"an attached graph saves with durability sync, not {options['durability']}",
                code="usage",
                hints=("With async or exit the files would not be those of the state.",),
            )
        options["durability"] = "sync"
        return self._safepoint_begun(config)

    def _safepoint_update(self, config: Any) -> Run | None:
        """Returns the run of an update of the state; none inside of another graph."""
        return self._safepoint_begun(config, is_update=True)

    def _safepoint_begun(self, config: Any, *, is_update: bool = False) -> Run | None:
        # The same config that the graph itself derives: bound ones, and those of a runnable around it.
        whole = ensure_config(self.config, config)  # type: ignore[attr-defined]
        if _READ in whole.get("configurable", {}):
            return None
        saver: Any = self.checkpointer  # type: ignore[attr-defined]
        return Run(saver, whole, self._safepoint_how, is_update=is_update)


def _config_of(arguments: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    return arguments[0] if arguments else options.get("config")


@contextmanager
def _during(run: Run | None) -> Iterator[None]:
    if run is None:
        yield
        return
    run.begin()
    error: BaseException | None = None
    try:
        yield
    except BaseException as raised:
        error = raised
        raise
    finally:
        run.end(error)


class _During:
    """The same for asyncio. Neither begin nor end is cancelled half-way."""

    def __init__(self, saver: SafepointSaver, run: Run | None) -> None:
        self._saver, self._run = saver, run

    async def __aenter__(self) -> None:
        if self._run is None:
            return
        try:
            await self._saver._begins.finish(self._run.begin, self._run.give_up)
        except BaseException as error:
            await self._end(error)
            if isinstance(error.__cause__, asyncio.CancelledError):
                raise error.__cause__ from None
            raise

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        await self._end(error)

    async def _end(self, error: BaseException | None) -> None:
        run = self._run
        if run is not None:
            # Threads of their own: those of begins may all wait for this end.
            await self._saver._ends.finish(lambda: run.end(error))


def _class_of(base: type, how: Mapping[str, Any]) -> type:
    def stream(self: Any, input: Any, *arguments: Any, **options: Any) -> Iterator[Any]:
        with _during(self._safepoint_run(_config_of(arguments, options), options)):
            yield from base.stream(self, input, *arguments, **options)  # type: ignore[attr-defined]

    async def astream(self: Any, input: Any, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        run = self._safepoint_run(_config_of(arguments, options), options)
        async with _During(self.checkpointer, run):
            parts = base.astream(self, input, *arguments, **options)  # type: ignore[attr-defined]
            try:
                async for part in parts:
                    yield part
            finally:
                # An abandoned stream has to end its tasks before its run ends.
                await parts.aclose()

    def bulk_update_state(self: Any, config: Any, *arguments: Any, **options: Any) -> Any:
        with _during(self._safepoint_update(config)):
            return base.bulk_update_state(self, config, *arguments, **options)  # type: ignore[attr-defined]

    async def abulk_update_state(self: Any, config: Any, *arguments: Any, **options: Any) -> Any:
        async with _During(self.checkpointer, self._safepoint_update(config)):
            return await base.abulk_update_state(self, config, *arguments, **options)  # type: ignore[attr-defined]

    members = {
        "_safepoint_how": how,
        "stream": stream,
        "astream": astream,
        "bulk_update_state": bulk_update_state,
        "abulk_update_state": abulk_update_state,
    }
    return type(base.__name__, (Attached, base), members)


def attached(graph: G, saver: SafepointSaver, **how: Any) -> G:
    """Returns a copy of the graph whose class is a subclass of its own."""
    if isinstance(graph, Attached):
        raise UsageError("the graph is attached already", code="usage")
    # Graphs are plain objects; assigning __class__ fails where a subclass has another layout.
    clone: Any = object.__new__(_class_of(type(graph), how))
    clone.__dict__.update(graph.__dict__)
    return clone  # type: ignore[no-any-return]
