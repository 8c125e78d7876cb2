"""Runs of a graph whose nodes write files, killed -9 at random moments and resumed. Files and result must be those of an undisturbed run.

    python python/suites/kill_graphs.py --runs 1000 [--seed 1] [--saver safepoint|sqlite] [--progress FILE]

Six nodes, two of them parallel. Each run is killed twice, then resumed to its end. A server imports everything once and forks each run, so
that a run takes the time of its work. With ``sqlite`` LangGraph's SqliteSaver saves the states, and nothing saves the files.
"""

from __future__ import annotations

import argparse
import operator
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

import safepoint
from safepoint.langgraph import SafepointSaver, attach

_SECONDS_MAX = 120.0
_DONE = ["a", "b", "c", "d", "p1", "p2"]


class State(TypedDict):
    """State of the graph: the nodes that are done."""

    done: Annotated[list[str], operator.add]


@dataclass
class Outcome:
    """Counts of a loop."""

    runs: int = 0
    kills: int = 0
    differ: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.runs} runs, {self.kills} kills, {self.differ} differ, {self.seconds:.0f} s"


def _node(shop: Path, name: str) -> Any:
    log = f"{name}.log" if name.startswith("p") else "log.txt"

    def node(state: State) -> dict[str, list[str]]:
        for part in range(3):
            with open(shop / log, "a") as file:
                file.write(f"{name} {part} after {len(state['done'])}\n")
            time.sleep(0.003)
        (shop / f"{name}.txt").write_text(str(state["done"]))
        return {"done": [name]}

    return node


def _builder(shop: Path) -> Any:
    builder = StateGraph(State)
    for name in ("a", "b", "p1", "p2", "c", "d"):
        builder.add_node(name, _node(shop, name))
    for above, below in ((START, "a"), ("a", "b"), ("b", "p1"), ("b", "p2"), (["p1", "p2"], "c"), ("c", "d"), ("d", END)):
        builder.add_edge(above, below)
    return builder


def _invoke(graph: Any, **options: Any) -> list[str]:
    config: Any = {"configurable": {"thread_id": "t1"}}
    has = graph.get_state(config).created_at is not None
    return sorted(graph.invoke(None if has else {"done": []}, config, **options)["done"])


def _with_safepoint(folder: Path) -> list[str]:
    workspace = safepoint.Workspace.open(folder / "shop", home=folder / "home")
    return _invoke(attach(_builder(folder / "shop").compile(checkpointer=SafepointSaver(workspace))))


def _with_sqlite(folder: Path) -> list[str]:
    # Imported by the server before.
    from langgraph.checkpoint.sqlite import SqliteSaver

    with SqliteSaver.from_conn_string(str(folder / "threads.db")) as saver:
        return _invoke(_builder(folder / "shop").compile(checkpointer=saver), durability="sync")


SAVERS: dict[str, Callable[[Path], list[str]]] = {"safepoint": _with_safepoint, "sqlite": _with_sqlite}


def _forked(act: Callable[[Path], list[str]], folder: Path, kill_after: float | None) -> tuple[bool, str]:
    """Runs in a child. Returns true if it was killed, and the result as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read)
            os.write(write, str(act(folder)).encode())
            os._exit(0)
        except BaseException:
            os.write(write, traceback.format_exc().encode()[-4000:])
            os._exit(1)
    os.close(write)
    ready, _, _ = select.select([read], [], [], _SECONDS_MAX if kill_after is None else kill_after)
    killed = not ready
    if killed:
        os.kill(child, signal.SIGKILL)
    with os.fdopen(read, "rb") as told:
        text = told.read().decode(errors="replace")
    os.waitpid(child, 0)
    return killed, text


def tree_of(folder: Path) -> dict[str, bytes]:
    """Returns the files of a folder, without what Safepoint keeps there."""
    found = {}
    for above, _, names in os.walk(folder):
        for name in names:
            path = Path(above) / name
            if ".safepoint" not in path.parts:
                found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def _warm_up(saver: str, folder: Path) -> None:
    """Imports what a first run imports. Opens no home: those of a parent are closed in its children."""
    if saver == "sqlite":
        import langgraph.checkpoint.sqlite  # noqa: F401
    _invoke(_builder(folder / "shop").compile(checkpointer=InMemorySaver()))


def loop(runs: int, seed: int, saver: str = "safepoint", progress: Path | None = None) -> Outcome:
    """Runs the loop. Raises if a run that was resumed fails."""
    act, chance, outcome, began = SAVERS[saver], random.Random(seed), Outcome(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="safepoint-kills-") as place:

        def fresh(name: str) -> Path:
            folder = Path(place) / name
            (folder / "shop").mkdir(parents=True)
            return folder

        _warm_up(saver, fresh("warm"))
        times = []
        for number in range(3):
            calm = fresh(f"calm{number}")
            start = time.monotonic()
            _, text = _forked(act, calm, None)
            times.append(time.monotonic() - start)
            assert text == str(_DONE), text
        expected, seconds = tree_of(calm / "shop"), sorted(times)[1]
        for number in range(runs):
            folder = fresh(str(number))
            for _ in range(2):
                killed, text = _forked(act, folder, chance.random() * seconds)
                outcome.kills += killed
                if not killed and text != str(_DONE):
                    raise AssertionError(f"run {number} failed before it was killed: {text}")
            _, text = _forked(act, folder, None)
            outcome.runs += 1
            outcome.differ += text != str(_DONE) or tree_of(folder / "shop") != expected
            if saver == "safepoint" and text != str(_DONE):
                raise AssertionError(f"run {number} cannot be resumed: {text}")
            shutil.rmtree(folder)
            outcome.seconds = time.monotonic() - began
            if progress is not None and number % 20 == 19:
                progress.write_text(f"{outcome}\n")
    return outcome


def main() -> int:
    """Runs the program. Fails if a run with Safepoint differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--saver", choices=SAVERS, default="safepoint")
    parser.add_argument("--progress", type=Path)
    asked = parser.parse_args()
    outcome = loop(asked.runs, asked.seed, asked.saver, asked.progress)
    print(f"graphs with {asked.saver}, seed {asked.seed}: {outcome}")
    if asked.progress is not None:
        asked.progress.write_text(f"{outcome}\n")
    return 1 if asked.saver == "safepoint" and outcome.differ else 0


if __name__ == "__main__":
    sys.exit(main())
