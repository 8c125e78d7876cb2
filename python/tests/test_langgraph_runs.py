"""Runs of attached graphs: failures between nodes, cancellation, abandoned streams, inherited configs, records."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.graph", reason="langgraph is not installed")

from langchain_core.runnables import RunnableLambda  # noqa: E402
from langgraph.errors import InvalidUpdateError  # noqa: E402
from langgraph.graph import END, START, StateGraph  # noqa: E402
from langgraph.types import StateUpdate  # noqa: E402

import safepoint  # noqa: E402
from conftest import tree_of  # noqa: E402
from safepoint import _langgraph_run  # noqa: E402
from safepoint.langgraph import SafepointSaver, attach  # noqa: E402
from test_langgraph import CONFIG, State, graph_of, writing  # noqa: E402


def failing_after(shop: Path, broken: list[bool], *beside: str) -> Any:
    """Node a, then a node that fails while ``broken`` says so, beside others that finish."""

    def fails(state: State) -> dict[str, list[str]]:
        with open(shop / "half.txt", "a") as half:
            half.write("half")
        if broken:
            # The nodes beside it finish first.
            while not all((shop / f"{name}.txt").exists() for name in beside):
                time.sleep(0.005)
            time.sleep(0.2)
            raise ValueError("no")
        return {"done": [f"fails after a: {(shop / 'a.txt').exists()}"]}

    builder = StateGraph(State)
    builder.add_node("a", writing(shop, "a"))
    builder.add_node("fails", fails)
    builder.add_edge(START, "a")
    builder.add_edge("a", "fails")
    for name in beside:
        builder.add_node(name, writing(shop, name))
        builder.add_edge("a", name)
    return builder.compile(checkpointer=SafepointSaver(safepoint.Workspace.open(shop)))


def test_on_error_goes_back_to_the_last_state_and_not_to_the_start(shop: Path) -> None:
    broken = [True]
    graph = attach(failing_after(shop, broken), on_error="rollback")
    with pytest.raises(ValueError, match="no"):
        graph.invoke({"done": []}, CONFIG)
    # The head is the state after node a, so its file stays and that of the failed node goes.
    assert graph.get_state(CONFIG).values["done"] == ["a"] and graph.get_state(CONFIG).next == ("fails",)
    assert (shop / "a.txt").exists() and not (shop / "half.txt").exists()
    broken.clear()
    assert graph.invoke(None, CONFIG)["done"] == ["a", "fails after a: True"]
    assert (shop / "half.txt").read_text() == "half"


def test_nodes_that_finished_beside_a_failed_one_run_again(shop: Path) -> None:
    """Their results are on record, but their files were rolled back."""
    broken = [True]
    graph = attach(failing_after(shop, broken, "beside"), on_error="rollback")
    with pytest.raises(ValueError, match="no"):
        graph.invoke({"done": []}, CONFIG)
    assert not (shop / "beside.txt").exists()
    broken.clear()
    graph.invoke(None, CONFIG)
    assert (shop / "beside.txt").exists() and (shop / "half.txt").read_text() == "half"


@pytest.mark.parametrize("milliseconds", [0, 1, 5, 20, 60])
async def test_a_run_that_is_cancelled_at_its_begin_leaves_no_lock(
    milliseconds: int, ws: safepoint.Workspace, shop: Path
) -> None:
    graph = graph_of(shop, SafepointSaver(ws))
    for act in (lambda: graph.ainvoke({"done": []}, CONFIG), lambda: graph.aupdate_state(CONFIG, {"done": ["x"]}, "a")):
        task = asyncio.create_task(act())
        await asyncio.sleep(milliseconds / 1000)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
    assert (await graph.ainvoke({"done": []}, {"configurable": {"thread_id": "t2"}}))["done"] == ["a", "b", "c"]


async def test_a_timeout_at_the_begin_is_a_timeout(ws: safepoint.Workspace, shop: Path) -> None:
    """Another run holds the folder: the wait for it ends at once, and the cancellation is what is raised."""
    graph = graph_of(shop, SafepointSaver(ws))
    running = graph.stream({"done": []}, CONFIG)
    next(running)
    began = time.monotonic()
    with pytest.raises((TimeoutError, asyncio.TimeoutError)) as caught:
        await asyncio.wait_for(graph.ainvoke({"done": []}, {"configurable": {"thread_id": "t2"}}), 0.2)
    assert not isinstance(caught.value, safepoint.Busy) and time.monotonic() - began < 8
    running.close()


async def test_a_stream_that_was_left_does_not_block_the_next_run(ws: safepoint.Workspace, shop: Path) -> None:
    graph = graph_of(shop, SafepointSaver(ws))
    async for _ in graph.astream({"done": []}, CONFIG):
        break
    other: Any = {"configurable": {"thread_id": "t2"}}
    assert (await graph.ainvoke({"done": []}, other))["done"] == ["a", "b", "c"]


async def test_many_runs_at_once_take_turns(ws: safepoint.Workspace, shop: Path) -> None:
    """More runs wait than there are threads; the end of each is not behind the waiting ones."""
    graph = graph_of(shop, SafepointSaver(safepoint.Workspace.open(shop, lock_wait=60)), ("a",))
    configs: list[Any] = [{"configurable": {"thread_id": f"t{number}"}} for number in range(7)]
    done = await asyncio.gather(*(graph.ainvoke({"done": []}, config) for config in configs))
    assert [one["done"] for one in done] == [["a"]] * 7


def test_a_save_that_has_begun_ends_before_its_run(ws: safepoint.Workspace, shop: Path) -> None:
    saver = SafepointSaver(ws)
    graph = graph_of(shop, saver)
    running = graph.stream({"done": []}, CONFIG)
    next(running)
    run = saver._runs["t1"]
    inside, leave = threading.Event(), threading.Event()

    def save() -> None:
        with run.saving():
            inside.set()
            leave.wait(30)

    saving = threading.Thread(target=save)
    saving.start()
    inside.wait(30)
    ending = threading.Thread(target=lambda: run.end(None))
    ending.start()
    time.sleep(0.2)
    # Another process would get the lock only behind the save.
    with pytest.raises(safepoint.Busy):
        graph_of(shop, SafepointSaver(safepoint.Workspace.open(shop, lock_wait=0))).invoke({"done": []}, CONFIG)
    leave.set()
    saving.join()
    ending.join()
    with pytest.raises(safepoint.UsageError, match="ended"), run.saving():
        pass
    running.close()


async def test_a_rollback_at_the_end_of_a_run_does_not_stop_the_event_loop(shop: Path) -> None:
    for number in range(300):
        (shop / f"{number}.bin").write_bytes(os.urandom(20_000))

    async def fails(state: State) -> dict[str, list[str]]:
        for number in range(300):
            (shop / f"{number}.bin").unlink()
        raise ValueError("no")

    builder = StateGraph(State)
    builder.add_node("fails", fails)
    builder.add_edge(START, "fails")
    ws = safepoint.Workspace.open(shop)
    graph: Any = attach(builder.compile(checkpointer=SafepointSaver(ws)), on_error="rollback")
    before, threads = tree_of(shop), []
    saver = graph.checkpointer
    back = saver._call

    def seen(verb: str, **arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return back(verb, **arguments)

    saver._call = seen
    with pytest.raises(ValueError, match="no"):
        await graph.ainvoke({"done": []}, CONFIG)
    assert tree_of(shop) == before and threads and threading.main_thread() not in threads


def test_bound_and_inherited_configs_are_those_of_the_graph(ws: safepoint.Workspace, shop: Path) -> None:
    graph = graph_of(shop, SafepointSaver(ws))
    bound = graph.with_config(CONFIG)
    assert bound.invoke({"done": []})["done"] == ["a", "b", "c"]
    other: Any = {"configurable": {"thread_id": "t2"}}
    around = RunnableLambda(lambda _, config: graph.invoke({"done": []}))
    assert around.invoke({}, other)["done"] == ["a", "b", "c"]
    assert graph.get_state(other).values["done"] == ["a", "b", "c"]
    old = next(state for state in graph.get_state_history(CONFIG) if state.next == ("c",))
    bound.update_state(old.config, {"done": ["edited"]})
    assert not (shop / "c.txt").exists()


def test_an_attached_graph_as_a_node_works_in_the_run_around_it(ws: safepoint.Workspace, shop: Path) -> None:
    saver = SafepointSaver(ws)
    builder = StateGraph(State)
    builder.add_node("inner", graph_of(shop, saver, ("i1", "i2")))
    builder.add_node("last", writing(shop, "last"))
    builder.add_edge(START, "inner")
    builder.add_edge("inner", "last")
    builder.add_edge("last", END)
    graph: Any = attach(builder.compile(checkpointer=saver))
    assert graph.invoke({"done": []}, CONFIG)["done"] == ["i1", "i2", "last"]


def test_the_record_of_a_run_survives_a_short_write(
    ws: safepoint.Workspace, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a write of the kernel takes, the record is whole, and its name is flushed, too."""
    flushed, real_write, real_sync = [], os.write, os.fsync
    monkeypatch.setattr(os, "write", lambda descriptor, content: real_write(descriptor, content[:7]))

    def sync(descriptor: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real_sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    graph = graph_of(shop, SafepointSaver(ws))
    running = graph.stream({"done": []}, CONFIG)
    next(running)
    record = Path(ws.home) / "runs" / f"{ws.id}.json"
    assert '"thread": "t1"' in record.read_text() and str(record.parent) in flushed
    running.close()


def test_parallel_nodes_that_redo_work_save_the_record_one_after_the_other(
    ws: safepoint.Workspace, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(shop, SafepointSaver(ws))
    running = graph.stream({"done": []}, CONFIG)
    next(running)
    run = graph.checkpointer._runs["t1"]
    run._folder.stale = {"t1": {"\nstate": [f"task{number}" for number in range(4)]}}
    real, failures = os.rename, []

    def slow(*given: Any) -> None:
        time.sleep(0.05)
        real(*given)

    monkeypatch.setattr(os, "rename", slow)

    def redo(number: int) -> None:
        try:
            run.wrote("", "state", f"task{number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=redo, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    record = json.loads((Path(ws.home) / "runs" / f"{ws.id}.json").read_text())
    assert record["stale"] == {"t1": {"\nstate": []}}
    running.close()


def stored(saver: SafepointSaver, config: Any) -> dict[str, Any]:
    """Returns a state as the home has it."""
    id = config["configurable"].get("checkpoint_id")
    found: dict[str, Any] = saver._call("thread_get", thread="t1", namespace="", id=id)
    return found


def before_b(graph: Any) -> Any:
    return next(state for state in graph.get_state_history(CONFIG) if state.next == ("b",))


def test_a_copy_finds_the_files_of_its_original_among_any_number_of_states(
    ws: safepoint.Workspace, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = SafepointSaver(ws)
    graph = graph_of(shop, saver)
    graph.invoke({"done": []}, CONFIG)
    original = stored(saver, before_b(graph).config)
    # The head is an old state: newer ones come before it in the list.
    saver._call("thread_rollback", thread="t1", namespace="", id=original["id"], options={})
    monkeypatch.setattr(_langgraph_run, "_PAGE", 1)
    copy = stored(saver, graph.update_state(CONFIG, None, as_node="__copy__"))
    assert copy["parent"] == original["parent"] and copy["files"] == original["files"]
    parent = saver._call("thread_get", thread="t1", namespace="", id=original["parent"])
    assert parent["files"] not in (None, copy["files"])


@pytest.mark.parametrize(
    "steps",
    [
        [[StateUpdate({"done": ["edited"]})]],
        [[StateUpdate({"done": ["edited"]}, "__input__")]],
        [[StateUpdate(None, "__copy__")]],
        [[StateUpdate(None, END)]],
        [[StateUpdate({"done": ["edited"]}, "a")], [StateUpdate({"done": ["again"]}, "b")]],
    ],
    ids=["values", "input", "copy", "end", "two steps"],
)
def test_an_update_of_an_old_state_is_one_rollback_with_the_new_state(
    steps: Any, ws: safepoint.Workspace, shop: Path
) -> None:
    saver = SafepointSaver(ws)
    graph = graph_of(shop, saver)
    graph.invoke({"done": []}, CONFIG)
    after, head = tree_of(shop), stored(saver, CONFIG)["id"]
    old, called, real = before_b(graph), [], saver._call

    def seen(verb: str, **arguments: Any) -> Any:
        if verb in ("thread_rollback", "thread_put"):
            called.append((verb, arguments.get("state", {}).get("id") or arguments.get("id")))
        return real(verb, **arguments)

    saver._call = seen
    graph.bulk_update_state(old.config, steps)
    # Files, new state and head by one commit; a kill before or after it leaves all or nothing.
    states = [id for _, id in called]
    assert [verb for verb, _ in called] == ["thread_rollback", *["thread_put"] * (len(steps) - 1)]
    first = stored(saver, {"configurable": {"checkpoint_id": states[0]}})
    assert first["files"] == stored(saver, old.config)["files"]
    assert stored(saver, CONFIG)["id"] == states[-1]
    assert (shop / "a.txt").exists() and not (shop / "b.txt").exists()
    ws.undo(replace_changes=True)
    assert tree_of(shop) == after and stored(saver, CONFIG)["id"] == head


def test_an_update_of_an_old_state_that_fails_changes_nothing(ws: safepoint.Workspace, shop: Path) -> None:
    saver = SafepointSaver(ws)
    graph = graph_of(shop, saver)
    graph.invoke({"done": []}, CONFIG)
    after, head = tree_of(shop), stored(saver, CONFIG)["id"]
    with pytest.raises(InvalidUpdateError):
        graph.update_state(before_b(graph).config, {"done": ["x"]}, as_node="missing")
    assert tree_of(shop) == after and stored(saver, CONFIG)["id"] == head


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b'{"format": 2, "active": null, "stale": {}}',
        b'{"format": 1, "active": {"thread": "t1"}, "stale": {}}',
        b'{"format": 1, "active": null, "stale": []}',
        b'{"format": 1, "active": null, "stale": {}}'.rjust(5 << 20),
    ],
    ids=["torn", "newer format", "incomplete", "other type", "too large"],
)
def test_a_record_that_cannot_be_read_is_kept_and_reported(
    content: bytes, ws: safepoint.Workspace, shop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saver = SafepointSaver(ws)
    graph = graph_of(shop, saver, ("a",))
    graph.invoke({"done": []}, CONFIG)
    record = Path(ws.home) / "runs" / f"{ws.id}.json"
    for name in (f"{record.name}.unreadable", f"{record.name}.unreadable-2"):
        record.write_bytes(content)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "safepoint"):
            graph.invoke({"done": []}, CONFIG)
        assert record.with_name(name).read_bytes() == content and name in caplog.text
        assert json.loads(record.read_text()) == {"format": 1, "active": None, "stale": {}}
    record.write_bytes(content)
    with pytest.raises(safepoint.Damaged, match="record of runs"):
        graph_of(shop, saver, ("a",), on_crash="raise").invoke({"done": []}, CONFIG)
    assert record.read_bytes() == content


def test_the_record_of_runs_does_not_grow_with_states_that_were_redone(ws: safepoint.Workspace, shop: Path) -> None:
    graph = graph_of(shop, SafepointSaver(ws), ("a",))
    graph.invoke({"done": []}, CONFIG)
    record = Path(ws.home) / "runs" / f"{ws.id}.json"
    stale = {"t1": {"\ndone": [], "\nleft": ["task"]}, "t2": {"\ndone": []}}
    record.write_text(json.dumps({"format": 1, "active": None, "stale": stale}))
    graph.invoke({"done": []}, CONFIG)
    assert json.loads(record.read_text())["stale"] == {"t1": {"\nleft": ["task"]}}
