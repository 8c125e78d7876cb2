"""Records that the verbs return."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from ._calls import path_of

Kind = Literal["automatic", "manual", "workflow", "emergency"]
Reason = Literal[
    "phase_complete", "task_group_complete", "safe_state", "pre_risky_operation", "error_recovery", "manual"
]
Phase = Literal["plan", "generate_tasks", "implement", "validate", "cleanup"]
ChangeKind = Literal["added", "removed", "modified", "meta", "type"]


def time_of(text: str) -> datetime:
    """Returns a time of a record, in UTC."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@dataclass(frozen=True)
class Counters:
    """Progress of the work: six counters."""

    tasks_completed: int = 0
    decisions_made: int = 0
    files_modified: int = 0
    files_created: int = 0
    tests_passing: int = 0
    tests_failing: int = 0


@dataclass(frozen=True)
class Part:
    """Captured part of a checkpoint."""

    kind: str
    key: str


@dataclass(frozen=True)
class Checkpoint:
    """Record of a checkpoint."""

    id: str
    uuid: str
    workspace_id: str | None
    created_at: datetime
    label: str | None
    kind: str
    reason: str
    phase: str | None
    role: str | None
    plan_id: str | None
    session_id: str | None
    step_index: int | None
    progress: Counters
    source_tool: str | None
    commit_sha: str | None
    commit_message: str | None
    tags: tuple[str, ...]
    pinned: bool
    rollback_used: bool
    rollback_count: int
    size_bytes: int
    files_count: int
    files_bytes: int
    parent: str | None
    parts: tuple[Part, ...]
    warnings: tuple[str, ...]
    #: Paths that it left out, and each one's reason. Known of a checkpoint that was just created.
    left_out: tuple[tuple[str, str], ...] = ()
    #: True if it is an older checkpoint that holds the same state.
    unchanged: bool = False
    #: Numbers that a program reported for it.
    metrics: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        return self.id

    @classmethod
    def _read(cls, fields: Mapping[str, Any], created: Mapping[str, Any] | None = None) -> Checkpoint:
        left_out: tuple[tuple[str, str], ...] = ()
        warnings = list(fields["warnings"])
        if created is not None:
            coverage = created["coverage"]
            left_out = tuple((path_of(one["path"]), _word(one.get("why"))) for one in coverage.get("skipped", ()))
            warnings.extend(created["warnings"])
        return cls(
            id=fields["id"],
            uuid=fields["uuid"],
            workspace_id=fields["workspace_id"],
            created_at=time_of(fields["created_at"]),
            label=fields["label"],
            kind=fields["kind"],
            reason=fields["reason"],
            phase=fields["phase"],
            role=fields["role"],
            plan_id=fields["plan_id"],
            session_id=fields["session_id"],
            step_index=fields["step_index"],
            progress=Counters(**fields["progress"]),
            source_tool=fields["source_tool"],
            commit_sha=fields["commit_sha"],
            commit_message=fields["commit_message"],
            tags=tuple(fields["tags"]),
            pinned=fields["pinned"],
            rollback_used=fields["rollback_used"],
            rollback_count=fields["rollback_count"],
            size_bytes=fields["size_bytes"],
            files_count=fields["files"]["count"],
            files_bytes=fields["files"]["bytes"],
            parent=fields["parent"],
            parts=tuple(Part(part["kind"], part["key"]) for part in fields["parts"]),
            warnings=tuple(warnings),
            left_out=left_out,
            unchanged=bool(created["unchanged"]) if created is not None else False,
            metrics=fields.get("metrics", {}),
        )


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return next(iter(value), "")
    return "" if value is None else str(value)


@dataclass(frozen=True)
class Entry:
    """File, directory or link of a checkpoint."""

    path: str
    type: str
    mode: int
    size: int | None
    target: str | None

    @classmethod
    def _read(cls, fields: Mapping[str, Any], path: str) -> Entry:
        target = fields["target"]
        return cls(
            path=path,
            type=fields["type"],
            mode=fields["mode"],
            size=fields["size"],
            target=None if target is None else path_of(target),
        )


@dataclass(frozen=True)
class Change:
    """Difference of one path."""

    path: str
    change: str
    old: Entry | None
    new: Entry | None

    @classmethod
    def _read(cls, fields: Mapping[str, Any]) -> Change:
        path = path_of(fields["path"])
        sides = [None if fields[side] is None else Entry._read(fields[side], path) for side in ("old", "new")]
        return cls(path=path, change=_word(fields["change"]), old=sides[0], new=sides[1])


@dataclass(frozen=True)
class Status:
    """The current state beside the last checkpoint."""

    #: Checkpoint that the workspace was last captured as or restored to.
    base: Checkpoint | None
    #: Changes since then.
    changes: tuple[Change, ...]
    warnings: tuple[str, ...]

    @property
    def is_covered(self) -> bool:
        """True if a checkpoint holds the current state."""
        return self.base is not None and not self.changes

    @classmethod
    def _read(cls, fields: Mapping[str, Any]) -> Status:
        return cls(
            base=None if fields["base"] is None else Checkpoint._read(fields["base"]),
            changes=tuple(Change._read(one) for one in fields["changes"]),
            warnings=tuple(fields["warnings"]),
        )


@dataclass(frozen=True)
class Rollback:
    """Result of a rollback, undo or redo, or of its dry run."""

    #: ``None`` for a dry run.
    id: str | None
    verb: str
    to: str
    #: State just before; ``None`` for a dry run.
    safety_checkpoint: str | None
    dry_run: bool
    restored_files_count: int
    removed_files_count: int
    #: Paths, each with ``restored``, ``created``, ``removed`` or ``kept``.
    changed_paths: tuple[tuple[str, str], ...]
    plans: tuple[str, ...]
    sessions: tuple[str, ...]
    agents: tuple[str, ...]
    #: Displaced files that a program may have open for writing; they are kept.
    waiting: tuple[str, ...]
    verified: bool
    git: Mapping[str, str | None] | None

    @classmethod
    def _read(cls, fields: Mapping[str, Any]) -> Rollback:
        return cls(
            id=fields["id"],
            verb=fields["verb"],
            to=fields["to"],
            safety_checkpoint=fields["safety_checkpoint"],
            dry_run=fields["dry_run"],
            restored_files_count=fields["restored_files_count"],
            removed_files_count=fields["removed_files_count"],
            changed_paths=tuple((path_of(one["path"]), one["action"]) for one in fields["changed_paths"]),
            plans=tuple(fields["plans"]),
            sessions=tuple(fields["sessions"]),
            agents=tuple(fields["agents"]),
            waiting=tuple(path_of(path) for path in fields["waiting"]),
            verified=fields["verified"],
            git=fields["git"],
        )
