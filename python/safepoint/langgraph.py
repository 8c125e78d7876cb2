"""LangGraph: conversations as parts of checkpoints, so that they and the files go back together.

>>> from safepoint.langgraph import SafepointSaver, attach
>>> saver = SafepointSaver(workspace)                                  # doctest: +SKIP
>>> graph = attach(builder.compile(checkpointer=saver))                # doctest: +SKIP
>>> graph.invoke(None, old.config)                                     # doctest: +SKIP

``SafepointSaver(home=...)`` saves conversations without files; it needs no ``attach``.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from . import _surroundings
from ._aio import _Pool
from ._calls import Home
from ._errors import NotFound, SafepointError, UsageError
from ._workspace import AnyPath, Workspace

if TYPE_CHECKING:
    from ._langgraph_run import Run

__all__ = ["Migrated", "SafepointSaver", "attach", "migrate"]

T = TypeVar("T")
G = TypeVar("G")
_log = logging.getLogger("safepoint")
_PAGE = 50
_EXPIRE_SECONDS = 60.0
#: Name of the serializer of these threads. Those of another one, such as that of JavaScript, are refused.
_SERIALIZER = "langgraph-py"
_THREAD_ID_BYTES_MAX = 512


class SafepointSaver(BaseCheckpointSaver[str]):
    """Saver of LangGraph on Safepoint's threads.

    With a workspace each state of an attached graph has the files of its moment. ``home`` names the folder of checkpoints; that of the
    command ``safepoint`` if neither is given. ``ttl`` deletes whole threads that long after their last change. Values that need pickle
    are refused unless ``allow_pickle``.
    """

    def __init__(
        self,
        workspace: Workspace | None = None,
        *,
        home: AnyPath | None = None,
        ttl: timedelta | None = None,
        serde: SerializerProtocol | None = None,
        allow_pickle: bool = False,
    ) -> None:
        super().__init__(serde=serde or JsonPlusSerializer(pickle_fallback=allow_pickle))
        if workspace is not None and home is not None:
            raise UsageError("a saver has a workspace or a home, not both", code="usage")
        if workspace is not None:
            self._home = workspace._home
        else:
            place = _surroundings.default_home() if home is None else os.path.abspath(os.fspath(home))
            self._home = Home(place, session=_surroundings.session(), lock_wait=10.0)
        self.workspace: Workspace | None = workspace
        self._ttl_seconds = None if ttl is None else max(1, int(ttl.total_seconds()))
        # Copies of a saver share them.
        self._pool, self._begins, self._ends = _Pool(), _Pool(), _Pool()
        #: Run of an attached graph, by thread of the conversation.
        self._runs: dict[str, Run] = {}
        #: Time of the next look for threads to delete.
        self._expires_at = 0.0
        self._expire()

    def _expire(self) -> None:
        """Deletes threads whose time is over: when a saver is made, and at most once a minute beside its saves."""
        if self._ttl_seconds is None or time.monotonic() < self._expires_at:
            return
        self._expires_at = time.monotonic() + _EXPIRE_SECONDS
        try:
            self._home.call("thread_expire")
        except SafepointError as error:
            # The save does not depend on it.
            _log.warning("cannot delete expired threads: %s", error.message)

    # Calls

    def _call(self, verb: str, **arguments: Any) -> Any:
        owner = None if self.workspace is None else self.workspace.id
        folder = None if self.workspace is None else self.workspace.root
        if verb not in ("thread_put", "thread_rollback"):
            folder = None
        return self._home.call(verb, folder=folder, workspace=owner, **arguments)

    async def _apart(self, act: Callable[[], T]) -> T:
        return await self._pool.run(act)

    def _dump(self, value: Any, what: str) -> tuple[str, bytes]:
        try:
            return self.serde.dumps_typed(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"cannot serialize {what}: {error}") from error

    @staticmethod
    def _thread(config: RunnableConfig) -> str:
        thread = config.get("configurable", {}).get("thread_id")
        if thread is None:
            raise UsageError("the config has no thread_id", code="usage")
        text = str(thread)
        if not text or "\0" in text or len(text.encode("utf-8", "surrogatepass")) > _THREAD_ID_BYTES_MAX:
            raise UsageError(
                f"a thread id has 1 to {_THREAD_ID_BYTES_MAX} bytes and no NUL: {text[:40]!r}", code="bad_input"
            )
        return text

    @staticmethod
    def _namespace(config: RunnableConfig) -> str:
        return str(config["configurable"].get("checkpoint_ns") or "")

    # Reading

    def _body(self, found: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            body = self.serde.loads_typed(tuple(found["body"]))
            if body.keys() == {"checkpoint", "metadata", "values"}:
                return cast("Mapping[str, Any]", body)
            why = "it is no state of a graph in Python"
        except (AttributeError, NotImplementedError, ValueError) as error:
            why = str(error) or type(error).__name__
        raise UsageError(
            f"cannot read state {found['id']} of thread {found['thread']!r}: another serializer saved it",
            code="bad_input",
            causes=(why,),
            hints=("Read it with the saver that wrote it, or choose another thread_id.",),
        )

    def _tuple(self, found: Mapping[str, Any]) -> CheckpointTuple:
        body = self._body(found)
        checkpoint: dict[str, Any] = dict(body["checkpoint"])
        values = dict(body["values"])
        for name, (_, value) in found["channels"].items():
            if value is not None:
                values[name] = self.serde.loads_typed(tuple(value))
        checkpoint["channel_values"] = values
        writes = sorted(found["writes"], key=lambda write: (write[4], write[0], write[1]))
        run = self._runs.get(found["thread"])
        if run is not None:
            writes = run.usable(found["namespace"], found["id"], writes)

        def config(id: str) -> RunnableConfig:
            return {
                "configurable": {
                    "thread_id": found["thread"],
                    "checkpoint_ns": found["namespace"],
                    "checkpoint_id": id,
                }
            }

        return CheckpointTuple(
            config=config(found["id"]),
            checkpoint=cast(Checkpoint, checkpoint),
            metadata=body["metadata"],
            parent_config=None if found["parent"] is None else config(found["parent"]),
            pending_writes=[
                (task, channel, self.serde.loads_typed(tuple(value))) for task, _, channel, value, _ in writes
            ],
        )

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Returns a state: the one that the config names, or the head of its thread. Changes nothing."""
        found = self._call(
            "thread_get",
            thread=self._thread(config),
            namespace=self._namespace(config),
            id=get_checkpoint_id(config),
        )
        return None if found is None else self._tuple(found)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Returns states, largest id first, page by page. A caller may save while it iterates."""
        configurable = {} if config is None else config["configurable"]
        namespace = configurable.get("checkpoint_ns")
        wanted = {
            "thread": None if config is None else self._thread(config),
            "namespace": None if namespace is None else str(namespace),
            "id": None if config is None else get_checkpoint_id(config),
            "before": None if before is None else get_checkpoint_id(before),
            # Bound values; anything but text is compared below, where 1 equals 1.0.
            "metadata": {key: value for key, value in (filter or {}).items() if isinstance(value, str)},
        }
        left, after = limit, None
        while left is None or left > 0:
            page = self._call("thread_list", **wanted, limit=_PAGE if left is None else min(_PAGE, left), after=after)
            for found in page["states"]:
                try:
                    one = self._tuple(found)
                except UsageError:
                    if config is not None:
                        raise
                    # A home has threads of other programs, too.
                    continue
                metadata = cast("dict[str, Any]", one.metadata)
                if all(metadata.get(key) == value for key, value in (filter or {}).items()):
                    yield one
                    if left is not None:
                        left -= 1
                        if left <= 0:
                            return
            after = page["next"]
            if after is None:
                return

    # Saving

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Saves a state and makes it the head. When this returns, it is durable."""
        thread, namespace = self._thread(config), self._namespace(config)
        run = self._run_of(thread)
        fields = dict(checkpoint)
        values: dict[str, Any] = dict(fields.pop("channel_values"))  # type: ignore[call-overload]
        versions = {name: json.dumps(version) for name, version in checkpoint["channel_versions"].items()}
        parent = config["configurable"].get("checkpoint_id")
        # Without a parent nothing was stored before, whatever the versions say.
        fresh = set(new_versions) | (set(values) if parent is None else set())
        known = get_checkpoint_metadata(config, metadata)
        body = {
            "checkpoint": fields,
            "metadata": known,
            # A channel without a version has no history; its value belongs to this state alone.
            "values": {name: value for name, value in values.items() if name not in versions},
        }
        run_id = config.get("configurable", {}).get("run_id") or cast("dict[str, Any]", known).get("run_id")
        state = {
            "thread": thread,
            "namespace": namespace,
            "id": checkpoint["id"],
            "parent": parent,
            "run_id": None if run_id is None else str(run_id),
            "metadata": _plain(cast("dict[str, Any]", known)),
            "body": self._dump(body, "the state"),
            "channels": versions,
            "values": {
                name: self._dump(values[name], f"channel {name!r}") if name in values else None
                for name in sorted(fresh)
                if name in versions
            },
            "serializer": _SERIALIZER,
            "ttl_seconds": self._ttl_seconds,
        }
        with contextlib.nullcontext() if run is None else run.saving():
            if run is None:
                self._call("thread_put", **state, files=None, capture=None)
            else:
                run.put(state, metadata)
        self._expire()
        return {
            "configurable": {
                "thread_id": config["configurable"]["thread_id"],
                "checkpoint_ns": namespace,
                "checkpoint_id": checkpoint["id"],
            }
        }

    def _run_of(self, thread: str) -> Run | None:
        if self.workspace is None:
            return None
        run = self._runs.get(thread)
        if run is None:
            raise UsageError(
                "a saver with a workspace saves for attached graphs",
                code="usage",
                hints=("graph = attach(builder.compile(checkpointer=saver))", "Or without files: SafepointSaver(home=...)"),
            )
        return run

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Saves writes of a task. Those on record stay; errors, interrupts and resumes are replaced."""
        thread = self._thread(config)
        run = self._run_of(thread)
        state = str(config["configurable"]["checkpoint_id"])
        ordinary: list[tuple[int, str, tuple[str, bytes]]] = []
        special: list[tuple[int, str, tuple[str, bytes]]] = []
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            entry = (index, channel, self._dump(value, f"a write to channel {channel!r}"))
            (special if index < 0 else ordinary).append(entry)
        namespace = self._namespace(config)
        with contextlib.nullcontext() if run is None else run.saving():
            # Writes of a run that died are replaced by those of the run that does its work again.
            redone = run is not None and run.redoes(namespace, state)
            for chosen, replace in ((ordinary, redone), (special, True)):
                if chosen:
                    self._call(
                        "thread_put_writes",
                        thread=thread,
                        namespace=namespace,
                        state=state,
                        task_id=task_id,
                        task_path=task_path,
                        writes=chosen,
                        replace=replace,
                        serializer=_SERIALIZER,
                    )
            if run is not None:
                run.wrote(namespace, state, task_id)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Returns the next version of a channel."""
        if current is None:
            number = 0
        elif isinstance(current, int):
            number = current
        else:
            number = int(str(current).split(".")[0])
        return f"{number + 1:032}.{random.random():016}"

    # Upkeep

    def delete_thread(self, thread_id: str, *, erase: bool = False) -> None:
        """Deletes a thread. Checkpoints that hold it can still restore its heads.

        With ``erase`` it is removed from every checkpoint, too, and its bytes are freed: nothing restores it.
        """
        self._call("thread_delete", thread=str(thread_id), erase=erase)

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Removes the states that these runs saved. Those that a delta channel of a later state needs are hidden."""
        self._call("thread_delete_runs", runs=[str(run) for run in run_ids])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread with its history. Values are shared."""
        try:
            self._call("thread_copy", **{"from": str(source_thread_id), "to": str(target_thread_id)})
        except NotFound as error:
            if error.code != "no_thread":
                raise

    def prune(
        self, thread_ids: Sequence[str], *, strategy: str = "keep_latest", keep_last: int = 1
    ) -> None:
        """Removes all states of these threads but the newest ``keep_last`` of each namespace, or with ``delete`` all.

        States that a delta channel of a kept one needs are hidden instead.
        """
        if strategy == "delete":
            for thread in thread_ids:
                self.delete_thread(thread)
            return
        if strategy != "keep_latest":
            raise UsageError(f"strategy must be keep_latest or delete, not {strategy!r}", code="usage")
        if keep_last < 1:
            raise UsageError(f"keep_last must be at least 1: {keep_last}", code="usage")
        for thread in thread_ids:
            try:
                self._call(
                    "thread_prune", thread=str(thread), keep_last=keep_last, hidden_ancestors=self._needed(str(thread))
                )
            except NotFound as error:
                if error.code != "no_thread":
                    raise

    def _needed(self, thread: str) -> int:
        """Returns the number of ancestors that delta channels of the heads need."""
        needed = 0
        after = None
        while True:
            page = self._call(
                "thread_list",
                thread=thread, namespace=None, id=None, before=None, metadata={}, limit=1000, after=after, bare=True,
            )  # fmt: skip
            for state in page["states"]:
                counters = state["metadata"].get("counters_since_delta_snapshot") or {}
                for count in counters.values():
                    steps = max(count) if isinstance(count, (list, tuple)) else count
                    needed = max(needed, int(steps) + 1)
            after = page["next"]
            if after is None:
                return needed

    # asyncio

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As :meth:`get_tuple`."""
        return await self._apart(lambda: self.get_tuple(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As :meth:`list`."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        end = object()
        while True:
            one = await self._apart(lambda: next(found, end))
            if one is end:
                return
            yield cast(CheckpointTuple, one)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As :meth:`put`."""
        return await self._apart(lambda: self.put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As :meth:`put_writes`."""
        await self._apart(lambda: self.put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        """As :meth:`delete_thread`."""
        await self._apart(lambda: self.delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As :meth:`delete_for_runs`."""
        await self._apart(lambda: self.delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As :meth:`copy_thread`."""
        await self._apart(lambda: self.copy_thread(source_thread_id, target_thread_id))

    async def aprune(
        self, thread_ids: Sequence[str], *, strategy: str = "keep_latest", keep_last: int = 1
    ) -> None:
        """As :meth:`prune`."""
        await self._apart(lambda: self.prune(thread_ids, strategy=strategy, keep_last=keep_last))


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata that JSON can hold, by which states are filtered."""
    found: dict[str, Any] = {}
    for key, value in metadata.items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError):
            continue
        found[key] = value
    return found


@dataclass(frozen=True)
class Migrated:
    """Counts of a migration."""

    threads: int
    states: int
    writes: int


def migrate(source: BaseCheckpointSaver[Any], target: SafepointSaver) -> Migrated:
    """Copies all threads of another saver, with their history and the writes that no later state has taken in.

    The target has no workspace: states that were saved elsewhere have no files. Threads that it knows already are refused before anything
    is copied. If it fails half-way, :meth:`SafepointSaver.delete_thread` removes what was copied, and it can be repeated.
    """
    if target.workspace is not None:
        raise UsageError("states of another saver have no files: migrate to SafepointSaver(home=...)", code="usage")
    places: dict[tuple[str, str], list[str]] = {}
    for one in source.list(None):
        at = one.config["configurable"]
        places.setdefault((str(at["thread_id"]), str(at.get("checkpoint_ns") or "")), []).append(at["checkpoint_id"])
    for thread, namespace in places:
        if target.get_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": namespace}}) is not None:
            raise UsageError(
                f"thread {thread!r} exists in the target already",
                code="usage",
                hints=(f"target.delete_thread({thread!r}) removes it.",),
            )
    states = writes = 0
    for (thread, namespace), ids in places.items():
        for id in sorted(ids):
            at = {"thread_id": thread, "checkpoint_ns": namespace}
            found = source.get_tuple({"configurable": {**at, "checkpoint_id": id}})
            if found is None:
                continue
            writes += _copied(found, target, at)
            states += 1
    return Migrated(threads=len({thread for thread, _ in places}), states=states, writes=writes)


def _copied(found: CheckpointTuple, target: SafepointSaver, at: Mapping[str, str]) -> int:
    """Copies one state. Returns the number of its writes."""
    parent = None if found.parent_config is None else found.parent_config["configurable"].get("checkpoint_id")
    # Nothing else of the config: its other keys would become metadata.
    config: RunnableConfig = {"configurable": {**at, "checkpoint_id": parent}}
    target.put(config, found.checkpoint, found.metadata, dict(found.checkpoint["channel_versions"]))
    tasks: dict[str, list[tuple[str, Any]]] = {}
    for task, channel, value in found.pending_writes or []:
        tasks.setdefault(task, []).append((channel, value))
    # All writes of a task in one call: their places are their order.
    for task, made in tasks.items():
        target.put_writes({"configurable": {**at, "checkpoint_id": found.checkpoint["id"]}}, made, task)
    return sum(len(made) for made in tasks.values())


def attach(
    graph: G,
    *,
    on_crash: Literal["rollback", "keep", "raise"] = "rollback",
    on_error: Literal["keep", "rollback"] = "keep",
    capture: Literal["all", "root"] = "all",
) -> G:
    """Returns the same graph with the files of the saver's workspace attached to its states.

    Runs take the lock of the folder, save with durability ``sync``, and roll files and head back together where a config names an older
    state. ``on_crash`` is about a run whose process was killed: its files go back to those of the last state and its nodes run again. With
    ``capture="root"`` states of subgraphs have no files.
    """
    from ._langgraph_run import attached

    saver = getattr(graph, "checkpointer", None)
    if not isinstance(saver, SafepointSaver) or saver.workspace is None:
        raise UsageError(
            "attach needs a graph with SafepointSaver(workspace)",
            code="usage",
            hints=("graph = attach(builder.compile(checkpointer=SafepointSaver(ws)))",),
        )
    return attached(graph, saver, on_crash=on_crash, on_error=on_error, capture=capture)

