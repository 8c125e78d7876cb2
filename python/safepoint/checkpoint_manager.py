"""Checkpoints of sessions in a git repository, for orchestrators.

>>> from safepoint.checkpoint_manager import CheckpointManager, CheckpointPhase, CheckpointType
>>> manager = CheckpointManager()                                                  # doctest: +SKIP
>>> made = manager.create_checkpoint(session_id, "plan is ready", CheckpointPhase.PLAN)  # doctest: +SKIP
>>> manager.rollback_to_checkpoint(session_id, made.checkpoint_id)                 # doctest: +SKIP

The same as a program: ``python -m safepoint.checkpoint_manager create --session-id ID --description TEXT --phase plan``.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any

from . import _records, _surroundings
from ._errors import Conflict, NotFound, SafepointError, UsageError
from ._workspace import AnyPath, Workspace

__all__ = [
    "Checkpoint",
    "CheckpointManager",
    "CheckpointPhase",
    "CheckpointSummary",
    "CheckpointType",
    "GitStatus",
    "StateSnapshot",
    "ValidationResult",
]


_log = logging.getLogger("safepoint")


class CheckpointPhase(str, Enum):
    """Phase of the work."""

    PLAN = "plan"
    GENERATE_TASKS = "generate_tasks"
    IMPLEMENT = "implement"
    VALIDATE = "validate"
    CLEANUP = "cleanup"

    def __str__(self) -> str:
        return self.value


class CheckpointType(str, Enum):
    """Reason to record a checkpoint."""

    PHASE_COMPLETE = "phase_complete"
    TASK_GROUP_COMPLETE = "task_group_complete"
    SAFE_STATE = "safe_state"
    PRE_RISKY_OPERATION = "pre_risky_operation"
    ERROR_RECOVERY = "error_recovery"
    MANUAL = "manual"

    def __str__(self) -> str:
        return self.value


@dataclass
class StateSnapshot:
    """Progress of the work: six counters."""

    tasks_completed: int = 0
    decisions_made: int = 0
    files_modified: int = 0
    files_created: int = 0
    tests_passing: int = 0
    tests_failing: int = 0


@dataclass
class Checkpoint:
    """Checkpoint of a session."""

    #: UUID as text.
    checkpoint_id: str
    #: Commit that holds the files; empty outside of a repository.
    commit_sha: str
    timestamp: datetime
    description: str
    phase: CheckpointPhase | None
    checkpoint_type: CheckpointType
    commit_message: str
    state_snapshot: StateSnapshot
    tags: list[str] = field(default_factory=list)
    rollback_used: bool = False
    rollback_count: int = 0
    session_id: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON has them."""
        fields = dataclasses.asdict(self)
        fields["timestamp"] = self.timestamp.isoformat()
        fields["phase"] = None if self.phase is None else self.phase.value
        fields["checkpoint_type"] = self.checkpoint_type.value
        return fields


@dataclass
class GitStatus:
    """State of the repository."""

    state: str
    branch: str | None
    commit: str | None
    operation: str | None


@dataclass
class ValidationResult:
    """Fitness of the repository for a checkpoint."""

    is_valid: bool
    errors: list[str]
    warnings: list[str]
    git_status: GitStatus | None
    has_uncommitted_changes: bool
    #: ``None``: no test command is configured (``[checks] test``), or it could not be run.
    tests_passing: bool | None = None


@dataclass
class CheckpointSummary:
    """Sums over the checkpoints of a session."""

    total_checkpoints: int
    checkpoints_by_type: dict[str, int]
    checkpoints_used_for_rollback: int
    #: Commit of the newest checkpoint.
    latest_checkpoint: str | None


class CheckpointManager:
    """Checkpoints of sessions in one repository."""

    def __init__(self, repo_root: AnyPath | None = None, session_id: str | None = None) -> None:
        """Opens the repository; the one around the current directory if no root is given."""
        self.repo_root: str = _repository() if repo_root is None else os.path.realpath(repo_root)
        self.session_id: str | None = session_id
        self._workspace = Workspace.open(self.repo_root)

    def _session(self, session_id: str | None) -> str:
        chosen = session_id or self.session_id
        if not chosen:
            raise UsageError("no session is named", code="usage", hints=("Name one with session_id=.",))
        return str(chosen)

    def _git_status(self) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self._workspace._call_on_files("git_status")
        return found

    def validate_checkpoint_state(self) -> ValidationResult:
        """Checks whether a checkpoint can be taken now, and what to know before."""
        errors: list[str] = []
        warnings: list[str] = []
        git: dict[str, Any] | None = None
        home = self._workspace._home
        try:
            home.call("survey", folder=self.repo_root, workspace=self._workspace.id)
            git = self._git_status()
        except SafepointError as error:
            errors.append(str(error))
        if git is None and not errors:
            errors.append(f"{self.repo_root} is not a git repository")
        dirty = bool(git and git["has_uncommitted_changes"])
        if dirty:
            warnings.append("there are uncommitted changes; the checkpoint commits them to a tag")
        if git is not None and git["operation"]:
            warnings.append(f"a {git['operation']} is under way")
        if git is not None and git["state"] == "detached":
            warnings.append("HEAD is detached")
        tests_passing = None if errors else self._tests_passing(warnings)
        return ValidationResult(
            is_valid=not errors,
            errors=errors,
            warnings=warnings,
            git_status=None
            if git is None
            else GitStatus(git["state"], git["branch"], git["commit"], git["operation"]),
            has_uncommitted_changes=dirty,
            tests_passing=tests_passing,
        )

    def _tests_passing(self, warnings: list[str]) -> bool | None:
        """Runs the configured test command, by the command ``safepoint``."""
        program = _surroundings.program()
        if program is None:
            return None
        words = [program, "--home", self._workspace.home, "-C", self.repo_root, "validate", "--json"]
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            found = json.loads(done.stdout)["data"]
            passing: bool | None = found["tests_passing"]
            told = [str(one) for one in found["warnings"] if "test" in str(one)]
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("cannot run the tests: %s", error)
            return None
        warnings.extend(told)
        return passing

    def create_checkpoint(
        self,
        session_id: str,
        description: str,
        phase: CheckpointPhase,
        checkpoint_type: CheckpointType = CheckpointType.MANUAL,
        state_snapshot: StateSnapshot | None = None,
        commit_first: bool = True,
    ) -> Checkpoint:
        """Takes a checkpoint of the session.

        With ``commit_first`` the files become a commit with a tag; branch, index and HEAD stay where they are. Without it the tag is on HEAD.
        """
        chosen = self._session(session_id)
        if self._git_status() is None:
            raise _no_repository(self.repo_root)
        snapshot = state_snapshot or StateSnapshot()
        checkpoint_type = CheckpointType(checkpoint_type)
        kind: _records.Kind = "manual" if checkpoint_type is CheckpointType.MANUAL else "workflow"
        created = self._workspace._call_on_files(
            "create",
            options={
                "label": description,
                "kind": kind,
                "reason": checkpoint_type.value,
                "phase": CheckpointPhase(phase).value,
                "session": chosen,
                "tool": "checkpoint_manager",
                "progress": dataclasses.asdict(snapshot),
                "git": "session" if commit_first else "head",
            },
        )
        made = _records.Checkpoint._read(created["checkpoint"], created)
        if made.commit_sha is None:
            why = ", ".join(created["not_in_git"]) or "the configuration turns commits of sessions off"
            _log.warning("checkpoint %s has no commit: %s", made.uuid, why)
        return _of_session(made)

    def list_checkpoints(self, session_id: str) -> list[Checkpoint]:
        """Returns the session's checkpoints, newest first."""
        return [_of_session(one) for one in self._workspace.list(session=_kept(self._session(session_id)))]

    def get_checkpoint(self, session_id: str, checkpoint_id: str) -> Checkpoint | None:
        """Returns a checkpoint, or ``None`` if the session has none of this id."""
        found = self._find(session_id, checkpoint_id)
        return None if found is None else _of_session(found)

    def _find(self, session_id: str, checkpoint_id: str) -> _records.Checkpoint | None:
        if not isinstance(checkpoint_id, str):
            raise TypeError(f"expected the id of a checkpoint, not {type(checkpoint_id).__name__}")
        session = _kept(self._session(session_id))
        found = self._workspace.list(session=session)
        return next((one for one in found if checkpoint_id.lower() in (one.uuid, one.id.lower())), None)

    def _must_find(self, session_id: str, checkpoint_id: str) -> _records.Checkpoint:
        found = self._find(session_id, checkpoint_id)
        if found is None:
            raise NotFound(
                f"session {session_id} has no checkpoint {checkpoint_id}",
                code="no_checkpoint",
                hints=(f"safepoint list --session-id {session_id}",),
            )
        return found

    def rollback_to_checkpoint(
        self, session_id: str, checkpoint_id: str, hard_reset: bool = False
    ) -> bool:
        """Rolls back to a checkpoint: branch and index, and with ``hard_reset`` the files, too.

        Returns true once it is done. Raises :class:`NotFound` for another id, and another :class:`SafepointError` if it is refused;
        then nothing was changed.
        """
        found = self._must_find(session_id, checkpoint_id)
        self._workspace.rollback(found.id, git="hard" if hard_reset else "mixed")
        return True

    def get_checkpoint_summary(self, session_id: str) -> CheckpointSummary:
        """Returns the sums over the session's checkpoints."""
        found = self._workspace._call(
            "summary", session=_kept(self._session(session_id))
        )
        latest = found["latest_checkpoint"]
        return CheckpointSummary(
            total_checkpoints=found["total_checkpoints"],
            checkpoints_by_type=dict(found["checkpoints_by_reason"]),
            checkpoints_used_for_rollback=found["checkpoints_used_for_rollback"],
            latest_checkpoint=None if latest is None else latest["commit_sha"],
        )

    def delete_checkpoint(self, session_id: str, checkpoint_id: str, delete_tag: bool = True) -> bool:
        """Deletes a checkpoint and its tag. Returns false if the session has none of this id."""
        found = self._find(session_id, checkpoint_id)
        if found is None:
            return False
        self._workspace.delete(found, keep_tags=not delete_tag)
        return True


def _kept(session_id: str) -> str:
    """Returns a session id in the form of the catalog: a UUID in small letters where it is one."""
    try:
        return str(uuid.UUID(session_id))
    except ValueError:
        return session_id


def _of_session(made: _records.Checkpoint) -> Checkpoint:
    return Checkpoint(
        checkpoint_id=made.uuid,
        session_id=made.session_id or "",
        commit_sha=made.commit_sha or "",
        timestamp=made.created_at,
        description=made.label or "",
        phase=None if made.phase is None else CheckpointPhase(made.phase),
        checkpoint_type=CheckpointType(made.reason),
        commit_message=made.commit_message or "",
        state_snapshot=StateSnapshot(**vars(made.progress)),
        tags=list(made.tags),
        rollback_used=made.rollback_used,
        rollback_count=made.rollback_count,
    )


def _no_repository(folder: str) -> Conflict:
    return Conflict(
        f"{folder} is in no git repository",
        code="no_repository",
        hints=("Name one with repo_root=, or run `git init`.",),
    )


def _repository() -> str:
    """Returns the top of the repository around the current directory."""
    folder = start = os.path.realpath(os.getcwd())
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            raise _no_repository(start)
        folder = above
    return folder


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m safepoint.checkpoint_manager", description="Checkpoints of sessions in a git repository."
    )
    parser.add_argument("--repo-root", help="repository [default: the one around the current directory]")
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, about: str, *, one: bool = False) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=about, description=about)
        if name != "validate":
            added.add_argument("--session-id", required=True, metavar="UUID")
        if one:
            added.add_argument("--checkpoint-id", required=True, metavar="UUID")
        added.add_argument("--output", choices=("pretty", "json"), default="pretty")
        return added

    create = command("create", "Take a checkpoint")
    create.add_argument("--description", required=True)
    create.add_argument("--phase", required=True, choices=[phase.value for phase in CheckpointPhase])
    create.add_argument(
        "--checkpoint-type", choices=[kind.value for kind in CheckpointType], default=CheckpointType.MANUAL.value
    )
    create.add_argument("--no-commit", action="store_true", help="tag HEAD instead of a new commit")
    command("list", "List the checkpoints of a session, newest first")
    command("get", "Show one checkpoint", one=True)
    rollback = command("rollback", "Roll back to a checkpoint", one=True)
    rollback.add_argument("--hard-reset", action="store_true", help="roll the files back, too")
    command("summary", "Show sums over the checkpoints of a session")
    delete = command("delete", "Delete a checkpoint", one=True)
    delete.add_argument("--keep-tag", action="store_true", help="keep its tag")
    command("validate", "Check whether a checkpoint can be taken")
    return parser


def _answer(manager: CheckpointManager, asked: argparse.Namespace) -> tuple[Any, int]:
    """Returns the result as JSON, and the exit code."""
    session: str = getattr(asked, "session_id", "")
    if asked.command == "create":
        made = manager.create_checkpoint(
            session,
            asked.description,
            CheckpointPhase(asked.phase),
            CheckpointType(asked.checkpoint_type),
            commit_first=not asked.no_commit,
        )
        return made.to_dict(), 0
    if asked.command == "list":
        return [one.to_dict() for one in manager.list_checkpoints(session)], 0
    if asked.command == "get":
        return _of_session(manager._must_find(session, asked.checkpoint_id)).to_dict(), 0
    if asked.command == "rollback":
        done = manager.rollback_to_checkpoint(session, asked.checkpoint_id, asked.hard_reset)
        return {"rolled_back": done, "checkpoint_id": asked.checkpoint_id}, 0
    if asked.command == "summary":
        return dataclasses.asdict(manager.get_checkpoint_summary(session)), 0
    if asked.command == "delete":
        manager._must_find(session, asked.checkpoint_id)
        deleted = manager.delete_checkpoint(session, asked.checkpoint_id, not asked.keep_tag)
        return {"deleted": deleted, "checkpoint_id": asked.checkpoint_id}, 0
    valid = manager.validate_checkpoint_state()
    return dataclasses.asdict(valid), 0 if valid.is_valid else 1


def _lines(answer: Any) -> list[str]:
    if isinstance(answer, list):
        return [f"{one['checkpoint_id']}  {one['timestamp'][:19]}  {one['description']}" for one in answer]
    return [f"{name}: {value}" for name, value in answer.items()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program. Returns its exit code."""
    asked = _parser().parse_args(arguments)
    try:
        answer, code = _answer(CheckpointManager(asked.repo_root), asked)
    except SafepointError as error:
        print(f"error: {error}", file=sys.stderr)
        return {"usage": 2, "not_found": 10, "busy": 11, "conflict": 12, "damaged": 13}.get(error.kind, 1)
    print(json.dumps(answer) if asked.output == "json" else "\n".join(_lines(answer)))
    return code


if __name__ == "__main__":
    sys.exit(main())
