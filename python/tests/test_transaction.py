"""A block is done as a whole or not at all: exceptions, nesting, kill -9, forks."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import safepoint
from conftest import tree_of


def edit(shop: Path) -> None:
    (shop / "notes.txt").write_text("bad")
    (shop / "new.txt").write_text("new")


def test_a_block_that_ends_well_stays(ws: safepoint.Workspace, shop: Path) -> None:
    with ws.transaction("edit") as block:
        edit(shop)
    assert (shop / "new.txt").exists() and block.rolled_back is None and block.rejected is None
    assert not ws.show(block.checkpoint).pinned and ws.unfinished() == []  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_any_exception_rolls_back_and_goes_on(
    error: type[BaseException], ws: safepoint.Workspace, shop: Path
) -> None:
    before = tree_of(shop)
    with pytest.raises(error), ws.transaction("edit") as block:
        edit(shop)
        raise error
    assert tree_of(shop) == before and block.rolled_back is not None and ws.unfinished() == []


def test_reject_leaves_the_block_and_raises_nothing(ws: safepoint.Workspace, shop: Path) -> None:
    before, after = tree_of(shop), False
    with ws.transaction() as block:
        edit(shop)
        try:
            block.reject("tests fail")
        except Exception:  # the block's own handlers must not catch it
            after = True
        after = True
    assert tree_of(shop) == before and block.rejected == "tests fail" and not after


def test_transactions_nest(ws: safepoint.Workspace, shop: Path) -> None:
    with ws.transaction("outer"):
        (shop / "outer.txt").write_text("1")
        with pytest.raises(ValueError), ws.transaction("inner"):
            (shop / "inner.txt").write_text("2")
            raise ValueError
        assert (shop / "outer.txt").exists() and not (shop / "inner.txt").exists()
    assert (shop / "outer.txt").exists()
    before = tree_of(shop)
    with ws.transaction("outer") as outer:
        (shop / "third.txt").write_text("3")
        with ws.transaction("inner"):
            outer.reject()
    assert tree_of(shop) == before


def test_a_plan_goes_back_with_the_files(ws: safepoint.Workspace, shop: Path) -> None:
    from safepoint.plans import CheckpointService

    service = CheckpointService(ws)
    service.create_plan("limits", ["one", "two"], plan_id="limits")
    with ws.transaction("work", plan="limits") as block:
        edit(shop)
        service.start_step("limits", "one")
        service.finish_step("limits", "one")
        assert service.get_plan("limits").step_index == 1
        block.reject()
    assert service.get_plan("limits").step_index == 0 and (shop / "notes.txt").read_text() == "good"
    assert block.rolled_back is not None and block.rolled_back.plans == ("limits",)


def test_a_rollback_that_fails_is_raised_from_the_first_exception(shop: Path) -> None:
    import fcntl

    ws = safepoint.Workspace.open(shop, lock_wait=0.1)
    descriptor = os.open(shop, os.O_RDONLY)
    with pytest.raises(safepoint.RollbackFailed) as caught, ws.transaction("edit"):
        edit(shop)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        raise ValueError("first")
    os.close(descriptor)
    assert isinstance(caught.value.__cause__, ValueError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(again, safepoint.RollbackFailed) and isinstance(again.failure, safepoint.Busy)
    assert isinstance(caught.value.failure, safepoint.Busy) and caught.value.code == caught.value.failure.code
    (left,) = ws.unfinished()
    left.rollback()
    assert (shop / "notes.txt").read_text() == "good" and ws.unfinished() == []


def test_a_transaction_is_used_once(ws: safepoint.Workspace) -> None:
    block = ws.transaction()
    with block:
        pass
    with pytest.raises(safepoint.UsageError, match="once"):
        block.__enter__()
    with pytest.raises(safepoint.UsageError, match="not open"):
        block.reject()


KILLED = """
import os, sys, signal, safepoint
ws = safepoint.Workspace.open(sys.argv[1])
with ws.transaction("refactor"):
    open(os.path.join(sys.argv[1], "notes.txt"), "w").write("half")
    open(os.path.join(sys.argv[1], "new.txt"), "w").write("half")
    print("ready", flush=True)
    sys.stdin.read()
"""


def killed_in_a_transaction(shop: Path) -> None:
    before = len(safepoint.Workspace.open(shop).unfinished())
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(shop)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    # While the process lives, its transaction is not unfinished.
    assert len(safepoint.Workspace.open(shop).unfinished()) == before
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert child.stdin is not None
    child.stdin.close()


def test_a_killed_process_leaves_a_transaction_that_is_named(shop: Path) -> None:
    before = tree_of(shop)
    killed_in_a_transaction(shop)
    ws = safepoint.Workspace.open(shop)
    # Nothing is guessed.
    assert (shop / "notes.txt").read_text() == "half"
    (left,) = ws.unfinished()
    assert (left.name, ws.show(left.checkpoint).pinned) == ("refactor", True)
    left.rollback()
    assert tree_of(shop) == before and ws.unfinished() == [] and not ws.show(left.checkpoint).pinned


def test_on_crash_says_what_becomes_of_it(shop: Path) -> None:
    before = tree_of(shop)
    killed_in_a_transaction(shop)
    with pytest.raises(safepoint.SafepointError, match="refactor"):
        safepoint.Workspace.open(shop, on_crash="raise")
    ws = safepoint.Workspace.open(shop, on_crash="rollback")
    assert tree_of(shop) == before and ws.unfinished() == []
    killed_in_a_transaction(shop)
    (left,) = ws.unfinished()
    left.keep()
    assert (shop / "notes.txt").read_text() == "half" and ws.unfinished() == []


def test_hostile_records_are_left_and_reported(ws: safepoint.Workspace, caplog: pytest.LogCaptureFixture) -> None:
    folder = Path(ws.home) / "transactions"
    folder.mkdir()
    for name, text in (
        ("a", b""), ("b", b"[]"), ("c", b"{}"), ("d", b'{"format": 1, "workspace": 5}'), ("e", b"\xff" * 100)
    ):
        (folder / f"{name}.json").write_bytes(text)
    (folder / "link.json").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe.json")
    assert ws.unfinished() == []
    assert len([record for record in caplog.records if "no record" in record.message]) >= 5


def test_a_forked_child_that_leaves_the_block_has_no_part_in_it(ws: safepoint.Workspace, shop: Path) -> None:
    with ws.transaction("edit") as block:
        edit(shop)
        child = os.fork()
        if child == 0:
            try:
                # What the with statement does when the child calls sys.exit().
                block.__exit__(SystemExit, SystemExit(), None)
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert (shop / "notes.txt").read_text() == "bad"
    assert (shop / "notes.txt").read_text() == "bad" and ws.unfinished() == []


def test_ctrl_c_in_a_call_interrupts_it_and_the_block_goes_back(shop: Path) -> None:
    """A signal in the middle of a long ``create`` inside a transaction."""
    script = textwrap.dedent(
        """
        import os, sys, safepoint
        ws = safepoint.Workspace.open(sys.argv[1])
        try:
            with ws.transaction("edit"):
                open(os.path.join(sys.argv[1], "notes.txt"), "w").write("bad")
                for number in range(200):
                    open(os.path.join(sys.argv[1], f"{number}.bin"), "wb").write(os.urandom(200_000))
                print("ready", flush=True)
                while True:
                    ws.create()
                    open(os.path.join(sys.argv[1], "0.bin"), "wb").write(os.urandom(200_000))
        except KeyboardInterrupt:
            print("interrupted", open(os.path.join(sys.argv[1], "notes.txt")).read(), flush=True)
        """
    )
    child = subprocess.Popen([sys.executable, "-c", script, str(shop)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert out == "interrupted good\n" and child.returncode == 0
    assert sorted(path.name for path in shop.iterdir() if path.name != ".safepoint") == ["notes.txt"]


LOOP = """
import os, signal, sys, time, safepoint
shop = sys.argv[1]
ws = safepoint.Workspace.open(shop)
ticks = 0
def tick(number, frame):
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, tick)
print("ready", flush=True)
while True:
    try:
        with ws.transaction("edit"):
            with open(os.path.join(shop, "notes.txt"), "w") as notes:
                notes.write("bad")
            raise ValueError
    except ValueError:
        pass
    except KeyboardInterrupt:
        break
print(len(ws.unfinished()), len([one for one in ws.list(all=True) if one.pinned]), flush=True)
"""


def test_ctrl_c_anywhere_leaves_no_pin_and_no_record(shop: Path, tmp_path: Path) -> None:
    """At the beginning of a block, in it, during its rollback, at its end."""
    for number in range(8):
        child = subprocess.Popen(
            [sys.executable, "-c", LOOP, str(shop)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(0.02 + 0.017 * number)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=120)
        assert out == "0 0\n", (number, out, err)
        assert (shop / "notes.txt").read_text() == "good"


def test_ctrl_c_between_checkpoint_and_record_unpins(
    ws: safepoint.Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safepoint import _transaction

    real = _transaction._Record.begin

    def begin(*given: object) -> object:
        made = real(*given)  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGINT)
        return made

    monkeypatch.setattr(_transaction._Record, "begin", begin)
    with pytest.raises(KeyboardInterrupt):
        ws.transaction("edit").__enter__()
    assert not any(one.pinned for one in ws.list(all=True)) and ws.unfinished() == []
    assert os.listdir(Path(ws.home) / "transactions") == []


ENDING = """
import os, sys, signal, safepoint
from safepoint import _transaction
# The kill hits between the rollback and the removal of the record.
_transaction._Record.end = lambda self: os.kill(os.getpid(), signal.SIGKILL)
ws = safepoint.Workspace.open(sys.argv[1])
with ws.transaction("refactor"):
    open(os.path.join(sys.argv[1], "notes.txt"), "w").write("half")
    raise ValueError
"""


def test_a_block_that_was_rolled_back_is_not_rolled_back_again(shop: Path) -> None:
    done = subprocess.run([sys.executable, "-c", ENDING, str(shop)], check=False)
    assert done.returncode == -signal.SIGKILL and (shop / "notes.txt").read_text() == "good"
    # Work since then must stay.
    (shop / "notes.txt").write_text("later work")
    ws = safepoint.Workspace.open(shop, on_crash="rollback")
    assert (shop / "notes.txt").read_text() == "later work" and ws.unfinished() == []
    assert not any(one.pinned for one in ws.list(all=True))


NESTED = """
import os, sys, signal, safepoint
from safepoint.plans import CheckpointService
shop = sys.argv[1]
ws = safepoint.Workspace.open(shop)
service = CheckpointService(ws)
with ws.transaction("outer"):
    open(os.path.join(shop, "outer.txt"), "w").write("x")
    with ws.transaction("inner", plan="limits"):
        open(os.path.join(shop, "inner.txt"), "w").write("x")
        service.start_step("limits", "one")
        service.finish_step("limits", "one")
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nested_blocks_of_a_killed_process_go_back_with_their_plans(shop: Path) -> None:
    from safepoint.plans import CheckpointService

    service = CheckpointService(shop)
    service.create_plan("limits", ["one", "two"], plan_id="limits")
    before = tree_of(shop)
    assert subprocess.run([sys.executable, "-c", NESTED, str(shop)], check=False).returncode == -signal.SIGKILL
    assert service.get_plan("limits").step_index == 1
    ws = safepoint.Workspace.open(shop, on_crash="rollback")
    assert tree_of(shop) == before and service.get_plan("limits").step_index == 0
    assert ws.unfinished() == [] and not any(one.pinned for one in ws.list(all=True))


def test_an_earlier_block_that_was_left_open_is_not_chosen(shop: Path, caplog: pytest.LogCaptureFixture) -> None:
    killed_in_a_transaction(shop)
    # People looked at it, and left it. Work went on.
    (shop / "notes.txt").write_text("accepted")
    killed_in_a_transaction(shop)
    assert (shop / "notes.txt").read_text() == "half"
    for _ in range(2):
        # The second time, too: what was left to people stays so.
        ws = safepoint.Workspace.open(shop, on_crash="rollback")
        assert (shop / "notes.txt").read_text() == "accepted"
        (left,) = ws.unfinished()
    assert "stays as it is" in caplog.text
    left.rollback()
    assert (shop / "notes.txt").read_text() == "good" and ws.unfinished() == []


def test_blocks_of_two_processes_that_were_killed_together_go_back_both(shop: Path) -> None:
    before = tree_of(shop)
    children = []
    for _ in range(2):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(shop)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        children.append(child)
    for child in children:
        child.kill()
        child.communicate()
    ws = safepoint.Workspace.open(shop, on_crash="rollback")
    assert tree_of(shop) == before and ws.unfinished() == []


def test_a_record_whose_last_line_is_torn_is_still_one(shop: Path) -> None:
    killed_in_a_transaction(shop)
    ws = safepoint.Workspace.open(shop)
    (record,) = (Path(ws.home) / "transactions").iterdir()
    record.write_bytes(record.read_bytes() + b'{"rolling_b')
    assert [one.name for one in ws.unfinished()] == ["refactor"]


def test_paths_that_are_left_stay(ws: safepoint.Workspace, shop: Path) -> None:
    (shop / "kept").mkdir()
    (shop / "kept" / "a.txt").write_text("old")
    before = ws.create()
    with ws.transaction("edit", leave=["kept"]) as block:
        edit(shop)
        (shop / "kept" / "a.txt").write_text("new")
        block.reject()
    assert (shop / "notes.txt").read_text() == "good" and (shop / "kept" / "a.txt").read_text() == "new"
    ws.rollback(before, leave=["notes.txt"])
    assert (shop / "kept" / "a.txt").read_text() == "old"
    with pytest.raises(TypeError):
        ws.transaction(leave="kept")
