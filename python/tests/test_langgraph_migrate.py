"""Threads of other savers: copies of those of SqliteSaver, and the refusal of those of JavaScript."""

from __future__ import annotations

import json
import operator
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph.graph", reason="langgraph is not installed")

from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402
from langgraph.graph import END, START, StateGraph  # noqa: E402
from langgraph.types import Command, interrupt  # noqa: E402

import safepoint  # noqa: E402
from safepoint.langgraph import Migrated, SafepointSaver, migrate  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


class State(TypedDict):
    done: Annotated[list[str], operator.add]


def graph_of(saver: Any) -> Any:
    """A node, a subgraph with a state of its own, two parallel nodes of which one asks."""

    def named(name: str) -> Any:
        return lambda state: {"done": [name]}

    def asks(state: State) -> dict[str, list[str]]:
        return {"done": [f"answer {interrupt('go on?')}"]}

    inner = StateGraph(State)
    inner.add_node("inner", named("inner"))
    inner.add_edge(START, "inner")
    builder = StateGraph(State)
    builder.add_node("first", named("first"))
    builder.add_node("sub", inner.compile(checkpointer=True))
    builder.add_node("beside", named("beside"))
    builder.add_node("asks", asks)
    builder.add_edge(START, "first")
    builder.add_edge("first", "sub")
    builder.add_edge("sub", "beside")
    builder.add_edge("sub", "asks")
    builder.add_edge(["beside", "asks"], END)
    return builder.compile(checkpointer=saver)


def content_of(saver: Any) -> list[Any]:
    found = []
    # SqliteSaver hangs if it is used while it lists.
    for one in list(saver.list(None)):
        whole = saver.get_tuple(one.config)
        writes = sorted((task, channel, repr(value)) for task, channel, value in whole.pending_writes)
        found.append((whole.config, whole.parent_config, whole.checkpoint, dict(whole.metadata), writes))
    return sorted(found, key=lambda one: repr(one[0]))


def fill(saver: Any) -> None:
    graph = graph_of(saver)
    for thread in ("t1", "t2"):
        config: Any = {"configurable": {"thread_id": thread}}
        assert "__interrupt__" in graph.invoke({"done": []}, config)
    graph.invoke(Command(resume="yes"), {"configurable": {"thread_id": "t2"}})
    # A fork.
    old = next(one for one in graph.get_state_history({"configurable": {"thread_id": "t2"}}) if one.next == ("sub",))
    graph.update_state(old.config, {"done": ["edited"]})
    # Several writes of one task, of the same channel, too.
    (head,) = [one for one in saver.list({"configurable": {"thread_id": "t1", "checkpoint_ns": ""}}, limit=1)]
    saver.put_writes(head.config, [("done", ["1"]), ("other", 2), ("done", ["3"])], "task-x")


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_everything_of_another_saver_is_there_afterwards(kind: str, tmp_path: Path) -> None:
    target = SafepointSaver(home=tmp_path / "moved")
    if kind == "memory":
        source: Any = InMemorySaver()
        fill(source)
        done, before = migrate(source, target), content_of(source)
    else:
        sqlite = pytest.importorskip(
            "langgraph.checkpoint.sqlite", reason="langgraph-checkpoint-sqlite is not installed"
        )
        path = str(tmp_path / "before.db")
        with sqlite.SqliteSaver.from_conn_string(path) as source:
            fill(source)
        with sqlite.SqliteSaver.from_conn_string(path) as source:
            done, before = migrate(source, target), content_of(source)
    assert content_of(target) == before
    writes = sum(len(one[4]) for one in before)
    assert done == Migrated(threads=2, states=len(before), writes=writes) and writes > 10
    # The order of a task's writes is kept.
    config: Any = {"configurable": {"thread_id": "t1"}}
    moved = [(channel, value) for task, channel, value in target.get_tuple(config).pending_writes if task == "task-x"]
    assert moved == [("done", ["1"]), ("other", 2), ("done", ["3"])]
    # Interrupted work goes on, from the fork and from the question.
    graph = graph_of(target)
    assert graph.invoke(Command(resume="no"), config)["done"][-1] in ("answer no", "beside")
    assert "edited" in graph.get_state({"configurable": {"thread_id": "t2"}}).values["done"]


def test_what_would_be_overwritten_is_refused(tmp_path: Path, ws: safepoint.Workspace) -> None:
    source, target = InMemorySaver(), SafepointSaver(home=tmp_path / "moved")
    fill(source)
    migrate(source, target)
    with pytest.raises(safepoint.UsageError, match="exists in the target already"):
        migrate(source, target)
    for thread in ("t1", "t2"):
        target.delete_thread(thread)
    assert migrate(source, target).threads == 2
    with pytest.raises(safepoint.UsageError, match="have no files"):
        migrate(source, SafepointSaver(ws))


def test_threads_of_sdks_are_no_states_of_graphs(tmp_path: Path) -> None:
    from safepoint._batches import Chain, Owner

    owner = Owner.of(None, tmp_path / "home")
    Chain(owner, "openai/t1").append([{"role": "user"}], {}, None)
    saver = SafepointSaver(home=tmp_path / "home")
    assert list(saver.list(None)) == []
    with pytest.raises(safepoint.UsageError, match="another serializer"):
        saver.get_tuple({"configurable": {"thread_id": "openai/t1"}})


JS = """
import { SafepointSaver } from "./langgraph.js";
import { emptyCheckpoint } from "@langchain/langgraph-checkpoint";
const saver = await SafepointSaver.open({ home: process.argv[2] });
const of = (thread_id) => ({ configurable: { thread_id, checkpoint_ns: "" } });
const put = (thread) => saver.put(of(thread), { ...emptyCheckpoint(), id: "zzz" }, {}, {});
const tell = async (work) => {
  try {
    await work();
    return "accepted";
  } catch (error) {
    return error.message + (error.causes ?? []).join();
  }
};
const listed = [];
for await (const one of saver.list({})) listed.push(one.config.configurable.thread_id);
const told = [await tell(() => put("python")), await tell(() => saver.getTuple(of("python"))),
  await tell(() => saver.putWrites({ configurable: { ...of("python").configurable, checkpoint_id: "1" } }, [["a", 1]], "t")),
  await tell(() => put("javascript")), listed];
console.log(JSON.stringify(told));
await saver.close();
"""


def test_python_and_javascript_refuse_each_others_threads(tmp_path: Path) -> None:
    modules = ROOT / "target" / "node" / "node_modules"
    if shutil.which("node") is None or not modules.is_dir():
        pytest.skip("node and the packages of `.ci/node --install` are not there")
    home, folder = tmp_path / "home", tmp_path / "js"
    saver = SafepointSaver(home=home)
    config: Any = {"configurable": {"thread_id": "python"}}
    graph_of(saver).invoke({"done": []}, config)
    folder.mkdir()
    for source in [*(ROOT / "node").glob("*.js"), ROOT / "node" / "package.json"]:
        shutil.copy(source, folder)
    (folder / "node_modules").symlink_to(modules)
    (folder / "trial.js").write_text(JS)
    program = os.environ.get("SAFEPOINT_BIN") or str(Path(sys.executable).parent / "safepoint")
    done = subprocess.run(
        ["node", "trial.js", str(home)], cwd=folder, env={**os.environ, "SAFEPOINT_BIN": program},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    put, read, wrote, own, listed = json.loads(done.stdout)
    assert "serializer" in put and "serializer" in wrote and "another serializer" in read
    assert own == "accepted" and listed == []
    other: Any = {"configurable": {"thread_id": "javascript"}}
    with pytest.raises(safepoint.UsageError, match="another serializer"):
        saver.get_tuple(other)
    with pytest.raises(safepoint.UsageError, match="serializer"):
        saver.put_writes({"configurable": {"thread_id": "javascript", "checkpoint_ns": "", "checkpoint_id": "zzz"}}, [("a", 1)], "t")
    assert {one.config["configurable"]["thread_id"] for one in saver.list(None)} == {"python"}
