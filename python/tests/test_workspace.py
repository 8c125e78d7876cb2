"""Checkpoints, the way back, and wrong input, as a program in Python meets them."""

from __future__ import annotations

import logging
import os
import pickle
import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import safepoint
from conftest import tree_of
from safepoint import _errors, _native

ROOT = Path(__file__).resolve().parents[2]


def test_a_rollback_restores_the_folder_and_undo_takes_it_back(ws: safepoint.Workspace, shop: Path) -> None:
    before = tree_of(shop)
    made = ws.create("tests pass")
    (shop / "notes.txt").unlink()
    (shop / "new").mkdir()
    (shop / "new" / "b.bin").write_bytes(b"\0\xff")
    worse = tree_of(shop)

    preview = ws.rollback(made, dry_run=True)
    assert preview.dry_run and preview.id is None and tree_of(shop) == worse
    done = ws.rollback(made)
    assert tree_of(shop) == before
    assert (done.restored_files_count, done.removed_files_count, done.verified) == (1, 1, True)
    assert dict(done.changed_paths)["notes.txt"] == "created"
    ws.undo()
    assert tree_of(shop) == worse
    ws.redo()
    assert tree_of(shop) == before


def test_list_show_diff_status_and_read_agree(ws: safepoint.Workspace, shop: Path) -> None:
    first = ws.create("first")
    (shop / "notes.txt").write_text("better")
    assert not ws.status().is_covered
    assert [(change.path, change.change) for change in ws.diff()] == [("notes.txt", "modified")]
    second = ws.create("second", progress=safepoint.Counters(tests_passing=3))
    assert ws.status().is_covered
    assert [one.id for one in ws.list()] == [second.id, first.id]
    assert ws.list(limit=1) == [ws.show()] == [ws.show("second")]
    assert ws.show(second.uuid).progress.tests_passing == 3
    assert ws.read("notes.txt", first) == b"good" and ws.read("notes.txt") == b"better"
    assert [(entry.path, entry.type, entry.size) for entry in ws.files(second)] == [("notes.txt", "file", 6)]
    assert [change.path for change in ws.diff(first, second)] == ["notes.txt"]
    assert ws.create("again", only_if_changed=True).unchanged


def test_chosen_paths_alone_go_back(ws: safepoint.Workspace, shop: Path) -> None:
    made = ws.create()
    (shop / "notes.txt").write_text("bad")
    (shop / "keep.txt").write_text("keep")
    ws.rollback(made, paths=["notes.txt"])
    assert (shop / "notes.txt").read_text() == "good" and (shop / "keep.txt").exists()


def test_names_that_are_not_text_come_back(ws: safepoint.Workspace, shop: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (shop / name).write_text("x")
    made = ws.create()
    (shop / name).unlink()
    done = ws.rollback(made)
    assert (name, "created") in done.changed_paths and (shop / name).read_text() == "x"
    assert ws.read(name) == b"x" if name.isascii() else True


@pytest.mark.parametrize("path", ["a\0b", b"a\0b".decode()])
def test_nul_in_a_path_is_a_usage_error(path: str, ws: safepoint.Workspace) -> None:
    with pytest.raises(safepoint.UsageError, match="NUL"):
        safepoint.Workspace.open(path)
    with pytest.raises(ValueError, match="NUL"):
        ws.rollback("@", paths=[path])


def test_a_closed_handle_says_so(ws: safepoint.Workspace) -> None:
    ws.close()
    for act in (ws.create, ws.list, ws.status, ws.undo, ws.unfinished, ws.transaction().__enter__):
        with pytest.raises(safepoint.UsageError, match="closed"):
            act()


def test_a_folder_that_is_gone_is_not_found(ws: safepoint.Workspace, shop: Path, tmp_path: Path) -> None:
    with pytest.raises(safepoint.NotFound):
        safepoint.Workspace.open(tmp_path / "nowhere")
    ws.create()
    (shop / "notes.txt").unlink()
    shop.rmdir()
    with pytest.raises(LookupError) as caught:
        ws.create()
    assert caught.value.code == "workspace_gone"
    shop.mkdir()
    ws.rollback()
    assert (shop / "notes.txt").read_text() == "good"


def test_a_checkpoint_of_another_workspace_is_refused(ws: safepoint.Workspace, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    foreign = safepoint.Workspace.open(other).create()
    with pytest.raises(safepoint.SafepointError) as caught:
        ws.rollback(foreign)
    assert caught.value.code in ("other_workspace", "no_checkpoint")
    with pytest.raises(safepoint.NotFound):
        ws.rollback("no such label")


def test_wrong_types_are_refused_before_anything_happens(ws: safepoint.Workspace) -> None:
    for act in (
        lambda: ws.create(5),  # type: ignore[arg-type]
        lambda: ws.create(kind="odd"),  # type: ignore[arg-type]
        lambda: ws.create(label=object()),  # type: ignore[arg-type]
        lambda: ws.rollback(7),  # type: ignore[arg-type]
        lambda: ws.rollback("@", paths="notes.txt"),
        lambda: ws.list(limit=-1),
        lambda: ws.list(limit="many"),  # type: ignore[arg-type]
        lambda: safepoint.Workspace.open(5),  # type: ignore[arg-type]
        lambda: ws.transaction(name=3),  # type: ignore[arg-type]
    ):
        with pytest.raises((TypeError, ValueError)):
            act()
    assert ws.list(all=True) == []


def test_the_users_home_is_no_workspace_unless_forced() -> None:
    with pytest.raises(safepoint.Conflict) as caught:
        safepoint.Workspace.open(os.environ["HOME"])
    assert caught.value.code == "refused_root" and caught.value.hints
    safepoint.Workspace.open(os.environ["HOME"], force=True)


def test_a_busy_workspace_is_a_timeout(shop: Path) -> None:
    import fcntl

    ws = safepoint.Workspace.open(shop, lock_wait=0.1)
    descriptor = os.open(shop, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(TimeoutError) as caught:
        ws.create()
    assert isinstance(caught.value, safepoint.Busy)
    os.close(descriptor)
    ws.create()


def test_every_kind_of_docs_errors_has_one_class() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    kinds = set(re.findall(r"^\| `[a-z_]+` \| ([a-z_]+) \|", page, re.MULTILINE))
    assert kinds == set(_errors.KINDS)
    assert all(of.kind == kind and getattr(safepoint, of.__name__) is of for kind, of in _errors.KINDS.items())
    assert issubclass(safepoint.NotFound, LookupError)
    assert issubclass(safepoint.UsageError, ValueError)
    assert issubclass(safepoint.Busy, TimeoutError)


def test_codes_that_python_raises_have_the_kinds_of_the_table() -> None:
    page = (ROOT / "docs" / "errors.md").read_text()
    table = dict(re.findall(r"^\| `([a-z_]+)` \| ([a-z_]+) \|", page, re.MULTILINE))
    classes = {of.__name__: kind for kind, of in _errors.KINDS.items()}
    checked = 0
    for path in (ROOT / "python" / "safepoint").glob("*.py"):
        for name, code in re.findall(r"(?:raise|return) (\w+)\((?:[^()]|\([^()]*\))*?code=\"([a-z_]+)\"", path.read_text()):
            if name in classes:
                assert table[code] == classes[name], (path.name, name, code)
                checked += 1
            assert code in table, (path.name, code)
    assert checked > 25


def test_failures_carry_the_table_and_can_be_pickled(ws: safepoint.Workspace) -> None:
    with pytest.raises(safepoint.NotFound) as caught:
        ws.show("nothing")
    page = (ROOT / "docs" / "errors.md").read_text()
    assert f"| `{caught.value.code}` | {caught.value.kind} |" in page
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.code, again.hints, str(again)) == (
        safepoint.NotFound,
        caught.value.code,
        caught.value.hints,
        str(caught.value),
    )


def test_handles_are_pickled_as_home_and_id(ws: safepoint.Workspace) -> None:
    made = ws.create()
    again = pickle.loads(pickle.dumps(ws))
    assert again.show() == pickle.loads(pickle.dumps(ws.show())) and again.show().id == made.id
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(ws.transaction())


def test_logs_reach_logging_on_the_calling_thread(
    ws: safepoint.Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    import threading

    with caplog.at_level(logging.DEBUG, logger="safepoint"):
        ws.create()
    assert caplog.records and all(record.name.startswith("safepoint") for record in caplog.records)
    assert {record.thread for record in caplog.records} == {threading.get_ident()}


def test_threads_do_not_get_the_records_of_each_other(
    ws: safepoint.Workspace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Records of a call's own thread name its folder; each must reach the thread that called for that folder."""
    import threading

    other = tmp_path / "other"
    other.mkdir()
    homes = {"shop": ws, "other": safepoint.Workspace.open(other, home=tmp_path / "home2")}
    seen: dict[str, set[int | None]] = {}

    def work(name: str) -> None:
        for _ in range(15):
            with pytest.raises(safepoint.NotFound):
                homes[name].show(f"no-{name}")
            homes[name].create(f"label-{name}")

    with caplog.at_level(logging.DEBUG, logger="safepoint"):
        threads = {name: threading.Thread(target=work, args=(name,)) for name in homes}
        for thread in threads.values():
            thread.start()
        for thread in threads.values():
            thread.join()
    for record in caplog.records:
        for name, one in homes.items():
            if one.id in record.message or f"/{name}" in record.message:
                seen.setdefault(name, set()).add(record.thread)
    assert seen and all(found == {threads[name].ident} for name, found in seen.items())


def test_surroundings_are_those_of_the_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import getpass
    import uuid

    from safepoint import _surroundings

    for name in ("USER", "LOGNAME", "LNAME", "USERNAME", "CODEX_SANDBOX", "OPENCODE", "CURSOR_AGENT", "GEMINI_CLI"):
        monkeypatch.delenv(name, raising=False)
    assert _surroundings.actor() == getpass.getuser()
    monkeypatch.setenv("USER", "you")
    monkeypatch.setenv("CLAUDECODE", "1")
    assert _surroundings.actor() == "you via claude"
    monkeypatch.setenv("SAFEPOINT_SESSION_ID", "not-an-id")
    assert _surroundings.session() is None
    session = uuid.uuid4()
    monkeypatch.setenv("SAFEPOINT_SESSION_ID", str(session).upper())
    assert _surroundings.session() == str(session)
    monkeypatch.delenv("SAFEPOINT_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert _surroundings.default_home() == str(tmp_path / "data" / "safepoint")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert _surroundings.default_home() == os.path.join(os.environ["HOME"], ".local", "share", "safepoint")


def test_a_database_that_this_process_has_open_keeps_its_locks(ws: safepoint.Workspace, shop: Path) -> None:
    base = sqlite3.connect(shop / "data.db", isolation_level=None)
    base.execute("create table t(x)")
    base.execute("begin immediate")
    base.execute("insert into t values (1)")
    ws.create()
    # The lock of this process must still hold against another one.
    script = "import sqlite3,sys; c=sqlite3.connect(sys.argv[1],timeout=0); c.execute('begin immediate')"
    done = subprocess.run([sys.executable, "-c", script, str(shop / "data.db")], capture_output=True, text=True)
    assert "database is locked" in done.stderr
    base.execute("commit")
    base.close()


def test_the_verbs_in_the_table_are_those_that_python_calls() -> None:
    text = "".join(path.read_text() for path in (ROOT / "python" / "safepoint").glob("*.py"))
    called = set(re.findall(r'call(?:_on_files)?\(\s*"([a-z_]+)"', text))
    assert called <= set(_native.verb_names())


@pytest.mark.skipif("panic" not in _native.verb_names(), reason="only debug builds panic on purpose")
def test_a_panic_is_an_internal_error_and_the_handle_still_works(ws: safepoint.Workspace) -> None:
    with pytest.raises(safepoint.InternalError, match="on purpose"):
        ws._home.call("panic")
    assert ws.create().files_count == 1
