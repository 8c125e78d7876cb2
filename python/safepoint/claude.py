"""Claude Agent SDK: a checkpoint before each prompt and each change, and the transcript as a part of it.

>>> from safepoint import claude
>>> async with ClaudeSDKClient(claude.options(workspace)) as client: ...           # doctest: +SKIP
>>> claude.rewind(workspace, session_id, message_uuid)                             # doctest: +SKIP
>>> ClaudeSDKClient(claude.options(workspace, resume=session_id))                  # doctest: +SKIP
"""

from __future__ import annotations

import logging
import os
import secrets
import time
from collections.abc import Mapping
from typing import Any, List, cast
from urllib.parse import quote, unquote

from claude_agent_sdk import (
    ClaudeAgentOptions,
    HookContext,
    HookInput,
    HookMatcher,
    SessionKey,
    SessionListSubkeysKey,
    SessionStore,
    SessionStoreEntry,
    SessionStoreListEntry,
    SessionSummaryEntry,
    fold_session_summary,
)
from claude_agent_sdk.types import HookEvent, HookJSONOutput

from ._aio import _Pool
from ._batches import Batch, Chain, Owner, checked, decoded, delete, encoded, put, states
from ._errors import NotFound, SafepointError, UsageError
from ._records import Rollback
from ._workspace import AnyPath, Workspace

__all__ = ["SafepointSessionStore", "options", "rewind"]

_PREFIX = "claude/"
_PROMPTS = "claude-prompts/"
#: Tools that change files.
_TOOLS = "Bash|Write|Edit"
_KNOWN_MAX = 64

_log = logging.getLogger("safepoint")


def _text(given: Any, what: str) -> str:
    if not isinstance(given, str) or not given:
        raise UsageError(f"a {what} must be text that is not empty", code="bad_input")
    return given


def _thread(project: str, session: str) -> str:
    # A slash in either must not look like the one between them.
    try:
        return f"{_PREFIX}{quote(project, safe='')}/{quote(session, safe='')}"
    except UnicodeEncodeError as error:
        raise UsageError(f"a project key and a session id must be text: {error}", code="bad_input") from error


class SafepointSessionStore(SessionStore):
    """Store of transcripts. With a workspace its checkpoints hold them: a rollback restores them with the files.

    ``home`` names a folder of checkpoints instead. Each append is durable when it returns; entries whose ``uuid`` is stored already are
    ignored.
    """

    def __init__(self, workspace: Workspace | None = None, *, home: AnyPath | None = None) -> None:
        self._owner = Owner.of(workspace, home)
        # One thread, so that appends are stored in the order of the calls.
        self._pool = _Pool(1)
        #: By thread and namespace, a head and the uuids up to it.
        self._known: dict[tuple[str, str], tuple[str, set[str]]] = {}

    def _chain(self, key: Mapping[str, Any]) -> tuple[Chain, str, str]:
        project, session = _text(key.get("project_key"), "project key"), _text(key.get("session_id"), "session id")
        namespace = "" if key.get("subpath") is None else _text(key["subpath"], "subpath")
        thread = _thread(project, session)
        return Chain(self._owner, thread, namespace), thread, namespace

    def _uuids(self, chain: Chain, place: tuple[str, str], head: Batch | None) -> set[str]:
        known = self._known.get(place)
        if head is None:
            return set()
        if known is not None and known[0] == head.id:
            return known[1]
        return {item["uuid"] for item in chain.items() if isinstance(item.get("uuid"), str)}

    async def append(self, key: SessionKey, entries: List[SessionStoreEntry]) -> None:
        """Adds entries to a transcript: all or none."""
        chain, thread, namespace = self._chain(cast("Mapping[str, Any]", key))
        given = checked(entries)

        def add() -> None:
            with self._owner.locked(thread):
                head = chain.head()
                uuids = set(self._uuids(chain, (thread, namespace), head))
                new = []
                for entry in given:
                    uuid = entry.get("uuid")
                    if isinstance(uuid, str):
                        if uuid in uuids:
                            continue
                        uuids.add(uuid)
                    new.append(entry)
                if not new:
                    return
                id = chain.append(new, self._about(key, head, new), None if head is None else head.id)
            while len(self._known) >= _KNOWN_MAX:
                self._known.pop(next(iter(self._known)))
            self._known[(thread, namespace)] = (id, uuids)

        if given:
            await self._pool.finish(add)

    @staticmethod
    def _about(key: SessionKey, head: Batch | None, new: list[dict[str, Any]]) -> dict[str, Any]:
        before = {} if head is None else head.about
        now = max(int(time.time() * 1000), int(before.get("mtime", 0)) + 1)
        about: dict[str, Any] = {"mtime": now}
        if key.get("subpath") is None:
            entries = cast("List[SessionStoreEntry]", new)
            summary = fold_session_summary(before.get("summary"), key, entries)
            summary["mtime"] = now
            about["summary"] = summary
        return about

    async def load(self, key: SessionKey) -> List[SessionStoreEntry] | None:
        """Returns a transcript, or ``None`` if it has no entries."""
        chain, _, _ = self._chain(cast("Mapping[str, Any]", key))
        found = await self._pool.run(chain.items)
        return cast("List[SessionStoreEntry]", found) if found else None

    def _mains(self, project_key: str) -> list[tuple[str, dict[str, Any]]]:
        prefix = _thread(_text(project_key, "project key"), "")
        found = []
        for thread in self._owner.threads(prefix):
            head = Chain(self._owner, thread).head()
            # Without a time it has subagents only, or was rolled back to before its first entry.
            if head is not None and "mtime" in head.about:
                found.append((unquote(thread[len(prefix) :]), head.about))
        return found

    async def list_sessions(self, project_key: str) -> List[SessionStoreListEntry]:
        """Returns the sessions of a project, with the times of their last changes."""
        found = await self._pool.run(lambda: self._mains(project_key))
        return [{"session_id": session, "mtime": about["mtime"]} for session, about in found]

    async def list_session_summaries(self, project_key: str) -> List[SessionSummaryEntry]:
        """Returns the summaries of a project's sessions."""
        found = await self._pool.run(lambda: self._mains(project_key))
        return [cast(SessionSummaryEntry, about["summary"]) for _, about in found]

    async def delete(self, key: SessionKey) -> None:
        """Deletes a transcript; a main one with those of its subagents. Checkpoints that hold it can still restore it."""
        chain, thread, namespace = self._chain(cast("Mapping[str, Any]", key))

        def remove() -> None:
            with self._owner.locked(thread):
                if namespace:
                    chain.remove()
                else:
                    delete(self._owner, thread)

        await self._pool.finish(remove)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> List[str]:
        """Returns the subpaths of a session that have transcripts."""
        _, thread, _ = self._chain(cast("Mapping[str, Any]", key))

        def find() -> list[str]:
            heads = states(self._owner, thread=thread, namespace=None, heads=True, bare=True)
            return sorted(state["namespace"] for state in heads if state["namespace"])

        return await self._pool.run(find)

    def _begin(self, project: str, session: str) -> str:
        """Returns the head of a main transcript; an empty one is made, because a rollback leaves threads that it does not know."""
        thread = _thread(project, session)
        chain = Chain(self._owner, thread)
        with self._owner.locked(thread):
            head = chain.head()
            return chain.append([], {}, None) if head is None else head.id


class _Hooks:
    """Hooks of one workspace."""

    def __init__(self, workspace: Workspace, store: SafepointSessionStore) -> None:
        self._workspace = workspace
        self._store = store
        self._pool = _Pool(1)

    def _capture(self, given: Mapping[str, Any]) -> None:
        is_prompt = given["hook_event_name"] == "UserPromptSubmit"
        session = _text(given["session_id"], "session id")
        # The folder of the transcript is the project key of the store.
        project = _text(os.path.basename(os.path.dirname(given["transcript_path"])), "project key")
        head = self._store._begin(project, session)
        made = self._workspace.create(
            kind="automatic",
            reason="safe_state" if is_prompt else "pre_risky_operation",
            tool="claude_agent_sdk",
            only_if_changed=True,
        )
        if not is_prompt:
            return
        body = {
            "checkpoint": made.id,
            "head": head,
            "prompt": given.get("prompt"),
            "prompt_id": given.get("prompt_id"),
        }
        # In the home, not in the workspace: this record is no part of the state that is captured.
        put(
            Owner(self._workspace._home, None),
            _prompts(self._workspace, session),
            namespace="",
            id=f"{time.time_ns():020}-{secrets.token_hex(4)}",
            parent=None,
            body=encoded(body, "the prompt"),
        )

    async def __call__(self, given: HookInput, _: str | None, __: HookContext) -> HookJSONOutput:
        try:
            await self._pool.finish(lambda: self._capture(cast("Mapping[str, Any]", given)))
        except (SafepointError, KeyError, TypeError, OSError) as error:
            _log.warning("no checkpoint before %s: %s", given.get("hook_event_name"), error)
        return {}


def _prompts(workspace: Workspace, session: str) -> str:
    return f"{_PROMPTS}{workspace.id}/{quote(session, safe='')}"


def options(
    workspace: Workspace, *, hooks: Mapping[HookEvent, List[HookMatcher]] | None = None, **more: Any
) -> ClaudeAgentOptions:
    """Returns options of the SDK with hooks that take checkpoints, and the session store.

    ``hooks`` are added to ours; ``more`` are other options of the SDK. The working directory is the workspace. A hook that cannot take its
    checkpoint logs a warning, and lets the agent go on.
    """
    if more.get("enable_file_checkpointing"):
        raise UsageError("enable_file_checkpointing cannot be combined with a session store", code="usage")
    store = more.pop("session_store", None) or SafepointSessionStore(workspace)
    if not isinstance(store, SafepointSessionStore):
        raise UsageError("session_store must be a SafepointSessionStore", code="usage")
    capture = _Hooks(workspace, store)
    every: dict[HookEvent, list[HookMatcher]] = {
        "UserPromptSubmit": [HookMatcher(hooks=[capture])],
        "PreToolUse": [HookMatcher(matcher=_TOOLS, hooks=[capture])],
    }
    for event, matchers in (hooks or {}).items():
        every[event] = [*every.get(event, []), *matchers]
    return ClaudeAgentOptions(**{"cwd": workspace.root, **more, "hooks": every, "session_store": store})


def _prompt_of(entry: Mapping[str, Any]) -> str | None:
    """Returns the text of a user's message."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        texts = [block.get("text") for block in content if isinstance(block, dict) and block.get("type") == "text"]
        content = "\n".join(text for text in texts if isinstance(text, str)) if texts else None
    return content if isinstance(content, str) else None


def rewind(workspace: Workspace, session: str, message: str, *, dry_run: bool = False) -> Rollback:
    """Rolls the files and the transcript back to the moment before a prompt, by one commit. Then resume the session.

    ``message`` is the ``uuid`` of the user's message. ``Workspace.undo`` restores what was there before. The whole workspace is rolled back:
    other conversations in its checkpoint, too.
    """
    session, message = _text(session, "session id"), _text(message, "message")
    owner = Owner(workspace._home, workspace.id)
    for thread in owner.threads(_PREFIX):
        if unquote(thread.split("/")[-1]) == session:
            found = _checkpoint_before(workspace, owner, thread, session, message)
            if found is not None:
                return workspace.rollback(found, dry_run=dry_run)
    raise NotFound(
        f"session {session!r} has no checkpoint before message {message!r}",
        code="no_checkpoint",
        hints=("Give the uuid of a prompt: claude_agent_sdk.get_session_messages_from_store lists them.",),
    )


def _checkpoint_before(
    workspace: Workspace, owner: Owner, thread: str, session: str, message: str
) -> str | None:
    earlier: set[str] = set()
    wanted: Mapping[str, Any] | None = None
    for batch in Chain(owner, thread).batches():
        wanted = next((item for item in batch.items if item.get("uuid") == message), None)
        if wanted is not None:
            break
        earlier.add(batch.id)
    if wanted is None:
        return None
    home = Owner(workspace._home, None)
    for state in states(home, thread=_prompts(workspace, session), namespace=""):
        record = decoded(state["body"], f"prompt {state['id']}")
        if record["head"] not in earlier:
            continue
        prompt_id = wanted.get("promptId")
        same = (
            prompt_id == record["prompt_id"]
            if prompt_id is not None and record["prompt_id"] is not None
            else record["prompt"] == _prompt_of(wanted)
        )
        if same:
            return str(record["checkpoint"])
    return None
