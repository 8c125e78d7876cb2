"""Pydantic AI: conversations as parts of checkpoints, and tool calls as transactions.

>>> from safepoint.pydantic_ai import SafepointConversationStore, SafepointTools
>>> agent = Agent(model, capabilities=[SafepointTools(workspace)])                     # doctest: +SKIP
>>> store = SafepointConversationStore(workspace)                                      # doctest: +SKIP
>>> conversation = await store.load("t1") or Conversation(conversation_id="t1")        # doctest: +SKIP
>>> await store.save(await agent.run("Go on", conversation=conversation))              # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, List, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary, WeakValueDictionary

from pydantic import TypeAdapter
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, SkipToolExecution
from pydantic_ai.messages import ModelMessagesTypeAdapter, ToolCallPart
from pydantic_ai.tools import ToolDefinition

from ._aio import AsyncWorkspace, _Pool
from ._batches import Owner, decoded, encoded, put, states
from ._errors import Damaged, NotFound, UsageError
from ._workspace import AnyPath, Workspace

__all__ = ["SafepointConversationStore", "SafepointTools"]

T = TypeVar("T")
_PREFIX = "pydantic-ai/"
_ENTRIES = "entries"
_RECORD = "record"
_records: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


def _thread(conversation_id: str) -> str:
    if not isinstance(conversation_id, str) or not conversation_id:
        raise UsageError("a conversation id must be text that is not empty", code="bad_input")
    try:
        return f"{_PREFIX}{quote(conversation_id, safe='')}"
    except UnicodeEncodeError as error:
        raise UsageError(f"a conversation id must be text: {error}", code="bad_input") from error


def _dumped(dump: Callable[[], Any], what: str) -> Any:
    try:
        return dump()
    except (TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"cannot save {what}: {error}", code="bad_input") from error


def _entry_body(entry: ConversationEntry) -> tuple[str, bytes]:
    def dump() -> dict[str, Any]:
        messages = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json", warnings="error")
        return {"parent_id": entry.parent_id, "kind": entry.kind, "message": messages[0]}

    return encoded(_dumped(dump, "an entry"), "an entry")


def _record_body(record: ConversationRecord) -> tuple[str, bytes]:
    return encoded(
        _dumped(lambda: _records.dump_python(record, mode="json", warnings="error"), "a record"), "a record"
    )


def _read(state: Mapping[str, Any], read: Callable[[Any], T]) -> T:
    where = f"state {state['id']} of thread {state['thread']!r}"
    body = decoded(state["body"], where)
    try:
        return read(body)
    except (TypeError, ValueError, KeyError) as error:
        raise Damaged(f"cannot read {where}: {error}", code="damaged") from error


def _entry(state: Mapping[str, Any]) -> ConversationEntry:
    def read(body: Any) -> ConversationEntry:
        message = ModelMessagesTypeAdapter.validate_python([body["message"]])[0]
        return ConversationEntry(
            id=state["id"], parent_id=body["parent_id"], message=message, kind=body["kind"]
        )

    return _read(state, read)


def _record(state: Mapping[str, Any]) -> ConversationRecord:
    return _read(state, _records.validate_python)


class SafepointConversationStore(ConversationStore):
    """Store of conversations. With a workspace its checkpoints hold them: a rollback restores them with the files.

    A rollback to a checkpoint that is older than a conversation leaves it. ``home`` names a folder of checkpoints instead of a workspace.
    A record is durable when a save returns; its entries are durable before it. ``delete`` keeps the entries, because forks and checkpoints
    may need them.
    """

    def __init__(self, workspace: Workspace | None = None, *, home: AnyPath | None = None) -> None:
        self._owner = Owner.of(workspace, home)
        self._pool = _Pool()

    def _head(self, conversation_id: str) -> ConversationRecord | None:
        thread = _thread(conversation_id)
        found = self._owner.call("thread_get", thread=thread, namespace=_RECORD, id=None)
        return None if found is None else _record(found)

    def _find(self, entry_id: str) -> dict[str, Any] | None:
        if not isinstance(entry_id, str) or not entry_id:
            raise UsageError("an entry id must be text that is not empty", code="bad_input")
        for state in states(self._owner, thread=None, namespace=_ENTRIES, id=entry_id, page=10):
            if state["thread"].startswith(_PREFIX):
                return state
        return None

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Returns the record of a conversation."""
        return await self._pool.run(lambda: self._head(conversation_id))

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Returns the records, last saved first."""

        def read() -> list[ConversationRecord]:
            found = []
            for thread in self._owner.threads(_PREFIX):
                state = self._owner.call("thread_get", thread=thread, namespace=_RECORD, id=None)
                if state is not None:
                    found.append(_record(state))
            chosen = [record for record in found if scope is None or record.scope == scope]
            chosen.sort(key=lambda record: record.updated_at, reverse=True)
            return chosen[:limit]

        return await self._pool.run(read)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Saves a record and its new entries, if the stored revision is the expected one."""
        # Nothing is stored unless all of it can be.
        body = _record_body(record)
        entries = [(entry.id, entry.parent_id, _entry_body(entry)) for entry in new_entries]
        thread = _thread(record.conversation_id)

        def write() -> None:
            with self._owner.locked(thread):
                stored = self._head(record.conversation_id)
                if (None if stored is None else stored.revision) != expected_revision:
                    raise ConversationConflict(record.conversation_id)
                known = {id for id, _, _ in entries}
                if record.head_id is not None and record.head_id not in known and self._find(record.head_id) is None:
                    raise ConversationConflict(record.conversation_id)
                for id, parent, entry in entries:
                    put(self._owner, thread, namespace=_ENTRIES, id=id, parent=parent, body=entry)
                # Checkpoints hold the head of the namespace with its ancestors.
                last = entries[-1][0] if entries else None
                if record.head_id is not None and record.head_id != last:
                    head = self._find(record.head_id)
                    if head is not None and head["thread"] == thread and not head["is_head"]:
                        self._owner.call("thread_move_head", thread=thread, namespace=_ENTRIES, id=record.head_id)
                id = f"{time.time_ns():020}-{secrets.token_hex(4)}"
                put(self._owner, thread, namespace=_RECORD, id=id, parent=None, body=body)

        await self._pool.finish(write)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Deletes the record of a conversation. Its entries stay."""
        thread = _thread(conversation_id)

        def remove() -> None:
            with self._owner.locked(thread):
                stored = self._head(conversation_id)
                if stored is None or stored.revision != expected_revision:
                    raise ConversationConflict(conversation_id)
                ids = [state["id"] for state in states(self._owner, thread=thread, namespace=_RECORD)]
                self._owner.call("thread_remove", thread=thread, namespace=_RECORD, ids=ids, hide=False)

        await self._pool.finish(remove)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Returns an entry."""
        return await self._pool.run(lambda: _entry(self._existing(entry_id)))

    def _existing(self, entry_id: str) -> dict[str, Any]:
        found = self._find(entry_id)
        if found is None:
            raise NotFound(f"entry {entry_id!r} is not stored", code="no_state")
        return found

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> List[ConversationEntry]:
        """Returns the entries up to ``head_id``, oldest first; with ``limit`` only the last ones."""
        if limit is not None:
            return await super().read_history(head_id, limit=limit)

        def read() -> list[ConversationEntry]:
            known: dict[str, Mapping[str, Any]] = {}
            found: list[ConversationEntry] = []
            wanted = head_id
            while wanted is not None:
                if wanted not in known:
                    # The thread of this entry holds those before it, up to a fork.
                    thread = self._existing(wanted)["thread"]
                    known.update(
                        (state["id"], state)
                        for state in states(self._owner, thread=thread, namespace=_ENTRIES)
                    )
                # Each entry once: damaged ones must not make a circle.
                if len(found) > len(known) or wanted not in known:
                    raise Damaged(f"cannot read the history of entry {head_id!r}: it has no beginning", code="damaged")
                found.append(_entry(known[wanted]))
                wanted = found[-1].parent_id
            found.reverse()
            return found

        return await self._pool.run(read)


class _Turns:
    """Turns of the tool calls in one workspace: one at a time in each event loop."""

    def __init__(self) -> None:
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()

    def lock(self) -> asyncio.Lock:
        return self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())


_Place = tuple[str, str]
#: Turns by home and workspace, shared by the agents of this process.
_turns: WeakValueDictionary[_Place, _Turns] = WeakValueDictionary()
#: Turns of the calls inside of a call that has its turn.
_inside: ContextVar[Mapping[_Place, _Turns]] = ContextVar("safepoint_tool_calls", default={})  # noqa: B039
#: What ends a call without a failure.
_SIGNALS = (ApprovalRequired, CallDeferred, SkipToolExecution)


@dataclass(eq=False)
class SafepointTools(AbstractCapability[Any]):
    """Capability that makes each tool call a transaction: if a tool raises, everything that it did in the workspace is rolled back.

    ``tools`` names the tools that are covered; all of them without it. A tool that asks the model to try again is rolled back, too. One
    whose call is deferred, or that another capability skips, is not. Covered calls take turns, because a rollback takes the whole folder
    back. If the checkpoint fails, the tool does not run.
    """

    workspace: Workspace
    tools: Collection[str] | None = None
    _async: AsyncWorkspace = field(init=False, repr=False)
    _own: _Turns = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.tools, str):
            raise TypeError("tools must be a list of names, not one text")
        workspace = self.workspace
        self._async = AsyncWorkspace(lambda: workspace)
        self._own = _turns.setdefault(self._place(), _Turns())

    def _place(self) -> _Place:
        return self.workspace.home, self.workspace.id

    @classmethod
    def get_serialization_name(cls) -> str | None:
        """Returns nothing: a workspace is no part of a specification."""
        return None

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Waits for the turn of a call. Calls inside of it, as those of an agent that the tool runs, have turns of their own."""
        above, place = _inside.get(), self._place()
        async with above.get(place, self._own).lock():
            token = _inside.set({**above, place: _Turns()})
            try:
                yield
            finally:
                _inside.reset(token)

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        """Runs a tool call as a transaction."""
        if self.tools is not None and call.tool_name not in self.tools:
            return await handler(args)
        async with self._turn():
            async with self._async.transaction(call.tool_name):
                try:
                    return await handler(args)
                except _SIGNALS as raised:
                    signal = raised
            raise signal
