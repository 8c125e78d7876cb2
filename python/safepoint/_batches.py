"""Conversations of SDKs: chains of batches, each a state of a thread.

Batches never change. An append adds a batch and moves the head; removing items moves the head to a batch without them. So a rollback can
return to every earlier conversation.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from . import _surroundings
from ._calls import Home
from ._errors import Busy, Damaged, NotFound, UsageError
from ._workspace import AnyPath, Workspace

_ENCODING = "json"
#: Name of the serializer of these threads; savers of others refuse them.
_SERIALIZER = "safepoint-json"
_LOCKS = 64
_RETRY_SECONDS = 0.002
_PAGE = 1000


@dataclass(frozen=True)
class Owner:
    """Owner of threads: a workspace, whose checkpoints hold them, or a home."""

    home: Home
    workspace: str | None

    @classmethod
    def of(cls, workspace: Workspace | None, home: AnyPath | None) -> Owner:
        if workspace is not None and home is not None:
            raise UsageError("give a workspace or a home, not both", code="usage")
        if workspace is not None:
            return cls(workspace._home, workspace.id)
        place = _surroundings.default_home() if home is None else os.path.abspath(os.fspath(home))
        return cls(Home(place, session=_surroundings.session(), lock_wait=10.0), None)

    def call(self, verb: str, **arguments: Any) -> Any:
        return self.home.call(verb, workspace=self.workspace, **arguments)

    def threads(self, prefix: str) -> list[str]:
        """Returns the ids of the threads with a prefix."""
        return [thread for thread, _ in self.call("threads") if thread.startswith(prefix)]

    @contextmanager
    def locked(self, thread: str) -> Iterator[None]:
        """Excludes other writers of a thread, in this process and in others."""
        self.home.native()
        folder = os.path.join(self.home.path, "runs")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        number = zlib.crc32(f"{self.workspace}/{thread}".encode("utf-8", "surrogatepass")) % _LOCKS
        path = os.path.join(folder, f"thread-{number}.lock")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            deadline = time.monotonic() + self.home._lock_wait_ms / 1000
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise Busy(
                            f"cannot save to thread {thread!r}: another process is saving to it",
                            code="busy",
                            hints=("Try again, or open the workspace with a longer lock_wait.",),
                        ) from None
                    time.sleep(_RETRY_SECONDS)
            yield
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class Batch:
    """Items that were added together, and facts about the conversation up to them."""

    id: str
    parent: str | None
    items: list[dict[str, Any]]
    about: dict[str, Any]


def encoded(value: Any, what: str) -> tuple[str, bytes]:
    """Returns a value of a thread. Only what JSON can hold is accepted."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"cannot save {what}: {error}", code="bad_input") from error
    return _ENCODING, text.encode()


def decoded(value: Sequence[Any], where: str) -> Any:
    """Returns the content of a value of a thread."""
    try:
        if value[0] != _ENCODING:
            raise ValueError(f"its encoding is {value[0]!r}")
        return json.loads(value[1])
    except (ValueError, RecursionError) as error:
        raise Damaged(f"cannot read {where}: {error}", code="damaged") from error


def put(
    owner: Owner, thread: str, *, namespace: str, id: str, parent: str | None, body: tuple[str, bytes], metadata: Mapping[str, Any] | None = None
) -> None:
    """Saves a state without channels, and makes it the head of its namespace."""
    owner.call(
        "thread_put",
        thread=thread,
        namespace=namespace,
        id=id,
        parent=parent,
        run_id=None,
        metadata=dict(metadata or {}),
        body=body,
        channels={},
        values={},
        files=None,
        serializer=_SERIALIZER,
        ttl_seconds=None,
        capture=None,
    )


def states(
    owner: Owner,
    *,
    thread: str | None,
    namespace: str | None,
    id: str | None = None,
    before: str | None = None,
    page: int = _PAGE,
    heads: bool = False,
    bare: bool = False,
) -> Iterator[dict[str, Any]]:
    """Returns states, largest id first, page by page; heads alone, or without values."""
    after = None
    while True:
        found = owner.call(
            "thread_list",
            thread=thread,
            namespace=namespace,
            id=id,
            before=before,
            metadata={},
            limit=page,
            after=after,
            heads=heads,
            bare=bare,
        )
        yield from found["states"]
        after = found["next"]
        if after is None:
            return


def _read(state: Mapping[str, Any]) -> Batch:
    where = f"state {state['id']} of thread {state['thread']!r}"
    body = decoded(state["body"], where)
    if (
        not isinstance(body, dict)
        or not isinstance(body.get("items"), list)
        or not all(isinstance(item, dict) for item in body["items"])
        or not isinstance(body.get("about"), dict)
    ):
        raise Damaged(f"cannot read {where}: it is no batch of items", code="damaged")
    return Batch(state["id"], state["parent"], body["items"], body["about"])


class Chain:
    """Conversation in one namespace of a thread."""

    def __init__(self, owner: Owner, thread: str, namespace: str = "") -> None:
        self._owner = owner
        self.thread = thread
        self._namespace = namespace
        #: Id of the batch that this object saved last.
        self._last: str | None = None

    def head(self) -> Batch | None:
        """Returns the newest batch."""
        found = self._owner.call("thread_get", thread=self.thread, namespace=self._namespace, id=None)
        return None if found is None else _read(found)

    def tip(self) -> str | None:
        """Returns the id of the newest batch. Its items are not loaded if this object saved it."""
        if self._last is not None:
            found = states(self._owner, thread=self.thread, namespace=self._namespace, id=self._last, page=2, bare=True)
            if any(state["is_head"] for state in found):
                return self._last
        head = self.head()
        return None if head is None else head.id

    def batches(self, items: int | None = None) -> list[Batch]:
        """Returns the batches, oldest first; with ``items`` only the last ones that hold that many."""
        head = self.head()
        if head is None:
            return []
        found = [head]
        count = len(head.items)
        if head.parent is None or (items is not None and count >= items):
            return found
        page = _PAGE if items is None else max(1, min(_PAGE, items - count))
        for state in states(
            self._owner, thread=self.thread, namespace=self._namespace, before=head.id, page=page
        ):
            if state["id"] != found[-1].parent:
                continue
            batch = _read(state)
            found.append(batch)
            count += len(batch.items)
            if batch.parent is None or (items is not None and count >= items):
                break
        else:
            raise Damaged(
                f"cannot read thread {self.thread!r}: state {found[-1].parent} is missing", code="damaged"
            )
        found.reverse()
        return found

    def items(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Returns the items, oldest first; with ``limit`` only the last ones."""
        if limit == 0:
            return []
        every = [item for batch in self.batches(limit) for item in batch.items]
        return every if limit is None else every[-limit:]

    def append(self, items: Sequence[Mapping[str, Any]], about: Mapping[str, Any], after: str | None) -> str:
        """Adds a batch after the newest one, whose id is ``after``. The caller holds the lock."""
        return self._put(items, about, after, after)

    def replace(self, head: Batch, items: Sequence[Mapping[str, Any]]) -> None:
        """Replaces the newest batch, or removes it if no items are left. The caller holds the lock."""
        if not items and head.parent is not None:
            self._owner.call(
                "thread_move_head", thread=self.thread, namespace=self._namespace, id=head.parent
            )
        else:
            self._put(items, head.about, head.parent, head.id)

    def clear(self, head: Batch) -> None:
        """Starts an empty conversation. The caller holds the lock."""
        self._put([], {}, None, head.id)

    def remove(self) -> None:
        """Removes all batches of this namespace."""
        ids = [state["id"] for state in states(self._owner, thread=self.thread, namespace=self._namespace)]
        if ids:
            self._owner.call(
                "thread_remove", thread=self.thread, namespace=self._namespace, ids=ids, hide=False
            )

    def _put(
        self, items: Sequence[Mapping[str, Any]], about: Mapping[str, Any], parent: str | None, newest: str | None
    ) -> str:
        number = 0 if newest is None else int(newest.split("-")[0]) + 1
        id = f"{number:012}-{secrets.token_hex(4)}"
        body = encoded({"items": list(items), "about": dict(about)}, "the items")
        put(self._owner, self.thread, namespace=self._namespace, id=id, parent=parent, body=body)
        self._last = id
        return id


def checked(items: Any) -> list[dict[str, Any]]:
    """Returns items of a conversation: a list of objects with text keys."""
    if not isinstance(items, (list, tuple)):
        raise UsageError(f"items must be a list, not {type(items).__name__}", code="bad_input")
    for position, item in enumerate(items):
        if not isinstance(item, dict) or not all(isinstance(key, str) for key in item):
            raise UsageError(f"item {position} must be a dict with text keys", code="bad_input")
    # Refuses what JSON cannot hold before anything is saved.
    encoded(list(items), "the items")
    return list(items)


def delete(owner: Owner, thread: str) -> None:
    """Deletes a thread, if it exists."""
    try:
        owner.call("thread_delete", thread=thread)
    except NotFound as error:
        if error.code != "no_thread":
            raise
