"""Programs that drive plans: checkpoints, the way back, corrections."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

import safepoint
from safepoint.plans import (
    DEFAULT_RETENTION_POLICY,
    CheckpointNotFoundError,
    CheckpointService,
    CorrectionService,
    PlanAppliedError,
    PlanNotFoundError,
    RetentionPolicy,
    SandboxMissingError,
)

NOTHING_BUT_THE_LAST = RetentionPolicy(keep_last=1, keep_within=timedelta(0), thin_daily_for=timedelta(0))


@pytest.fixture
def service(ws: safepoint.Workspace) -> CheckpointService:
    service = CheckpointService(ws)
    service.create_plan("Limits", ["read", "write", "check"], plan_id="limits")
    return service


def test_a_plan_and_its_files_go_back_together(service: CheckpointService, shop: Path) -> None:
    service.start_step("limits", "read")
    service.finish_step("limits", "read", output={"found": 3})
    made = service.create_checkpoint("limits", reason="before the migration", source_tool="planner", phase="implement")
    assert (made.plan_id, made.label, made.source_tool, made.phase) == (
        "limits", "before the migration", "planner", "implement",
    )  # fmt: skip
    (shop / "notes.txt").write_text("bad")
    (shop / "extra.txt").write_text("x")
    service.start_step("limits", "write")
    service.finish_step("limits", "write")
    assert service.get_plan("limits").step_index == 2

    done = service.rollback_to_checkpoint("limits", made.checkpoint_id)
    assert service.get_plan("limits").step_index == 1
    assert (shop / "notes.txt").read_text() == "good" and not (shop / "extra.txt").exists()
    assert done.restored_files_count == 1 and set(done.changed_paths) == {"notes.txt", "extra.txt"}
    assert done.safety_checkpoint_id is not None
    assert service.get_checkpoint("limits", made.checkpoint_id).rollback_count == 1


def test_lists_are_newest_first_and_of_one_plan(service: CheckpointService) -> None:
    service.create_plan("Other", ["one"], plan_id="other")
    made = [service.create_checkpoint("limits", reason="safe_state").checkpoint_id for _ in range(3)]
    foreign = service.create_checkpoint("other")
    assert [one.checkpoint_id for one in service.list_checkpoints("limits")] == made[::-1]
    assert service.list_checkpoints("limits")[0].reason == "safe_state"
    with pytest.raises(CheckpointNotFoundError):
        service.get_checkpoint("limits", foreign.checkpoint_id)
    with pytest.raises(CheckpointNotFoundError):
        service.rollback_to_checkpoint("limits", foreign.checkpoint_id)


def test_pruning_keeps_what_the_policy_keeps(service: CheckpointService) -> None:
    made = [service.create_checkpoint("limits").checkpoint_id for _ in range(4)]
    assert service.prune("limits") == [] and DEFAULT_RETENTION_POLICY.keep_last == 100
    assert len(service.prune("limits", NOTHING_BUT_THE_LAST, dry_run=True)) == 3
    assert len(service.list_checkpoints("limits")) == 4
    dropped = service.prune("limits", NOTHING_BUT_THE_LAST)
    assert len(dropped) == 3 and [one.checkpoint_id for one in service.list_checkpoints("limits")] == made[-1:]
    newest = service.create_checkpoint("limits", policy=NOTHING_BUT_THE_LAST)
    assert service.list_checkpoints("limits") == [newest]


def test_what_is_missing_is_named(service: CheckpointService) -> None:
    for act in (
        lambda: service.create_checkpoint("nothing"),
        lambda: service.list_checkpoints("nothing"),
        lambda: service.prune("nothing"),
        lambda: CorrectionService(service.workspace).revert("nothing"),
    ):
        with pytest.raises(PlanNotFoundError):
            act()
    with pytest.raises(CheckpointNotFoundError):
        service.rollback_to_checkpoint("limits", "00000000-0000-0000-0000-000000000000")
    with pytest.raises(safepoint.UsageError):
        service.create_plan("Bad", [{"id": "Not A Slug"}])
    with pytest.raises(safepoint.UsageError):
        service.create_checkpoint("limits", phase="odd")


def in_a_sandbox(service: CheckpointService) -> tuple[str, str]:
    """A plan that works on a copy. Returns a checkpoint of it, and its folder."""
    file = '{"id": "copy", "title": "Copy", "sandbox": {"kind": "copy"}, "steps": [{"id": "one", "run": "echo x > x"}]}'
    service.workspace._home.call("plan_create", workspace=service.workspace.id, file=file)
    made = service.create_checkpoint("copy")
    return made.checkpoint_id, str(Path(service.workspace.home) / "sandboxes" / "copy")


def test_a_missing_sandbox_is_an_error_and_can_be_made_again(service: CheckpointService) -> None:
    made, folder = in_a_sandbox(service)
    shutil.rmtree(folder)
    with pytest.raises(SandboxMissingError) as caught:
        service.rollback_to_checkpoint("copy", made)
    assert caught.value.hints
    service.rollback_to_checkpoint("copy", made, recreate_sandbox=True)
    assert any(path.name == "notes.txt" for path in Path(folder).rglob("*"))


def test_an_applied_plan_is_not_rolled_back(service: CheckpointService) -> None:
    import subprocess

    from safepoint import _surroundings

    made, _ = in_a_sandbox(service)
    program = _surroundings.program()
    assert program is not None
    for words in (["plan", "run", "copy"], ["plan", "apply", "copy"]):
        subprocess.run([program, "--yes", *words], cwd=service.workspace.root, check=True, capture_output=True)
    with pytest.raises(PlanAppliedError):
        service.rollback_to_checkpoint("copy", made)


def test_a_correction_goes_back_to_the_last_clean_checkpoint(service: CheckpointService, shop: Path) -> None:
    corrections = CorrectionService(service.workspace)
    clean = service.create_checkpoint("limits")
    service.start_step("limits", "read")
    (shop / "notes.txt").write_text("bad")
    service.fail_step("limits", "read", "it broke")
    done = corrections.revert("limits", guidance="read the table first")
    assert (done.attempt, done.restored is not None) == (1, True)
    assert done.checkpoint_id is not None
    assert service.get_checkpoint("limits", done.checkpoint_id).created_at >= clean.created_at
    assert (shop / "notes.txt").read_text() == "good"
    assert service.get_plan("limits").steps[0].state != "failed"


def test_a_correction_appends_a_step_before_what_broke(service: CheckpointService) -> None:
    corrections = CorrectionService(service.workspace)
    with pytest.raises(safepoint.Conflict) as caught:
        corrections.append("limits", "fix")
    assert caught.value.code == "plan_healthy"
    service.start_step("limits", "read")
    service.fail_step("limits", "read", "it broke")
    done = corrections.append("limits", {"id": "fix", "title": "Fix the table"}, guidance="first")
    assert done.step == "fix" and [step.path for step in done.plan.steps][:2] == ["fix", "read"]


def test_ids_have_one_form(service: CheckpointService, shop: Path) -> None:
    made = [service.create_checkpoint("limits") for _ in range(3)]
    service.start_step("limits", "read")
    result = service.rollback_to_checkpoint("limits", made[1].checkpoint_id)
    assert result.checkpoint_id == made[1].checkpoint_id and result.safety_checkpoint_id is not None
    assert service.workspace.show(result.safety_checkpoint_id).role is not None
    dropped = service.prune("limits", NOTHING_BUT_THE_LAST)
    assert dropped and set(dropped) <= {one.checkpoint_id for one in made}
    service.start_step("limits", "read")
    service.finish_step("limits", "read")
    clean = service.create_checkpoint("limits", reason="safe_state")
    service.start_step("limits", "write")
    service.fail_step("limits", "write", "no")
    correction = CorrectionService(service.workspace).revert("limits")
    assert correction.restored is not None and correction.restored.checkpoint_id == correction.checkpoint_id
    assert service.get_checkpoint("limits", str(correction.checkpoint_id)) and clean.checkpoint_id


def test_a_checkpoint_whose_prune_fails_is_returned(
    service: CheckpointService, caplog: pytest.LogCaptureFixture
) -> None:
    made = service.create_checkpoint("limits", policy=RetentionPolicy(keep_last=-1))
    assert service.list_checkpoints("limits")[0].checkpoint_id == made.checkpoint_id
    assert "was not pruned" in caplog.text
