"""Attempts: what stays apart, what is compared, kept and dropped; the same for asyncio."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import safepoint
from conftest import tree_of


@pytest.fixture(params=["best", "copy"])
def copy(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "copy")


def edit(attempt: safepoint.Attempt, shop: Path, line: str) -> list[str]:
    """A command for the folder in which an attempt has the workspace."""
    place = shop if attempt.kind == "overlay" else Path(attempt.room) / "tree" / shop.name
    return ["sh", "-c", f"cd '{place}' && {line}"]


def test_an_attempt_stays_apart_until_it_is_kept_and_undo_takes_it_back(
    ws: safepoint.Workspace, shop: Path, copy: bool
) -> None:
    before = tree_of(shop)
    made = ws.attempts.start("refactor", copy=copy)
    assert (made.name, made.number, made.state, made.result, made.kind in ("overlay", "reflink", "copy")) == (
        "refactor",
        1,
        "open",
        None,
        True,
    )
    if made.kind != "overlay":
        assert copy or made.refused, "a copy without a reason"
    ran = ws.attempts.run(
        made, edit(made, shop, "echo better > notes.txt; echo new > more.txt; echo said"), capture_output=True
    )
    assert (ran.exit_status, ran.output, tree_of(shop)) == (0, b"said\n", before)
    assert (ran.attempt.files_added, ran.attempt.files_modified, ran.attempt.passes) == (1, 1, True)
    assert [change.path for change in ws.attempts.diff("refactor")] == ["more.txt", "notes.txt"]

    kept = ws.attempts.keep(ran.attempt)
    assert kept.rollback is not None and kept.attempt.state == "kept" and not kept.dry_run and kept.left == ()
    assert (shop / "notes.txt").read_text() == "better\n" and (shop / "more.txt").exists()
    assert ws.attempts.list() == [] and [one.state for one in ws.attempts.list(all=True)] == ["kept"]
    assert not os.path.exists(made.room)
    ws.undo()
    assert tree_of(shop) == before


def test_a_preview_changes_nothing_and_binds_what_is_kept(ws: safepoint.Workspace, shop: Path) -> None:
    made, other = ws.attempts.start("a"), ws.attempts.start("b")
    ws.attempts.run(made, edit(made, shop, "echo ours > notes.txt"))
    before = tree_of(shop)
    preview = ws.attempts.preview_keep(made, others="open")
    assert preview.dry_run and preview.rollback is not None and preview.rollback.dry_run
    assert preview.rollback.changed_paths == (("notes.txt", "restored"),) and preview.dropped == ()
    assert tree_of(shop) == before and len(ws.attempts.list()) == 2
    # The project changed since: not what was shown.
    (shop / "theirs.txt").write_text("theirs")
    with pytest.raises(safepoint.Conflict) as refused:
        ws.attempts.keep(preview)
    assert refused.value.code == "stale_preview" and (shop / "notes.txt").read_text() == "good"
    # The attempt changed since.
    preview = ws.attempts.preview_keep(made, others="open")
    ws.attempts.run(made, edit(made, shop, "echo later > notes.txt"))
    with pytest.raises(safepoint.Conflict):
        ws.attempts.keep(preview)
    with pytest.raises(safepoint.UsageError, match="preview"):
        ws.attempts.keep(preview, others="drop")
    kept = ws.attempts.keep(ws.attempts.preview_keep(made, others="open"))
    assert kept.changed_in_project == ("theirs.txt",) and (shop / "notes.txt").read_text() == "later\n"
    assert [one.name for one in ws.attempts.list()] == [other.name]


def test_both_sides_are_merged_or_the_paths_are_named(ws: safepoint.Workspace, shop: Path) -> None:
    (shop / "notes.txt").write_text("1\n2\n3\n4\n5\n")
    made = ws.attempts.start("a")
    ws.attempts.run(made, edit(made, shop, "sed -i s/1/one/ notes.txt"))
    (shop / "notes.txt").write_text("1\n2\n3\n4\nfive\n")
    assert ws.attempts.preview_keep(made).merged == ("notes.txt",)
    (shop / "notes.txt").write_text("uno\n2\n3\n4\n5\n")
    with pytest.raises(safepoint.Conflict, match="notes.txt") as refused:
        ws.attempts.keep(made)
    assert refused.value.code == "attempt_conflict" and (shop / "notes.txt").read_text().startswith("uno")
    (shop / "notes.txt").write_text("1\n2\n3\n4\nfive\n")
    assert ws.attempts.keep("a").merged == ("notes.txt",)
    assert (shop / "notes.txt").read_text() == "one\n2\n3\n4\nfive\n"


def test_a_comparison_has_checks_metrics_and_lines(ws: safepoint.Workspace, shop: Path) -> None:
    program = safepoint._surroundings.program()  # type: ignore[attr-defined]
    for number, value in ((1, 0.5), (2, 0.9), (3, 0.99)):
        made = ws.attempts.start(f"try-{number}")
        line = f"seq {number} > notes.txt; {program} --home {ws.home} -q metric accuracy={value}"
        ran = ws.attempts.run(
            made, edit(made, shop, line), verify=f"echo '{number} passed, 1 failed in 0.1s'; test {number} -lt 3"
        )
        assert ran.check_output == f"{number} passed, 1 failed in 0.1s\n".encode()
        assert ran.attempt.tests == safepoint.TestCounts(passed=number, failed=1, skipped=0)
        assert (ran.attempt.verified, ran.attempt.passes) == (number < 3, number < 3)
    found = ws.attempts.compare(best="accuracy")
    assert (found.best, ws.attempts.compare(best="accuracy", lowest=True).best) == ("try-2", "try-1")
    assert [one.metrics["accuracy"] for one in found.attempts] == [0.5, 0.9, 0.99]
    assert [(one.lines_added, one.lines_removed) for one in found.attempts] == [(1, 1), (2, 1), (3, 1)]
    assert ws.attempts.compare().best is None
    kept = ws.attempts.keep("try-2")
    assert sorted(kept.dropped) == ["try-1", "try-3"] and (shop / "notes.txt").read_text() == "1\n2\n"


def test_a_dropped_attempt_leaves_its_state_as_a_checkpoint(ws: safepoint.Workspace, shop: Path) -> None:
    made = ws.attempts.start("a")
    ws.attempts.run(made, edit(made, shop, "echo last > last.txt"))
    dropped = ws.attempts.drop("a")
    assert (dropped.state, os.path.exists(dropped.room)) == ("dropped", False)
    assert dropped.result is not None and ws.read("last.txt", dropped.result) == b"last\n"
    with pytest.raises(safepoint.Conflict) as refused:
        ws.attempts.drop(dropped)
    assert refused.value.code == "attempt_closed"


def test_wrong_names_and_commands_are_refused(ws: safepoint.Workspace) -> None:
    made = ws.attempts.start("a")
    with pytest.raises(safepoint.Conflict) as refused:
        ws.attempts.start("a")
    assert refused.value.code == "attempt_exists"
    with pytest.raises(safepoint.NotFound):
        ws.attempts.show("b")
    with pytest.raises(safepoint.UsageError):
        ws.attempts.start("no/name")
    with pytest.raises(safepoint.UsageError):
        ws.attempts.run(made, [])
    with pytest.raises(safepoint.UsageError):
        ws.attempts.run(made, ["true"], outside="closed")  # type: ignore[arg-type]
    with pytest.raises(safepoint.UsageError):
        ws.attempts.preview_keep(made, others="all")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        ws.attempts.run(made, "true")
    with pytest.raises(TypeError):
        ws.attempts.show(None)  # type: ignore[arg-type]
    if made.kind == "overlay":
        with pytest.raises(safepoint.SafepointError) as missing:
            ws.attempts.run(made, ["no-such-program-here"])
        assert missing.value.code == "room"
    assert ws.attempts.show(made).result is None
    assert ws.attempts.run(made, ["sh", "-c", "kill -9 $$"]).exit_status == 137


def test_a_command_that_takes_too_long_is_ended_and_its_work_is_kept(ws: safepoint.Workspace, shop: Path) -> None:
    made = ws.attempts.start("a")
    with pytest.raises(subprocess.TimeoutExpired):
        ws.attempts.run(made, edit(made, shop, "echo begun > begun; exec sleep 600"), timeout=1.5)
    shown = ws.attempts.show(made)
    assert (shown.exit_status, shown.files_added, shown.passes) == (143, 1, False) and shown.processes == ()
    with pytest.raises(subprocess.TimeoutExpired):
        ws.attempts.run(made, ["true"], verify="exec sleep 600", timeout=1.5)
    shown = ws.attempts.show(made)
    assert (shown.exit_status, shown.verified, shown.passes) == (0, False, False)


def test_metrics_are_numbers_of_the_next_checkpoint(ws: safepoint.Workspace, shop: Path) -> None:
    ws.report_metrics({"loss": 0.25, "accuracy": 1})
    made = ws.create()
    assert made.metrics == {"loss": 0.25, "accuracy": 1.0} == ws.show(made).metrics and hash(made)
    (shop / "notes.txt").write_text("later")
    assert ws.create().metrics == {}
    for wrong in (float("nan"), float("inf")):
        with pytest.raises(safepoint.UsageError):
            ws.report_metrics({"loss": wrong})
    with pytest.raises(safepoint.UsageError):
        ws.report_metrics({"no name": 1})


def test_inside_an_attempt_the_workspace_is_that_of_the_attempt(ws: safepoint.Workspace, shop: Path) -> None:
    made = ws.attempts.start("a")
    if made.kind != "overlay":
        pytest.skip("this machine gives no overlay")
    program = (
        "import os, safepoint\n"
        f"ws = safepoint.Workspace.open({str(shop)!r})\n"
        f"assert ws.id != {ws.id!r}, 'the project itself'\n"
        "open('notes.txt', 'w').write('inside')\n"
        "ws.create('inside'); ws.report_metrics({'loss': 0.5})\n"
        "os.makedirs('below')\n"
        "try:\n    safepoint.Workspace.open('below')\n"
        "except safepoint.Conflict as error:\n    assert error.code == 'inside_attempt', error\n"
        "else:\n    raise AssertionError('a folder of the project was registered')\n"
        "try:\n    ws.attempts.start()\n"
        "except safepoint.Conflict as error:\n    assert error.code == 'inside_attempt', error\n"
        "else:\n    raise AssertionError('an attempt in an attempt')\n"
    )
    ran = ws.attempts.run(made, [sys.executable, "-c", program], capture_output=True)
    assert ran.exit_status == 0, ran.output
    assert ran.attempt.metrics == {"loss": 0.5} and (shop / "notes.txt").read_text() == "good"
    assert ws.list() == [], "the project has a checkpoint of the attempt"


def test_the_rest_of_the_file_system_is_read_only_if_wanted(
    ws: safepoint.Workspace, shop: Path, tmp_path: Path
) -> None:
    made = ws.attempts.start("a")
    open_folder = tmp_path / "open"
    open_folder.mkdir()
    line = f"echo a > {open_folder}/a; ! echo b > {tmp_path}/b 2>/dev/null"
    if made.kind != "overlay":
        with pytest.raises(safepoint.SafepointError):
            ws.attempts.run(made, ["true"], outside="read-only")
        return
    ran = ws.attempts.run(made, ["sh", "-c", line], outside="read-only", writable=[open_folder])
    assert ran.exit_status == 0 and (open_folder / "a").exists() and not (tmp_path / "b").exists()


async def test_three_at_once_with_asyncio(shop: Path) -> None:
    before = tree_of(shop)
    async with safepoint.AsyncWorkspace.open(shop) as ws:
        made = [await ws.attempts.start(f"a{number}") for number in range(6)]

        async def one(number: int) -> safepoint.AttemptRan:
            line = f"sleep 1; echo {number} > notes.txt"
            return await ws.attempts.run(made[number], edit(made[number], shop, line), verify="echo '1 passed in 1s'")

        since = time.monotonic()
        ran = await asyncio.gather(*(one(number) for number in range(6)))
        assert [one.attempt.verified for one in ran] == [True] * 6 and tree_of(shop) == before
        assert time.monotonic() - since < 30 and all(one.attempt.tests for one in ran)
        compared = await ws.attempts.compare()
        assert [one.lines_added for one in compared.attempts] == [1] * 6
        assert [change.path for change in await ws.attempts.diff("a0", "a1")] == ["notes.txt"]
        preview = await ws.attempts.preview_keep("a3", others="open")
        await ws.attempts.keep(preview)
        assert (shop / "notes.txt").read_text() == "3\n"
        assert (await ws.attempts.drop("a0")).state == "dropped"
        assert [one.name for one in await ws.attempts.list()] == ["a1", "a2", "a4", "a5"]
        assert (await ws.attempts.show("a5")).passes


async def test_a_cancelled_run_is_ended_and_captured(shop: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    async with safepoint.AsyncWorkspace.open(shop) as ws:
        made = await ws.attempts.start("a")
        line = f"echo begun > begun; echo > {ready}; exec sleep 600"
        task = asyncio.create_task(ws.attempts.run(made, edit(made, shop, line)))
        while not ready.exists():
            await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        shown = await ws.attempts.show(made)
        assert (shown.exit_status, shown.files_added, shown.processes) == (143, 1, ())
        with pytest.raises(subprocess.TimeoutExpired):
            await ws.attempts.run(made, ["sleep", "600"], timeout=0.5)
