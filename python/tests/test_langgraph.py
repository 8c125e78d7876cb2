"""Graphs with files: the conversation and the files go back together."""

from __future__ import annotations

import operator
import os
import re
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph.graph", reason="langgraph is not installed")

from langgraph.graph import END, START, StateGraph  # noqa: E402
from langgraph.types import Command, interrupt  # noqa: E402

import safepoint  # noqa: E402
from conftest import tree_of  # noqa: E402
from safepoint.langgraph import SafepointSaver, attach  # noqa: E402


class State(TypedDict):
    done: Annotated[list[str], operator.add]


def writing(shop: Path, name: str) -> Any:
    def node(state: State) -> dict[str, list[str]]:
        with open(shop / "log.txt", "a") as log:
            log.write(f"{name} after {len(state['done'])}\n")
        (shop / f"{name}.txt").write_text(name)
        return {"done": [name]}

    return node


def graph_of(shop: Path, saver: SafepointSaver, names: tuple[str, ...] = ("a", "b", "c"), **how: Any) -> Any:
    builder = StateGraph(State)
    for name in names:
        builder.add_node(name, writing(shop, name))
    for above, below in zip((START, *names), (*names, END), strict=True):
        builder.add_edge(above, below)
    return attach(builder.compile(checkpointer=saver), **how)


CONFIG: Any = {"configurable": {"thread_id": "t1"}}


def test_invoking_an_old_state_rolls_back_files_and_conversation(ws: safepoint.Workspace, shop: Path) -> None:
    graph = graph_of(shop, SafepointSaver(ws))
    result = graph.invoke({"done": []}, CONFIG)
    assert result == {"done": ["a", "b", "c"]}
    after = tree_of(shop)
    old = next(state for state in graph.get_state_history(CONFIG) if state.next == ("b",))
    assert graph.invoke(None, old.config) == result
    # Node b and c ran again, on the files that they had the first time.
    assert tree_of(shop) == after


def test_reading_changes_nothing(ws: safepoint.Workspace, shop: Path) -> None:
    graph = graph_of(shop, SafepointSaver(ws))
    graph.invoke({"done": []}, CONFIG)
    before = tree_of(shop)
    for state in graph.get_state_history(CONFIG):
        graph.get_state(state.config)
    assert tree_of(shop) == before


def test_update_state_of_an_old_state_takes_the_files_along(ws: safepoint.Workspace, shop: Path) -> None:
    graph = graph_of(shop, SafepointSaver(ws))
    graph.invoke({"done": []}, CONFIG)
    old = next(state for state in graph.get_state_history(CONFIG) if state.next == ("b",))
    forked = graph.update_state(old.config, {"done": ["edited"]})
    assert (shop / "a.txt").exists() and not (shop / "b.txt").exists()
    assert graph.get_state(CONFIG).values["done"] == ["a", "edited"]
    graph.invoke(None, forked)
    assert (shop / "log.txt").read_text() == "a after 0\nb after 2\nc after 3\n"


def test_undo_brings_both_back(ws: safepoint.Workspace, shop: Path) -> None:
    graph = graph_of(shop, SafepointSaver(ws))
    graph.invoke({"done": []}, CONFIG)
    after = tree_of(shop)
    old = next(state for state in graph.get_state_history(CONFIG) if state.next == ("b",))
    graph.update_state(old.config, {"done": ["edited"]})
    ws.undo(replace_changes=True)
    assert tree_of(shop) == after and graph.get_state(CONFIG).values["done"] == ["a", "b", "c"]


def test_edits_of_people_during_an_interrupt_stay(ws: safepoint.Workspace, shop: Path) -> None:
    def ask(state: State) -> dict[str, list[str]]:
        answer = interrupt("go on?")
        return {"done": [str(answer) + (shop / "notes.txt").read_text()]}

    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_edge(START, "ask")
    graph: Any = attach(builder.compile(checkpointer=SafepointSaver(ws)))
    assert "__interrupt__" in graph.invoke({"done": []}, CONFIG)
    (shop / "notes.txt").write_text("edited")
    assert graph.invoke(Command(resume="yes "), CONFIG)["done"] == ["yes edited"]


def test_what_cannot_be_right_is_refused(ws: safepoint.Workspace, shop: Path) -> None:
    saver = SafepointSaver(ws)
    builder = StateGraph(State)
    builder.add_node("a", writing(shop, "a"))
    builder.add_edge(START, "a")
    plain = builder.compile(checkpointer=saver)
    with pytest.raises(safepoint.UsageError, match="attached"):
        plain.invoke({"done": []}, CONFIG)
    graph: Any = attach(plain)
    assert isinstance(graph, type(plain))
    with pytest.raises(safepoint.UsageError, match="durability"):
        graph.invoke({"done": []}, CONFIG, durability="async")
    with pytest.raises(safepoint.UsageError):
        attach(builder.compile())
    for thread in ("a\0b", "x" * 513, ""):
        with pytest.raises(safepoint.UsageError):
            saver.get_tuple({"configurable": {"thread_id": thread}})
    with pytest.raises(TypeError, match="channel"):
        graph.invoke({"done": [object()]}, CONFIG)


def test_a_second_run_in_the_folder_is_busy(ws: safepoint.Workspace, shop: Path) -> None:
    graph = graph_of(shop, SafepointSaver(ws))
    running = graph.stream({"done": []}, CONFIG)
    next(running)
    other = graph_of(shop, SafepointSaver(safepoint.Workspace.open(shop, lock_wait=0.1)))
    with pytest.raises(safepoint.Busy, match="another run"):
        other.invoke({"done": []}, {"configurable": {"thread_id": "t2"}})
    running.close()
    graph.invoke({"done": []}, {"configurable": {"thread_id": "t2"}})


def test_on_error_says_what_becomes_of_the_files(ws: safepoint.Workspace, shop: Path) -> None:
    def fails(state: State) -> dict[str, list[str]]:
        (shop / "half.txt").write_text("half")
        raise ValueError("no")

    builder = StateGraph(State)
    builder.add_node("fails", fails)
    builder.add_edge(START, "fails")
    compiled = builder.compile(checkpointer=SafepointSaver(ws))
    with pytest.raises(ValueError, match="no"):
        attach(compiled).invoke({"done": []}, CONFIG)
    assert (shop / "half.txt").exists()
    (shop / "half.txt").unlink()
    with pytest.raises(ValueError, match="no"):
        attach(compiled, on_error="rollback").invoke({"done": []}, CONFIG)
    assert not (shop / "half.txt").exists()


async def test_the_same_for_asyncio(ws: safepoint.Workspace, shop: Path) -> None:
    graph = graph_of(shop, SafepointSaver(ws))
    assert await graph.ainvoke({"done": []}, CONFIG) == {"done": ["a", "b", "c"]}
    after = tree_of(shop)
    old = [state async for state in graph.aget_state_history(CONFIG) if state.next == ("c",)][0]
    await graph.aupdate_state(old.config, {"done": ["edited"]})
    assert not (shop / "c.txt").exists()
    await graph.ainvoke(None, old.config)
    assert tree_of(shop) == after


def test_savers_without_files_need_no_attach(tmp_path: Path) -> None:
    saver = SafepointSaver(home=tmp_path / "threads")
    builder = StateGraph(State)
    builder.add_node("a", lambda state: {"done": ["a"]})
    builder.add_edge(START, "a")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"done": []}, CONFIG)
    for number, state in enumerate(saver.list(CONFIG)):
        # Saving while iterating does not hang.
        saver.put_writes(state.config, [("done", [str(number)])], "task")
    saver.prune(["t1"])
    assert len(list(saver.list(CONFIG))) == 1
    saver.copy_thread("t1", "t2")
    saver.delete_thread("t1")
    assert saver.get_tuple(CONFIG) is None
    assert graph.get_state({"configurable": {"thread_id": "t2"}}).values["done"][0] == "a"


def test_a_saver_that_lives_long_deletes_expired_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saver = SafepointSaver(home=tmp_path / "threads", ttl=timedelta(seconds=1))
    builder = StateGraph(State)
    builder.add_node("a", lambda state: {"done": ["a"]})
    builder.add_edge(START, "a")
    graph = builder.compile(checkpointer=saver)
    graph.invoke({"done": []}, CONFIG)
    time.sleep(1.2)
    other: Any = {"configurable": {"thread_id": "t2"}}
    # Not at each save.
    graph.invoke({"done": []}, other)
    assert saver.get_tuple(CONFIG) is not None
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    graph.invoke({"done": []}, other)
    assert saver.get_tuple(CONFIG) is None and saver.get_tuple(other) is not None


def test_runs_killed_anywhere_and_resumed_are_as_if_undisturbed() -> None:
    """Six writing nodes, two of them parallel. SAFEPOINT_KILLS is the number of runs, SAFEPOINT_SEED that of the random moments."""
    runs, seed = os.environ.get("SAFEPOINT_KILLS", "12"), os.environ.get("SAFEPOINT_SEED", "1")
    # A server of its own, because it forks: this process has threads.
    script = Path(__file__).resolve().parents[1] / "suites" / "kill_graphs.py"
    done = subprocess.run(
        [sys.executable, str(script), "--runs", runs, "--seed", seed], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(rf"{runs} runs, (\d+) kills, 0 differ", done.stdout)
    assert found is not None and int(found[1]) > 0, done.stdout
    print(done.stdout)


def test_the_kill_loop_notices_files_that_are_not_those_of_the_state() -> None:
    """The same loop with LangGraph's own saver, which leaves the files of the killed work."""
    pytest.importorskip("langgraph.checkpoint.sqlite", reason="langgraph-checkpoint-sqlite is not installed")
    script = Path(__file__).resolve().parents[1] / "suites" / "kill_graphs.py"
    done = subprocess.run(
        [sys.executable, str(script), "--runs", "40", "--saver", "sqlite"], capture_output=True, text=True, check=False
    )
    found = re.search(r"40 runs, \d+ kills, (\d+) differ", done.stdout)
    assert found is not None and int(found[1]) > 0, done.stdout + done.stderr
