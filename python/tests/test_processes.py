"""Forks, threads, interpreter exit: clear results, and nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import safepoint
from conftest import tree_of


def test_threads_share_a_handle(ws: safepoint.Workspace) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda number: ws.create(f"n{number}").id, range(24)))
    assert len(set(made)) == 24 and {one.id for one in ws.list()} == set(made)


def wait_for(child: int, seconds: float) -> int:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError(f"the child was not done in {seconds} s")


def test_a_fork_amid_creating_threads_works_and_leaves_no_lock(ws: safepoint.Workspace, shop: Path) -> None:
    for number in range(20):
        (shop / f"{number}.txt").write_text(str(number) * 1000)
    stop = threading.Event()
    failures: list[BaseException] = []

    def create() -> None:
        try:
            while not stop.is_set():
                ws.create()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            time.sleep(0.05)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    ws.create("child", only_if_changed=True)
                    code = 0
                finally:
                    os._exit(code)
            # The lock of the workspace is shared with four threads and others on this machine.
            assert wait_for(child, 5.0 if os.environ.get("SAFEPOINT_QUIET_MACHINE") else 20.0) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not failures
    assert safepoint.Workspace.open(shop, lock_wait=0.5).create()


def test_a_child_does_not_keep_the_parents_lock(ws: safepoint.Workspace, shop: Path) -> None:
    """A child that lives on after the transaction of its parent ended must not make it look open."""
    script = (
        "import os,sys,safepoint\n"
        "ws=safepoint.Workspace.open(sys.argv[1])\n"
        "block=ws.transaction('parent'); block.__enter__()\n"
        "import time\n"
        "if os.fork()==0:\n"
        # Only from here on has the child let go of what it inherited.
        "    print(os.getpid(),flush=True); os.kill(os.getppid(),9); time.sleep(20); os._exit(0)\n"
        "time.sleep(20)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script, str(shop)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.wait()
    try:
        os.kill(child, 0)
        assert [left.name for left in ws.unfinished()] == ["parent"]
        assert ws.create()
    finally:
        os.kill(child, 9)
        parent.stdout.close()


def _in_a_worker(ws: safepoint.Workspace) -> str:
    return ws.create("worker").id


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_handles_travel_to_worker_processes(method: str, ws: safepoint.Workspace) -> None:
    with get_context(method).Pool(2) as pool:
        # A worker that hangs must not hang the tests.
        made = pool.map_async(_in_a_worker, [ws, ws]).get(timeout=60)
    assert {one.id for one in ws.list()} == set(made)


def test_the_interpreter_may_end_in_the_middle_of_a_call(shop: Path) -> None:
    for number in range(50):
        (shop / f"{number}.bin").write_bytes(os.urandom(100_000))
    before = tree_of(shop)
    script = (
        "import sys,threading,time,safepoint\n"
        "ws=safepoint.Workspace.open(sys.argv[1])\n"
        "def loop():\n"
        "    while True: ws.create('loop')\n"
        "threading.Thread(target=loop,daemon=True).start()\n"
        "time.sleep(float(sys.argv[2]))\n"
    )
    for delay in ("0.01", "0.1", "0.3"):
        done = subprocess.run(
            [sys.executable, "-c", script, str(shop), delay], timeout=60, stderr=subprocess.PIPE, check=False
        )
        assert done.returncode == 0, done.stderr
    ws = safepoint.Workspace.open(shop)
    made = ws.create()
    (shop / "0.bin").unlink()
    ws.rollback(made)
    assert tree_of(shop) == before


def test_calls_release_the_gil(ws: safepoint.Workspace, shop: Path) -> None:
    for number in range(300):
        (shop / f"{number}.bin").write_bytes(os.urandom(50_000))
    ticks, done = 0, threading.Event()

    def create() -> None:
        ws.create()
        done.set()

    thread = threading.Thread(target=create)
    thread.start()
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks >= 5


def test_two_forks_at_once_keep_calls_out_until_both_are_done(ws: safepoint.Workspace) -> None:
    from safepoint import _native

    done = threading.Event()

    def call() -> None:
        ws.list()
        done.set()

    thread = threading.Thread(target=call)
    assert _native.before_fork(1.0) and _native.before_fork(1.0)
    try:
        _native.after_fork(False)
        thread.start()
        assert not done.wait(0.3)
    finally:
        _native.after_fork(False)
    thread.join(30)
    assert done.is_set()
