"""A workspace: its checkpoints, and the way back."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, List, Literal, Union

from . import _surroundings
from ._attempts import Attempts
from ._calls import Home, path_argument, path_of, roots
from ._errors import Conflict, UsageError
from ._records import Change, Checkpoint, Counters, Entry, Kind, Phase, Reason, Rollback, Status
from ._transaction import Transaction, Unfinished, read_unfinished, settle

AnyPath = Union[str, "os.PathLike[str]"]
CheckpointLike = Union[str, Checkpoint]
OnCrash = Literal["keep", "rollback", "raise"]
Git = Literal["no", "tag", "branch", "session"]
GitReset = Literal["no", "mixed", "hard"]

_log = logging.getLogger("safepoint")


def reference(checkpoint: CheckpointLike) -> str:
    """Returns the name of a checkpoint: its id, a label, or ``@`` for the newest."""
    if isinstance(checkpoint, Checkpoint):
        return checkpoint.id
    if not isinstance(checkpoint, str):
        raise TypeError(f"expected a checkpoint or its name, not {type(checkpoint).__name__}")
    return checkpoint


class Workspace:
    """A registered folder. Thread-safe; in a forked child it opens its home anew.

    >>> ws = Workspace.open("shop")                        # doctest: +SKIP
    >>> cp = ws.create("tests pass"); ws.rollback(cp)      # doctest: +SKIP
    """

    def __init__(self, home: Home, fields: dict[str, Any]) -> None:
        self._home = home
        self.id: str = fields["id"]
        self.name: str = fields["name"]
        self.root: str = path_of(fields["root"])
        roots.add(os.path.realpath(self.root))

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
    ) -> Workspace:
        """Opens a folder, and registers it if it is new.

        ``home`` is the folder of checkpoints; that of the command ``safepoint`` if not given. ``session`` is the session that checkpoints
        belong to. ``lock_wait`` is the time in seconds to wait for other processes. ``force`` takes folders that are refused otherwise,
        such as ``$HOME``. ``on_crash`` says what to do about transactions that a killed process left open: nothing (``unfinished`` names
        them), roll them back, or raise.
        """
        if on_crash not in ("keep", "rollback", "raise"):
            raise UsageError(f"on_crash must be keep, rollback or raise, not {on_crash!r}", code="usage")
        folder = path_argument(path)
        place = _surroundings.default_home() if home is None else os.path.abspath(path_of(path_argument(home)))
        opened = Home(place, session=session or _surroundings.session(), lock_wait=lock_wait)
        fields = opened.call("register", path=folder, unusual="taken" if force else "refused")
        workspace = cls(opened, fields)
        if on_crash != "keep":
            workspace._settle_crashes(on_crash)
        return workspace

    def _settle_crashes(self, on_crash: OnCrash) -> None:
        left = self.unfinished()
        if not left:
            return
        if on_crash == "raise":
            raise Conflict(
                f"transaction {left[0].name!r} was left open by a process that ended",
                code="unfinished_transaction",
                hints=("Look at Workspace.unfinished(), then call rollback() or keep() on each.",),
            )
        settle(self)

    @classmethod
    def _reopen(cls, home: str, session: str | None, lock_wait: float, id: str) -> Workspace:
        opened = Home(home, session=session, lock_wait=lock_wait)
        return cls(opened, opened.call("workspace", workspace=id))

    def __reduce__(self) -> tuple[Any, ...]:
        home = self._home
        return Workspace._reopen, (home.path, home._session, home._lock_wait_ms / 1000, self.id)

    def __repr__(self) -> str:
        return f"Workspace({self.root!r})"

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def home(self) -> str:
        """Folder of the checkpoints."""
        return self._home.path

    def close(self) -> None:
        """Closes the home. Later calls raise :class:`UsageError`."""
        self._home.close()

    def _call(self, verb: str, **arguments: Any) -> Any:
        return self._home.call(verb, workspace=self.id, **arguments)

    def _call_on_files(self, verb: str, **arguments: Any) -> Any:
        return self._home.call(verb, folder=self.root, workspace=self.id, **arguments)

    def create(
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
        """Takes a checkpoint. When this returns, it is durable.

        With ``only_if_changed`` the checkpoint at the current position is returned if it holds the same state; ``unchanged`` tells.
        """
        created = self._call_on_files(
            "create",
            options=_options(
                label=label,
                kind=kind,
                reason=reason,
                phase=phase,
                plan=plan,
                session=session,
                tool=tool,
                pinned=pinned,
                progress=None if progress is None else dict(vars(progress)),
                git=git,
                unchanged="reused_of_any_session" if only_if_changed else "added",
            ),
        )
        return Checkpoint._read(created["checkpoint"], created)

    def list(
        self,
        *,
        limit: int | None = None,
        plan: str | None = None,
        session: str | None = None,
        kind: Kind | None = None,
        all: bool = False,
    ) -> List[Checkpoint]:
        """Returns checkpoints, newest first. ``all`` includes those that Safepoint made for itself."""
        if limit is not None and limit < 0:
            raise UsageError(f"limit must not be negative: {limit}", code="usage")
        found = self._call(
            "list", limit=limit, plan=plan, session=session, kind=kind, roles="any" if all else "asked"
        )
        return [Checkpoint._read(one) for one in found]

    def show(self, checkpoint: CheckpointLike = "@") -> Checkpoint:
        """Returns the checkpoint of an id, the beginning of one, a label, or ``@`` for the newest."""
        return Checkpoint._read(self._call("find", reference=reference(checkpoint)))

    def files(self, checkpoint: CheckpointLike = "@") -> List[Entry]:
        """Returns the files, directories and links of a checkpoint."""
        found = self._home.call("entries", checkpoint=self.show(checkpoint).id)
        return [Entry._read(one, path_of(one["path"])) for one in found]

    def read(self, path: AnyPath, checkpoint: CheckpointLike = "@") -> bytes:
        """Returns a file's content in a checkpoint."""
        found = self._home.call("cat", checkpoint=self.show(checkpoint).id, path=path_argument(path))
        return base64.b64decode(found["bytes"])

    def diff(self, old: CheckpointLike = "@", new: CheckpointLike | None = None) -> List[Change]:
        """Returns the differences between two checkpoints, or a checkpoint and the current state."""
        other = None if new is None else reference(new)
        return [Change._read(one) for one in self._call_on_files("diff", old=reference(old), new=other)]

    def status(self) -> Status:
        """Returns the changes since the last checkpoint."""
        return Status._read(self._call_on_files("status"))

    def rollback(
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
        """Makes the workspace equal to a checkpoint: all of it, or chosen paths or kinds of parts. All or nothing.

        ``leave`` names paths that stay as they are, with everything below.
        """
        options = {
            "paths": [path_argument(path) for path in _listed(paths, "paths")],
            "leave": [path_argument(path) for path in _listed(leave, "leave")],
            "parts": _listed(parts, "parts"),
            "dry_run": dry_run,
            "keep_times": keep_times,
            "git": git,
        }
        return Rollback._read(self._call_on_files("rollback", to=reference(to), options=options))

    def undo(
        self, *, paths: Iterable[AnyPath] = (), dry_run: bool = False, replace_changes: bool = False
    ) -> Rollback:
        """Undoes the last rollback. ``replace_changes`` allows it although files changed since; a safety checkpoint keeps those changes."""
        options = {
            "paths": [path_argument(path) for path in _listed(paths, "paths")],
            "dry_run": dry_run,
            "replace_changes": replace_changes,
        }
        return Rollback._read(self._call_on_files("undo", options=options))

    def redo(self, *, dry_run: bool = False, replace_changes: bool = False) -> Rollback:
        """Repeats the rollback that was last undone."""
        options = {"dry_run": dry_run, "replace_changes": replace_changes}
        return Rollback._read(self._call_on_files("redo", options=options))

    def pin(self, checkpoint: CheckpointLike, pinned: bool = True) -> Checkpoint:
        """Pins a checkpoint, so that it is never pruned, or unpins it."""
        return Checkpoint._read(self._home.call("pin", checkpoint=self.show(checkpoint).id, pinned=pinned))

    def delete(self, *checkpoints: CheckpointLike, keep_tags: bool = False) -> None:
        """Deletes all these checkpoints or none."""
        chosen = [self.show(checkpoint).id for checkpoint in checkpoints]
        self._home.call("delete", checkpoints=chosen, keep_tags=keep_tags)

    def transaction(
        self,
        name: str = "transaction",
        *,
        plan: str | None = None,
        on_crash: OnCrash = "keep",
        leave: Iterable[AnyPath] = (),
    ) -> Transaction:
        """Returns a context manager. If its block raises anything, all parts are rolled back by one commit, and the exception goes on.

        ``leave`` names paths that stay as they are, with everything below.
        """
        left = [path_argument(path) for path in _listed(leave, "leave")]
        return Transaction(self, name, plan=plan, on_crash=on_crash, leave=left)

    @property
    def attempts(self) -> Attempts:
        """Attempts: work in rooms of their own, compared, kept or dropped."""
        return Attempts(self)

    def report_metrics(self, metrics: Mapping[str, float]) -> None:
        """Notes numbers, such as ``{"accuracy": 0.93}``, for the next checkpoint. In an attempt, its result has them."""
        self._call("metrics", metrics={name: float(value) for name, value in metrics.items()})

    def unfinished(self) -> List[Unfinished]:
        """Returns the transactions that a process left open when it was killed, oldest first."""
        return read_unfinished(self)


def _options(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _listed(given: Iterable[Any], name: str) -> list[Any]:
    if isinstance(given, (str, bytes)):
        raise TypeError(f"{name} must be a list, not one text")
    return [*given]
