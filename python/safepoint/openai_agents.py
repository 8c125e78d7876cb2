"""OpenAI Agents SDK: conversations as parts of checkpoints, and a checkpoint before each tool.

>>> from safepoint.openai_agents import SafepointHooks, SafepointSession
>>> session = SafepointSession("t1", workspace)                                       # doctest: +SKIP
>>> await Runner.run(agent, "Go on", session=session, hooks=SafepointHooks(workspace))  # doctest: +SKIP
"""

from __future__ import annotations

from typing import Any, List, cast

from agents import Agent, RunContextWrapper, RunHooks, SessionABC, SessionSettings, Tool, TResponseInputItem

from ._aio import _Pool
from ._batches import Chain, Owner, checked, delete
from ._errors import UsageError
from ._workspace import AnyPath, Workspace

__all__ = ["SafepointHooks", "SafepointSession"]

_PREFIX = "openai/"


class SafepointSession(SessionABC):
    """Session whose items are a part of the workspace's checkpoints: a rollback restores them with the files.

    A rollback to a checkpoint that is older than the session leaves its items. ``home`` names a folder of checkpoints instead; such a
    session has no files. Each call is durable when it returns. Several processes can add items to one session.
    """

    def __init__(
        self,
        session_id: str,
        workspace: Workspace | None = None,
        *,
        home: AnyPath | None = None,
        session_settings: SessionSettings | None = None,
    ) -> None:
        if not isinstance(session_id, str) or not session_id:
            raise UsageError("a session id must be text that is not empty", code="bad_input")
        self.session_id: str = session_id
        self.session_settings: SessionSettings | None = session_settings or SessionSettings()
        self._owner = Owner.of(workspace, home)
        self._chain = Chain(self._owner, f"{_PREFIX}{session_id}")
        self._pool = _Pool(1)
        self._closed = False
        if workspace is not None:
            self._begin()

    def _begin(self) -> None:
        # A rollback leaves a thread that its checkpoint does not know; an empty one is known.
        with self._owner.locked(self._chain.thread):
            if self._chain.head() is None:
                self._chain.append([], {}, None)

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the session is closed", code="usage", hints=("Make it again: SafepointSession(id, ws)",))

    async def get_items(self, limit: int | None = None) -> List[TResponseInputItem]:
        """Returns the items, oldest first; with ``limit`` only the last ones."""
        self._check_open()
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        # A negative limit means all, as for SQLiteSession.
        wanted = None if limit is None or limit < 0 else limit
        return cast("List[TResponseInputItem]", await self._pool.run(lambda: self._chain.items(wanted)))

    async def add_items(self, items: List[TResponseInputItem]) -> None:
        """Adds items: all or none."""
        self._check_open()
        given = checked(items)

        def add() -> None:
            with self._owner.locked(self._chain.thread):
                self._chain.append(given, {}, self._chain.tip())

        if given:
            await self._pool.finish(add)

    async def pop_item(self) -> TResponseInputItem | None:
        """Removes the last item and returns it."""
        self._check_open()

        def pop() -> Any:
            with self._owner.locked(self._chain.thread):
                head = self._chain.head()
                if head is None or not head.items:
                    return None
                self._chain.replace(head, head.items[:-1])
                return head.items[-1]

        return cast("TResponseInputItem | None", await self._pool.finish(pop))

    async def clear_session(self) -> None:
        """Removes all items. A rollback can restore them; :meth:`erase` deletes them."""
        self._check_open()

        def clear() -> None:
            with self._owner.locked(self._chain.thread):
                head = self._chain.head()
                if head is not None:
                    self._chain.clear(head)

        await self._pool.finish(clear)

    async def erase(self) -> None:
        """Deletes the session with its history. Checkpoints that hold it can still restore it."""
        self._check_open()

        def erase() -> None:
            with self._owner.locked(self._chain.thread):
                delete(self._owner, self._chain.thread)

        await self._pool.finish(erase)

    def close(self) -> None:
        """Closes the session. Later calls raise :class:`UsageError`. The workspace stays open."""
        self._closed = True
        self._pool.close()


class SafepointHooks(RunHooks[Any]):
    """Hooks that take a checkpoint before each tool, unless nothing changed since the last one.

    If the checkpoint fails, the run ends with its exception, and the tool does not run.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._pool = _Pool(1)

    async def on_tool_start(self, context: RunContextWrapper[Any], agent: Agent[Any], tool: Tool) -> None:
        """Takes the checkpoint."""
        await self._pool.finish(
            lambda: self._workspace.create(
                kind="automatic", reason="pre_risky_operation", tool="openai_agents", only_if_changed=True
            )
        )
