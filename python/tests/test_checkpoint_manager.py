"""Programs of orchestrators: they run unchanged but for the import."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from conftest import git
from safepoint import NotFound, SafepointError
from safepoint.checkpoint_manager import (
    Checkpoint,
    CheckpointManager,
    CheckpointPhase,
    CheckpointSummary,
    CheckpointType,
    StateSnapshot,
    ValidationResult,
)

SESSION = str(uuid.UUID(int=7))


def test_an_orchestrator_works_through_its_phases(repository: Path) -> None:
    manager = CheckpointManager(repository, session_id=SESSION)
    head = git(repository, "rev-parse", "HEAD")
    checked = manager.validate_checkpoint_state()
    assert isinstance(checked, ValidationResult) and checked.is_valid and not checked.has_uncommitted_changes
    assert checked.git_status is not None and checked.git_status.branch == "main"

    (repository / "plan.md").write_text("# plan\n")
    assert manager.validate_checkpoint_state().has_uncommitted_changes
    planned = manager.create_checkpoint(
        SESSION,
        "plan is ready",
        CheckpointPhase.PLAN,
        CheckpointType.PHASE_COMPLETE,
        StateSnapshot(tasks_completed=2, decisions_made=1),
    )
    assert uuid.UUID(planned.checkpoint_id) and planned.timestamp.tzinfo is not None
    assert (planned.phase, planned.checkpoint_type) == (CheckpointPhase.PLAN, CheckpointType.PHASE_COMPLETE)
    assert (planned.description, planned.state_snapshot.tasks_completed) == ("plan is ready", 2)
    assert git(repository, "show", f"{planned.commit_sha}:plan.md") == "# plan"
    (tag,) = planned.tags
    assert tag.startswith("checkpoint-") and git(repository, "rev-parse", f"{tag}^{{commit}}") == planned.commit_sha
    assert "plan is ready" in planned.commit_message
    # The user's branch and files stay where they are.
    assert git(repository, "rev-parse", "HEAD") == head and (repository / "plan.md").exists()

    (repository / "app.py").write_text("print('two')\n")
    built = manager.create_checkpoint(SESSION, "built", CheckpointPhase.IMPLEMENT)
    assert built.checkpoint_type is CheckpointType.MANUAL and built.state_snapshot.tests_passing == 0
    assert [one.checkpoint_id for one in manager.list_checkpoints(SESSION)] == [
        built.checkpoint_id,
        planned.checkpoint_id,
    ]
    assert manager.get_checkpoint(SESSION, planned.checkpoint_id) == planned

    (repository / "app.py").write_text("broken(\n")
    assert manager.rollback_to_checkpoint(SESSION, planned.checkpoint_id, hard_reset=True) is True
    assert (repository / "app.py").read_text() == "print('one')\n"
    assert git(repository, "rev-parse", "HEAD") == planned.commit_sha
    again = manager.get_checkpoint(SESSION, planned.checkpoint_id)
    assert again is not None and again.rollback_used and again.rollback_count == 1

    summary = manager.get_checkpoint_summary(SESSION)
    assert summary == CheckpointSummary(
        total_checkpoints=2,
        checkpoints_by_type={"phase_complete": 1, "manual": 1},
        checkpoints_used_for_rollback=1,
        latest_checkpoint=built.commit_sha,
    )


def test_a_rollback_is_mixed_unless_hard(repository: Path) -> None:
    manager = CheckpointManager(repository)
    made = manager.create_checkpoint(SESSION, "one", CheckpointPhase.IMPLEMENT)
    (repository / "app.py").write_text("print('two')\n")
    git(repository, "commit", "-q", "-am", "second")
    assert manager.rollback_to_checkpoint(SESSION, made.checkpoint_id)
    assert git(repository, "rev-parse", "HEAD") == made.commit_sha
    assert (repository / "app.py").read_text() == "print('two')\n"
    assert git(repository, "status", "--short", "--untracked-files=no") == "M app.py"


def test_without_commit_first_the_tag_is_on_head(repository: Path) -> None:
    manager = CheckpointManager(repository)
    (repository / "app.py").write_text("print('uncommitted')\n")
    made = manager.create_checkpoint(SESSION, "tag only", CheckpointPhase.VALIDATE, commit_first=False)
    assert made.commit_sha == git(repository, "rev-parse", "HEAD")
    assert git(repository, "tag", "--points-at", "HEAD") == made.tags[0] and made.commit_message == "first"


def test_deleting_takes_the_tag_along_unless_it_is_to_stay(repository: Path) -> None:
    manager = CheckpointManager(repository)
    first, second = (manager.create_checkpoint(SESSION, text, CheckpointPhase.CLEANUP) for text in "ab")
    assert manager.delete_checkpoint(SESSION, first.checkpoint_id)
    assert git(repository, "tag") == second.tags[0]
    assert manager.delete_checkpoint(SESSION, second.checkpoint_id, delete_tag=False)
    assert git(repository, "tag") == second.tags[0]
    assert manager.delete_checkpoint(SESSION, second.checkpoint_id) is False
    assert manager.list_checkpoints(SESSION) == []


def test_sessions_do_not_see_each_other(repository: Path) -> None:
    manager = CheckpointManager(repository)
    made = manager.create_checkpoint(SESSION, "mine", CheckpointPhase.PLAN)
    other = str(uuid.uuid4())
    assert manager.list_checkpoints(other) == [] and manager.get_checkpoint(other, made.checkpoint_id) is None
    with pytest.raises(NotFound):
        manager.rollback_to_checkpoint(other, made.checkpoint_id, hard_reset=True)
    assert manager.get_checkpoint_summary(other).latest_checkpoint is None
    assert manager.list_checkpoints(SESSION.upper()) == [made]


def test_the_repository_is_found_from_below(repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (repository / "src" / "deep").mkdir(parents=True)
    monkeypatch.chdir(repository / "src" / "deep")
    assert CheckpointManager().repo_root == str(repository)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SafepointError, match="no git repository"):
        CheckpointManager()


def test_a_folder_without_git_is_told_by_validation_and_refused(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    manager = CheckpointManager(folder)
    checked = manager.validate_checkpoint_state()
    assert not checked.is_valid and checked.git_status is None and "not a git repository" in checked.errors[0]
    with pytest.raises(SafepointError, match="no git repository"):
        manager.create_checkpoint(SESSION, "x", CheckpointPhase.PLAN)
    assert manager.list_checkpoints(SESSION) == []


def test_fields_enums_and_their_names() -> None:
    assert [field.name for field in dataclasses.fields(Checkpoint) if field.name != "session_id"] == [
        "checkpoint_id", "commit_sha", "timestamp", "description", "phase", "checkpoint_type", "commit_message",
        "state_snapshot", "tags", "rollback_used", "rollback_count",
    ]  # fmt: skip
    assert len(dataclasses.fields(StateSnapshot)) == 6
    assert [phase.name for phase in CheckpointPhase] == ["PLAN", "GENERATE_TASKS", "IMPLEMENT", "VALIDATE", "CLEANUP"]
    assert CheckpointType("manual") is CheckpointType.MANUAL and f"{CheckpointPhase.PLAN}" == "plan"


def test_the_same_as_a_program(repository: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "safepoint.checkpoint_manager", *words],
            cwd=repository, capture_output=True, text=True, check=False,
        )  # fmt: skip

    created = run(
        "create", "--session-id", SESSION, "--description", "ready", "--phase", "plan",
        "--checkpoint-type", "phase_complete", "--output", "json",
    )  # fmt: skip
    assert created.returncode == 0, created.stderr
    made = json.loads(created.stdout)
    assert made["phase"] == "plan" and made["checkpoint_type"] == "phase_complete"
    one = ("--session-id", SESSION, "--checkpoint-id", made["checkpoint_id"])
    assert json.loads(run("list", "--session-id", SESSION, "--output", "json").stdout) == [made]
    assert json.loads(run("get", *one, "--output", "json").stdout) == made
    assert made["checkpoint_id"] in run("list", "--session-id", SESSION).stdout
    (repository / "app.py").write_text("broken(\n")
    assert run("rollback", *one, "--hard-reset").returncode == 0
    assert (repository / "app.py").read_text() == "print('one')\n"
    assert json.loads(run("summary", "--session-id", SESSION, "--output", "json").stdout)["total_checkpoints"] == 1
    assert run("validate").returncode == 0
    assert run("delete", *one).returncode == 0
    missing = run("get", *one)
    assert missing.returncode == 10 and missing.stderr.startswith("error: ") and "Hint:" in missing.stderr
    assert run("create", "--session-id", SESSION).returncode == 2


def test_records_are_those_that_programs_change_and_build(repository: Path) -> None:
    snapshot = StateSnapshot()
    snapshot.tests_passing = 3
    manager = CheckpointManager(repository)
    # Text instead of a member, as read from a file.
    made = manager.create_checkpoint(SESSION, "by text", "plan", "manual", snapshot)  # type: ignore[arg-type]
    assert made.checkpoint_type is CheckpointType.MANUAL and made.state_snapshot.tests_passing == 3
    assert manager._workspace.show("by text").kind == "manual"
    names = [field.name for field in dataclasses.fields(Checkpoint)]
    assert names[:6] == ["checkpoint_id", "commit_sha", "timestamp", "description", "phase", "checkpoint_type"]
    assert names[6:11] == ["commit_message", "state_snapshot", "tags", "rollback_used", "rollback_count"]
    made.tags.append("mine")
    made.description = "changed"


@pytest.mark.parametrize(("command", "passing"), [("test -f app.py", True), ("exit 3", False), (None, None)])
def test_the_configured_tests_are_run(command: str | None, passing: bool | None, repository: Path, sealed: Path) -> None:
    if command is not None:
        sealed.mkdir(exist_ok=True)
        (sealed / "config.toml").write_text(f'[checks]\ntest = "{command}"\n')
    checked = CheckpointManager(repository).validate_checkpoint_state()
    assert checked.is_valid and checked.tests_passing is passing
