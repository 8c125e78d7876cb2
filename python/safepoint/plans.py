"""Checkpoints of plans, and corrections, for orchestrators.

>>> from safepoint.plans import CheckpointService, CorrectionService
>>> service = CheckpointService("shop")                                         # doctest: +SKIP
>>> made = service.create_checkpoint(plan_id, reason="before the migration")    # doctest: +SKIP
>>> service.rollback_to_checkpoint(plan_id, made.checkpoint_id)                 # doctest: +SKIP
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, List

from . import _records
from ._errors import Conflict, NotFound, SafepointError, UsageError
from ._records import Reason, Rollback
from ._workspace import AnyPath, Workspace

__all__ = [
    "DEFAULT_RETENTION_POLICY",
    "CheckpointNotFoundError",
    "CheckpointService",
    "Correction",
    "CorrectionService",
    "Plan",
    "PlanAppliedError",
    "PlanCheckpoint",
    "PlanNotFoundError",
    "RetentionPolicy",
    "RollbackResult",
    "SandboxMissingError",
    "Step",
]


_log = logging.getLogger("safepoint")
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def _uuid_of(id: str) -> str:
    """Returns an id of the catalog as a UUID, the form in which this module names checkpoints."""
    bits = 0
    for digit in id:
        bits = bits * len(_DIGITS) + _DIGITS.index(digit)
    return str(uuid.UUID(int=bits))


class PlanNotFoundError(NotFound):
    """No such plan."""


class CheckpointNotFoundError(NotFound):
    """No such checkpoint, or none of this plan."""


class PlanAppliedError(Conflict):
    """The plan's result was taken over, so it is not rolled back any more."""


class SandboxMissingError(Conflict):
    """The folder in which the plan works is missing."""


_ERRORS: dict[str, type[SafepointError]] = {
    "no_plan": PlanNotFoundError,
    "no_checkpoint": CheckpointNotFoundError,
    "other_plan": CheckpointNotFoundError,
    "plan_applied": PlanAppliedError,
    "sandbox_missing": SandboxMissingError,
}


@dataclass(frozen=True)
class RetentionPolicy:
    """Checkpoints of a plan to keep. Pinned ones, the newest, and those that unfinished work needs are always kept."""

    #: Number of last checkpoints to keep, of any age.
    keep_last: int = 100
    #: Age up to which all are kept.
    keep_within: timedelta = timedelta(days=7)
    #: Age up to which one for each day is kept.
    thin_daily_for: timedelta = timedelta(days=30)


#: The policy of the command ``safepoint``.
DEFAULT_RETENTION_POLICY = RetentionPolicy()


@dataclass(frozen=True)
class Step:
    """Step of a plan."""

    path: str
    title: str | None
    state: str
    attempts: int
    error: str | None


@dataclass(frozen=True)
class Plan:
    """Plan as it is on record."""

    id: str
    title: str
    state: str
    step_index: int
    steps: tuple[Step, ...]
    version: int
    created_at: datetime
    updated_at: datetime

    @classmethod
    def _read(cls, fields: Mapping[str, Any]) -> Plan:
        steps = tuple(
            Step(one["path"], one["title"], one["state"], one["attempts"], _text(one["error"]))
            for one in fields["steps"]
        )
        return cls(
            id=fields["id"],
            title=fields["title"],
            state=fields["state"],
            step_index=fields["step_index"],
            steps=steps,
            version=fields["version"],
            created_at=_records.time_of(fields["created_at"]),
            updated_at=_records.time_of(fields["updated_at"]),
        )


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class PlanCheckpoint:
    """Checkpoint of a plan and of the files that it works on."""

    #: UUID as text.
    checkpoint_id: str
    plan_id: str
    created_at: datetime
    reason: str
    source_tool: str | None
    phase: str | None
    step_index: int | None
    label: str | None
    pinned: bool
    files_count: int
    rollback_used: bool
    rollback_count: int

    @classmethod
    def _of(cls, made: _records.Checkpoint) -> PlanCheckpoint:
        return cls(
            checkpoint_id=made.uuid,
            plan_id=made.plan_id or "",
            created_at=made.created_at,
            reason=made.reason,
            source_tool=made.source_tool,
            phase=made.phase,
            step_index=made.step_index,
            label=made.label,
            pinned=made.pinned,
            files_count=made.files_count,
            rollback_used=made.rollback_used,
            rollback_count=made.rollback_count,
        )


@dataclass(frozen=True)
class RollbackResult:
    """Result of a rollback of a plan."""

    plan_id: str
    #: UUID as text, as in :class:`PlanCheckpoint`.
    checkpoint_id: str
    restored_files_count: int
    removed_files_count: int
    changed_paths: tuple[str, ...]
    #: State just before, to which ``safepoint undo`` goes back.
    safety_checkpoint_id: str | None

    @classmethod
    def _of(cls, plan_id: str, done: Rollback) -> RollbackResult:
        return cls(
            plan_id=plan_id,
            checkpoint_id=_uuid_of(done.to),
            restored_files_count=done.restored_files_count,
            removed_files_count=done.removed_files_count,
            changed_paths=tuple(path for path, _ in done.changed_paths),
            safety_checkpoint_id=None if done.safety_checkpoint is None else _uuid_of(done.safety_checkpoint),
        )


@dataclass(frozen=True)
class Correction:
    """Correction that was made."""

    #: Number of the correction in its plan.
    attempt: int
    plan: Plan
    #: Checkpoint that a revert went to.
    checkpoint_id: str | None
    #: Rollback of a revert.
    restored: RollbackResult | None
    #: Step that was added.
    step: str | None


_REASONS: tuple[Reason, ...] = (
    "phase_complete",
    "task_group_complete",
    "safe_state",
    "pre_risky_operation",
    "error_recovery",
    "manual",
)


class _Service:
    def __init__(self, workspace: Workspace | AnyPath, *, home: AnyPath | None = None) -> None:
        if not isinstance(workspace, Workspace):
            workspace = Workspace.open(workspace, home=home)
        self.workspace: Workspace = workspace

    def _call(self, verb: str, **arguments: Any) -> Any:
        try:
            return self.workspace._home.call(verb, folder=self.workspace.root, **arguments)
        except SafepointError as error:
            of = _ERRORS.get(error.code)
            if of is None:
                raise
            raise of(
                error.message, code=error.code, hints=error.hints, causes=error.causes, kind=error.kind
            ) from None


class CheckpointService(_Service):
    """Checkpoints of the plans of a workspace."""

    def create_plan(
        self, title: str, steps: Iterable[str | Mapping[str, Any]] = (), *, plan_id: str | None = None
    ) -> Plan:
        """Records a plan. A step is its id, or a mapping with the keys of a plan file (docs/plan-files.md)."""
        spec: dict[str, Any] = {
            "title": title,
            "steps": [{"id": step} if isinstance(step, str) else dict(step) for step in steps],
        }
        if plan_id is not None:
            spec["id"] = plan_id
        return Plan._read(self._call("plan_create", workspace=self.workspace.id, file=json.dumps(spec)))

    def get_plan(self, plan_id: str) -> Plan:
        """Returns a plan."""
        return Plan._read(self._call("plan", plan=plan_id))

    def start_step(self, plan_id: str, step: str) -> Plan:
        """Reports that a step begins. A checkpoint that is due before it is taken first."""
        return Plan._read(self._call("plan_move", to="started", plan=plan_id, step=step))

    def finish_step(self, plan_id: str, step: str, output: Any = None) -> Plan:
        """Reports that a step is done."""
        return Plan._read(self._call("plan_move", to="done", plan=plan_id, step=step, output=output))

    def fail_step(self, plan_id: str, step: str, error: str) -> Plan:
        """Reports that a step failed."""
        return Plan._read(self._call("plan_move", to="failed", plan=plan_id, step=step, error=error))

    def create_checkpoint(
        self,
        plan_id: str,
        reason: str = "manual",
        source_tool: str | None = None,
        phase: str | None = None,
        policy: RetentionPolicy | None = None,
    ) -> PlanCheckpoint:
        """Takes a checkpoint of a plan and of its files, at one moment.

        ``reason`` is one of those of docs/checkpointing.md; any other text becomes the label. With ``policy`` the plan is pruned afterwards; a failure of
        that is logged, because the checkpoint is there.
        """
        label = None if reason in _REASONS else reason
        options = {
            "label": label,
            "kind": "manual",
            "reason": reason if label is None else "manual",
            "tool": source_tool,
            "phase": phase,
        }
        given = {name: value for name, value in options.items() if value is not None}
        created = self._call("plan_checkpoint", plan=plan_id, options=given)
        made = PlanCheckpoint._of(_records.Checkpoint._read(created["checkpoint"], created))
        if policy is not None:
            try:
                self.prune(plan_id, policy)
            except SafepointError as error:
                _log.warning("checkpoint %s was taken, but plan %s was not pruned: %s", made.checkpoint_id, plan_id, error)
        return made

    def list_checkpoints(self, plan_id: str) -> List[PlanCheckpoint]:
        """Returns the plan's checkpoints, newest first."""
        self.get_plan(plan_id)
        found = self._call("list", plan=plan_id)
        return [PlanCheckpoint._of(_records.Checkpoint._read(one)) for one in found]

    def get_checkpoint(self, plan_id: str, checkpoint_id: str) -> PlanCheckpoint:
        """Returns one checkpoint of a plan."""
        wanted = self._id(checkpoint_id)
        for one in self._every(plan_id):
            if wanted in (one.uuid, one.id.lower()):
                return PlanCheckpoint._of(one)
        raise CheckpointNotFoundError(
            f"plan {plan_id} has no checkpoint {checkpoint_id}",
            code="no_checkpoint",
            hints=(f"safepoint plan checkpoint list {plan_id}",),
        )

    def _every(self, plan_id: str) -> List[_records.Checkpoint]:
        self.get_plan(plan_id)
        return [_records.Checkpoint._read(one) for one in self._call("list", plan=plan_id, roles="any")]

    @staticmethod
    def _id(checkpoint_id: str) -> str:
        if not isinstance(checkpoint_id, str):
            raise TypeError(f"expected the id of a checkpoint, not {type(checkpoint_id).__name__}")
        return checkpoint_id.lower()

    def rollback_to_checkpoint(
        self, plan_id: str, checkpoint_id: str, *, recreate_sandbox: bool = False
    ) -> RollbackResult:
        """Rolls back a plan and its files, both or neither. ``recreate_sandbox`` makes a missing sandbox again."""
        found = self.get_checkpoint(plan_id, checkpoint_id)
        done = self._call(
            "plan_rollback",
            plan=plan_id,
            to=found.checkpoint_id,
            options={"recreate_sandbox": recreate_sandbox},
        )
        return RollbackResult._of(plan_id, Rollback._read(done))

    def prune(
        self, plan_id: str, policy: RetentionPolicy = DEFAULT_RETENTION_POLICY, *, dry_run: bool = False
    ) -> List[str]:
        """Deletes the plan's checkpoints that the policy does not keep. Returns their ids."""
        if policy.keep_last < 0:
            raise UsageError(f"keep_last must not be negative: {policy.keep_last}", code="usage")
        dropped: List[str] = self._call(
            "plan_prune",
            plan=plan_id,
            keep_last=policy.keep_last,
            keep_within_seconds=int(policy.keep_within.total_seconds()),
            thin_daily_for_seconds=int(policy.thin_daily_for.total_seconds()),
            dry_run=dry_run,
        )
        return [_uuid_of(id) for id in dropped]


class CorrectionService(_Service):
    """Corrections of plans that went wrong."""

    def revert(
        self, plan_id: str, *, decision_id: str | None = None, guidance: str | None = None
    ) -> Correction:
        """Rolls back to the last clean checkpoint, or to before a decision. ``guidance`` is kept for the next attempt."""
        done = self._call(
            "plan_revert", plan=plan_id, decision=decision_id, guidance=guidance, options={}
        )
        return self._correction(plan_id, done)

    def append(
        self,
        plan_id: str,
        step: str | Mapping[str, Any],
        *,
        before: str | None = None,
        after: str | None = None,
        guidance: str | None = None,
    ) -> Correction:
        """Adds a step to a plan that is not healthy; before the step that is wrong if no place is given. Nothing that is done changes."""
        spec = {"id": step} if isinstance(step, str) else dict(step)
        done = self._call(
            "plan_append", plan=plan_id, step=spec, before=before, after=after, guidance=guidance
        )
        return self._correction(plan_id, done)

    @staticmethod
    def _correction(plan_id: str, done: Mapping[str, Any]) -> Correction:
        restored = done["restored"]
        return Correction(
            attempt=done["attempt"],
            plan=Plan._read(done["plan"]),
            checkpoint_id=None if done["checkpoint"] is None else _uuid_of(done["checkpoint"]),
            restored=None if restored is None else RollbackResult._of(plan_id, Rollback._read(restored)),
            step=done["step"],
        )
