"""Magics, in a real kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient", reason="nbclient and ipykernel are not installed")
pytest.importorskip("ipykernel", reason="nbclient and ipykernel are not installed")

import nbformat  # noqa: E402
from nbclient import NotebookClient  # noqa: E402
from nbclient.exceptions import CellExecutionError, DeadKernelError  # noqa: E402

import safepoint  # noqa: E402

Run = Callable[..., list[str]]


@pytest.fixture
def run(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Runs cells in a kernel whose folder is the shop. Returns what each printed."""
    monkeypatch.setenv("IPYTHONDIR", str(shop.parent / "ipython"))

    def cells(*sources: str) -> list[str]:
        made: Any = nbformat.v4
        book = made.new_notebook(cells=[made.new_code_cell(source) for source in ("%load_ext safepoint", *sources)])
        client = NotebookClient(book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(shop)}})
        client.execute()
        return ["".join(out.get("text", "") for out in cell.outputs) for cell in book.cells[1:]]

    yield cells


def test_files_go_back_and_variables_are_named(run: Run, shop: Path) -> None:
    printed = run(
        "before = 1",
        "made = %safepoint tests pass",
        "after = 2\nopen('notes.txt','w').write('bad')",
        "%rollback --dry-run",
        "%rollback",
        "print(open('notes.txt').read(), before, after)",
    )
    assert "checkpoint" in printed[1]
    assert "1 files would be restored" in printed[3]
    assert "1 files were restored" in printed[4] and "after" in printed[4] and "before" not in printed[4].split(":")[1]
    assert printed[5] == "good 1 2\n" and (shop / "notes.txt").read_text() == "good"
    assert safepoint.Workspace.open(shop).show().label == "tests pass"


def test_a_cell_that_fails_leaves_no_file(run: Run, shop: Path) -> None:
    with pytest.raises(CellExecutionError, match="was rolled back"):
        run("%%transaction edit\nopen('notes.txt','w').write('bad')\n1/0")
    assert (shop / "notes.txt").read_text() == "good"
    printed = run("%%transaction edit\nopen('new.txt','w').write('x')\nprint('done')")
    assert "done" in printed[0] and (shop / "new.txt").exists()
    assert safepoint.Workspace.open(shop).unfinished() == []


def test_a_kernel_killed_in_a_transaction_leaves_it_named(run: Run, shop: Path) -> None:
    with pytest.raises(DeadKernelError):
        run("%%transaction edit\nimport os\nopen('notes.txt','w').write('bad')\nos.kill(os.getpid(), 9)")
    ws = safepoint.Workspace.open(shop)
    (left,) = ws.unfinished()
    left.rollback()
    assert left.name == "edit" and (shop / "notes.txt").read_text() == "good"


def test_the_running_notebook_stays_unless_asked_for(run: Run, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", str(shop / "book.ipynb"))
    (shop / "book.ipynb").write_text("{}")
    edits = "open('notes.txt','w').write('bad'); open('book.ipynb','w').write('[]')"
    printed = run("%safepoint", edits, "%rollback")
    assert "book.ipynb is open" in printed[2]
    assert (shop / "notes.txt").read_text() == "good" and (shop / "book.ipynb").read_text() == "[]"
    run("%rollback --notebook")
    assert (shop / "book.ipynb").read_text() == "{}"


def test_the_running_notebook_stays_in_a_transaction(run: Run, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", str(shop / "book.ipynb"))
    (shop / "book.ipynb").write_text("{}")
    with pytest.raises(CellExecutionError, match="was rolled back"):
        run("%%transaction edit\nopen('notes.txt','w').write('bad'); open('book.ipynb','w').write('[]')\n1/0")
    assert (shop / "notes.txt").read_text() == "good" and (shop / "book.ipynb").read_text() == "[]"


def test_other_parts_go_back_although_the_notebook_stays(
    run: Run, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from safepoint._batches import Chain, Owner

    monkeypatch.setenv("JPY_SESSION_NAME", str(shop / "book.ipynb"))
    (shop / "book.ipynb").write_text("{}")
    chain = Chain(Owner.of(safepoint.Workspace.open(shop), None), "chat")
    chain.append([{"n": 1}], {}, None)
    run("%safepoint")
    chain.append([{"n": 2}], {}, chain.tip())
    (shop / "notes.txt").write_text("bad")
    (shop / "book.ipynb").write_text("[]")
    run("%rollback")
    assert chain.items() == [{"n": 1}] and (shop / "notes.txt").read_text() == "good"
    assert (shop / "book.ipynb").read_text() == "[]"


def test_wrong_words_are_one_line(run: Run) -> None:
    with pytest.raises(CellExecutionError, match="usage: %rollback"):
        run("%rollback a b")
    with pytest.raises(CellExecutionError):
        run("%rollback nothing-of-this-name")
