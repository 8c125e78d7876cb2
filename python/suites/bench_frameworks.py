"""Savers and sessions beside those of others, in one run: times, disk use, ratios.

    python python/suites/bench_frameworks.py [--states 300] [--only savers,files,create,sessions,jupyter,node] [--json FILE]

Use a release build. What is missing is named and left out: a PostgreSQL server needs `postgres` and `initdb` on PATH or in
/usr/lib/postgresql, pygit2 and the SDKs come from PyPI. All data is below --place, which should be on a disk.
"""

from __future__ import annotations

import argparse
import asyncio
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.base import empty_checkpoint

import safepoint
from safepoint.langgraph import SafepointSaver

Row = dict[str, float]


def timed(act: Callable[[], Any]) -> float:
    """Returns the milliseconds of a call."""
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def disk(folder: Path) -> float:
    """Returns the megabytes of a folder's files on disk."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 1e6


# Savers


class Blocking:
    """An asyncio saver, called from one loop of its own, as a graph calls it."""

    def __init__(self, saver: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._saver, self._loop = saver, loop

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def put(self, *given: Any) -> Any:
        return self._run(self._saver.aput(*given))

    def put_writes(self, *given: Any) -> Any:
        return self._run(self._saver.aput_writes(*given))

    def get_tuple(self, config: Any) -> Any:
        return self._run(self._saver.aget_tuple(config))

    def list(self, config: Any, *, limit: int) -> list[Any]:
        async def every() -> list[Any]:
            return [one async for one in self._saver.alist(config, limit=limit)]

        return list(self._run(every()))


@contextmanager
def looped() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


@contextmanager
def postgres(folder: Path) -> Iterator[str | None]:
    """A PostgreSQL server with its usual settings, on a socket in the folder."""
    found = [*glob.glob("/usr/lib/postgresql/*/bin"), *([os.path.dirname(shutil.which("initdb") or "")])]
    programs = next((place for place in found if place and os.access(f"{place}/initdb", os.X_OK)), None)
    if programs is None:
        yield None
        return
    data = folder / "data"
    data.mkdir(parents=True)
    # The server refuses to run as root.
    user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(data, "postgres")
        for above in (data.parent, *data.parents):
            if str(above).startswith(tempfile.gettempdir() + os.sep) or above == data.parent:
                above.chmod(0o755)
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*user, f"{programs}/initdb", "-D", data, "-U", "postgres", "-A", "trust"], check=True, **quiet)
    options = f"-k {data} -c listen_addresses="
    start = [*user, f"{programs}/pg_ctl", "-D", data, "-o", options, "-w", "-l", f"{data}/log", "start"]
    subprocess.run(start, check=True, **quiet)
    try:
        yield f"postgresql:///postgres?host={data}&user=postgres"
    finally:
        subprocess.run([*user, f"{programs}/pg_ctl", "-D", data, "-m", "fast", "stop"], check=True, **quiet)


def messages(count: int) -> list[dict[str, str]]:
    """Returns messages of about one kilobyte that do not compress to nothing."""
    return [{"role": "user", "content": f"{number} " + os.urandom(368).hex() + "x" * 256} for number in range(count)]


def put_states(saver: Any, thread: str, every: list[dict[str, str]]) -> tuple[Any, list[float], list[float]]:
    """Saves a state for each message; the list grows. Returns the last config and the times."""
    config: Any = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
    puts, writes = [], []
    for number in range(1, len(every) + 1):
        made: Any = empty_checkpoint()
        made["channel_values"] = {"messages": every[:number], "topic": "the same"}
        made["channel_versions"] = {"messages": f"{number:032}.0", "topic": f"{1:032}.0"}
        new = {"messages": made["channel_versions"]["messages"], **({"topic": f"{1:032}.0"} if number == 1 else {})}
        began = time.perf_counter()
        config = saver.put(config, made, {"source": "loop", "step": number, "parents": {}}, new)
        puts.append((time.perf_counter() - began) * 1e3)
        writes.append(timed(lambda: saver.put_writes(config, [("messages", every[number - 1])], "task")))  # noqa: B023
    return config, puts, writes


def of_saver(saver: Any, states: int, size: Callable[[], float]) -> Row:
    """Measures one saver."""
    every = messages(states)
    config, puts, writes = put_states(saver, "t1", every)
    row = {
        "put": statistics.median(puts),
        "put, last tenth": statistics.median(puts[-max(1, states // 10) :]),
        "put_writes": statistics.median(writes),
        "get": statistics.median(timed(lambda: saver.get_tuple(config)) for _ in range(9)),
        "list 50": timed(lambda: list(saver.list({"configurable": {"thread_id": "t1"}}, limit=50))),
        "disk MB": size(),
    }
    count, small = 25, messages(3)

    def work(number: int) -> None:
        for turn in range(count):
            put_states(saver, f"many-{number}-{turn}", small[:1])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Each turn is a put and a put_writes.
    row["16 threads, saves/s"] = 16 * count * 2 / (time.perf_counter() - began)
    return row


def savers(place: Path, states: int) -> dict[str, Row]:
    """Measures the savers, one after the other."""
    rows = {}
    home = place / "ours"
    rows["SafepointSaver"] = of_saver(SafepointSaver(home=home), states, lambda: disk(home))
    with looped() as loop:
        home2 = place / "ours-async"
        saver: Any = Blocking(SafepointSaver(home=home2), loop)
        rows["SafepointSaver, asyncio"] = of_saver(saver, states, lambda: disk(home2))
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    (place / "sqlite").mkdir()
    with SqliteSaver.from_conn_string(str(place / "sqlite" / "a.db")) as theirs:
        rows["SqliteSaver"] = of_saver(theirs, states, lambda: disk(place / "sqlite"))
    (place / "aiosqlite").mkdir()
    with looped() as loop:
        manager = AsyncSqliteSaver.from_conn_string(str(place / "aiosqlite" / "a.db"))
        entered = asyncio.run_coroutine_threadsafe(manager.__aenter__(), loop).result()
        rows["AsyncSqliteSaver"] = of_saver(Blocking(entered, loop), states, lambda: disk(place / "aiosqlite"))
        asyncio.run_coroutine_threadsafe(manager.__aexit__(None, None, None), loop).result()
    with postgres(place / "postgres") as address:
        if address is None:
            print("left out: PostgresSaver, because no PostgreSQL server is installed")
        else:
            rows["PostgresSaver"] = of_postgres(address, place, states)
    return rows


def of_postgres(address: str, place: Path, states: int) -> Row:
    """Measures the PostgresSaver, with a pool of connections as its threads need."""
    from langgraph.checkpoint.postgres import PostgresSaver
    from psycopg_pool import ConnectionPool

    with ConnectionPool(address, max_size=16, kwargs={"autocommit": True}) as pool:
        saver: Any = PostgresSaver(pool)  # type: ignore[arg-type]
        saver.setup()
        with pool.connection() as connection:
            sql: Any = "select pg_database_size('postgres')"

            def size() -> float:
                return float(connection.execute(sql).fetchone()[0]) / 1e6  # type: ignore[index]

            empty = size()
            return of_saver(saver, states, lambda: size() - empty)


# Files


def shop_of(place: Path, files: int) -> Path:
    """Makes a folder with files of one kilobyte."""
    folder = place / "shop"
    folder.mkdir(parents=True)
    for number in range(files):
        above = folder / str(number % 20)
        above.mkdir(exist_ok=True)
        (above / f"{number}.txt").write_text(os.urandom(500).hex())
    return folder


def with_files(place: Path) -> dict[str, Row]:
    """Measures a put with files beside a put and a create of the same edits, in turns."""
    from langgraph.graph import START, StateGraph

    from safepoint.langgraph import attach

    shop = shop_of(place, 100)
    ws = safepoint.Workspace.open(shop, home=place / "home")
    saver, plain = SafepointSaver(ws), SafepointSaver(home=place / "home")
    builder: Any = StateGraph(dict)
    builder.add_node("a", lambda state: state)
    builder.add_edge(START, "a")
    graph: Any = attach(builder.compile(checkpointer=saver))
    run = graph._safepoint_update({"configurable": {"thread_id": "t1"}})
    run.begin()
    config: Any = {"configurable": {"thread_id": "t1", "checkpoint_ns": ""}}
    other = config
    files, puts, creates = [], [], []
    for number in range(1, 41):
        made: Any = empty_checkpoint()
        made["channel_values"], made["channel_versions"] = {"n": number}, {"n": f"{number:032}.0"}
        given = ({"source": "loop", "step": number, "parents": {}}, made["channel_versions"])
        (shop / "0" / "0.txt").write_text(os.urandom(500).hex())
        began = time.perf_counter()
        config = saver.put(config, made, *given)  # type: ignore[arg-type]
        files.append((time.perf_counter() - began) * 1e3)
        began = time.perf_counter()
        other = plain.put(other, made, *given)  # type: ignore[arg-type]
        puts.append((time.perf_counter() - began) * 1e3)
        (shop / "0" / "0.txt").write_text(os.urandom(500).hex())
        creates.append(timed(lambda: ws.create(kind="automatic", only_if_changed=True)))
    run.end(None)
    put, create = statistics.median(puts), statistics.median(creates)
    row = {"put with files": statistics.median(files), "put": put, "create": create}
    return {"one edited file of 100": {**row, "put with files / (put + create)": row["put with files"] / (put + create)}}


def creates(place: Path) -> dict[str, Row]:
    """Measures ``create`` in Python beside the command, and 1,000 edits beside pygit2."""
    from safepoint import _surroundings

    rows: dict[str, Row] = {}
    shop = shop_of(place, 12)
    home = place / "home"
    ws = safepoint.Workspace.open(shop, home=home)
    program = _surroundings.program()
    python, command = [], []
    for _ in range(25):
        (shop / "0" / "0.txt").write_text(os.urandom(500).hex())
        python.append(timed(ws.create))
        if program is not None:
            (shop / "0" / "0.txt").write_text(os.urandom(500).hex())
            words = [program, "--home", str(home), "-C", str(shop), "-q", "create"]
            command.append(timed(lambda: subprocess.run(words, check=True, capture_output=True)))  # noqa: B023
    rows["tiny create"] = {"Python": statistics.median(python)}
    if command:
        rows["tiny create"]["command"] = statistics.median(command)
        rows["tiny create"]["ratio"] = rows["tiny create"]["Python"] / rows["tiny create"]["command"]
    try:
        import pygit2
    except ImportError:
        print("left out: pygit2, because it is not installed")
        return rows
    rows["1,000 edits"] = edits(place / "many", pygit2)
    return rows


def edits(place: Path, pygit2: Any) -> Row:
    """Commits and resets 1,000 edits with both, in turns, each in its own copy."""
    ours, theirs = shop_of(place / "ours", 3000), shop_of(place / "theirs", 3000)
    ws = safepoint.Workspace.open(ours, home=place / "home")
    repository = pygit2.init_repository(str(theirs))
    who = pygit2.Signature("bench", "bench@example.com")

    def commit() -> Any:
        repository.index.add_all()
        repository.index.write()
        tree = repository.index.write_tree()
        parents = [] if repository.is_empty else [repository.head.target]
        return repository.create_commit("HEAD", who, who, "bench", tree, parents)

    def edit(folder: Path) -> None:
        for number in range(1000):
            with open(folder / str(number % 20) / f"{number}.txt", "a") as file:
                file.write("x")
        os.sync()

    ws.create()
    commit()
    times: dict[str, list[float]] = {"create": [], "commit": [], "rollback": [], "hard reset": []}
    for _ in range(5):
        edit(ours)
        times["create"].append(timed(ws.create))
        edit(theirs)
        times["commit"].append(timed(commit))
        edit(ours)
        times["rollback"].append(timed(ws.rollback))
        edit(theirs)
        times["hard reset"].append(timed(lambda: repository.reset(repository.head.target, pygit2.enums.ResetMode.HARD)))
    row = {name: statistics.median(found) for name, found in times.items()}
    both = row["create"] + row["rollback"], row["commit"] + row["hard reset"]
    return {**row, "ratio": both[0] / both[1]}


# Sessions, notebooks, Node


def sessions(place: Path) -> dict[str, Row]:
    """Measures the append of an item beside that of the OpenAI Agents SDK."""
    try:
        from agents import SQLiteSession

        from safepoint.openai_agents import SafepointSession
    except ImportError:
        print("left out: sessions, because openai-agents is not installed")
        return {}

    async def append(session: Any) -> Row:
        every: list[Any] = messages(200)
        times = []
        for item in every:
            began = time.perf_counter()
            await session.add_items([item])
            times.append((time.perf_counter() - began) * 1e3)
        began = time.perf_counter()
        assert len(await session.get_items()) == len(every)
        return {"append": statistics.median(times), "get all": (time.perf_counter() - began) * 1e3}

    ours = asyncio.run(append(SafepointSession("t", home=place / "home")))
    theirs = asyncio.run(append(SQLiteSession("t", str(place / "sessions.db"))))
    return {"SafepointSession": ours, "SQLiteSession": theirs}


def jupyter(place: Path) -> dict[str, Row]:
    """Measures a cell with ``%safepoint`` beside ``create``."""
    try:
        from IPython.core.interactiveshell import InteractiveShell
    except ImportError:
        print("left out: notebooks, because IPython is not installed")
        return {}
    shop = shop_of(place, 12)
    os.environ["SAFEPOINT_HOME"] = str(place / "home")
    os.chdir(shop)
    ws = safepoint.Workspace.open(shop)
    shell: Any = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "safepoint")
    cells, calls = [], []
    with open(os.devnull, "w") as nowhere:
        printed, sys.stdout = sys.stdout, nowhere
        try:
            for _ in range(25):
                (shop / "0" / "0.txt").write_text(os.urandom(500).hex())
                cells.append(timed(lambda: shell.run_cell("%safepoint")))
                (shop / "0" / "0.txt").write_text(os.urandom(500).hex())
                calls.append(timed(ws.create))
        finally:
            sys.stdout = printed
    cell, call = statistics.median(cells), statistics.median(calls)
    return {"cell": {"%safepoint": cell, "create": call, "ratio": cell / call}}


def node(place: Path) -> dict[str, Row]:
    """Measures the JavaScript savers, if Node and their packages are there (`.ci/frameworks-bench` installs them)."""
    root = Path(__file__).resolve().parents[2]
    packages = root / "target" / "node-bench"
    if shutil.which("node") is None or not (packages / "node_modules").is_dir():
        print("left out: JavaScript, because node or its packages are missing")
        return {}
    from safepoint import _surroundings

    done = subprocess.run(
        ["node", str(packages / "safepoint" / "bench.mjs"), str(place)],
        env={**os.environ, "SAFEPOINT_BIN": _surroundings.program() or "safepoint"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        print(f"left out: JavaScript: {done.stderr.strip()[-300:]}")
        return {}
    found: dict[str, Row] = json.loads(done.stdout)
    return found


PARTS: dict[str, Callable[[Path, int], dict[str, Row]]] = {
    "savers": savers,
    "files": lambda place, _: with_files(place),
    "create": lambda place, _: creates(place),
    "sessions": lambda place, _: sessions(place),
    "jupyter": lambda place, _: jupyter(place),
    "node": lambda place, _: node(place),
}


def table(rows: dict[str, Row]) -> list[str]:
    """Returns rows as a Markdown table."""
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for name, row in rows.items():
        cells = [f"{row[column]:,.2f}" if column in row else "" for column in names]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def main() -> int:
    """Runs the program."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--states", type=int, default=300)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--place", default=tempfile.gettempdir())
    asked = parser.parse_args()
    found: dict[str, dict[str, Row]] = {}
    with ExitStack() as stack:
        base = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="safepoint-bench-", dir=asked.place)))
        stack.callback(os.chdir, os.getcwd())
        os.environ["SAFEPOINT_HOME"] = str(base / "home")
        for part in asked.only.split(","):
            (base / part).mkdir()
            os.chmod(base, 0o755)
            found[part] = PARTS[part](base / part, asked.states)
            print(f"\n{part} (ms; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores)\n", flush=True)
            print("\n".join(table(found[part])), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
