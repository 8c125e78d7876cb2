"""Workspaces with an open database are captured by another process: no code of theirs runs, and Ctrl-C does not harm it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import safepoint

TRAP = "import pathlib, sys\npathlib.Path({trace!r}).write_text('ran')\n"
SCRIPT = """
import sqlite3, sys, safepoint
ws = safepoint.Workspace.open(".")
base = sqlite3.connect("data.db")
base.execute("create table if not exists t(x)")
base.commit()
print(ws.create().files_count)
"""


def test_code_of_the_workspace_never_runs(shop: Path, tmp_path: Path) -> None:
    """The host itself is started elsewhere; its current directory is the workspace."""
    trace = tmp_path / "trace"
    for name in ("json", "logging", "base64", "sitecustomize", "encodings"):
        (shop / f"{name}.py").write_text(TRAP.format(trace=str(trace)))
    (shop / "safepoint").mkdir()
    (shop / "safepoint" / "__init__.py").write_text(TRAP.format(trace=str(trace)))
    script = tmp_path / "host.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script)], cwd=shop, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and int(done.stdout) >= 6, done.stderr
    assert not trace.exists()


def test_programs_are_not_looked_up_in_the_workspace(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safepoint import _surroundings

    (shop / "safepoint").write_text("#!/bin/sh\n")
    (shop / "safepoint").chmod(0o755)
    monkeypatch.chdir(shop)
    monkeypatch.setattr(_surroundings.sysconfig, "get_path", lambda _: "/nowhere")
    for path in ("", ".", f":{os.defpath}", f"./:{os.defpath}"):
        monkeypatch.setenv("PATH", path)
        found = _surroundings.program()
        assert found is None or os.path.dirname(os.path.realpath(found)) != str(shop)


def test_ctrl_c_during_the_rollback_of_a_block_with_an_open_database(shop: Path) -> None:
    """Each Ctrl-C reaches the group, as in a terminal, while the other process rolls back."""
    script = textwrap.dedent(
        """
        import os, sqlite3, sys, safepoint
        os.setpgid(0, 0)
        shop = sys.argv[1]
        ws = safepoint.Workspace.open(shop)
        base = sqlite3.connect(os.path.join(shop, "data.db"))
        base.execute("create table t(x)"); base.commit()
        for number in range(300):
            open(os.path.join(shop, f"{number}.bin"), "wb").write(os.urandom(20_000))
        try:
            with ws.transaction("edit"):
                for number in range(300):
                    os.unlink(os.path.join(shop, f"{number}.bin"))
                open(os.path.join(shop, "notes.txt"), "w").write("bad")
                print("ready", flush=True)
                raise ValueError("no")
        except KeyboardInterrupt as error:
            print("interrupted", flush=True)
        except ValueError:
            print("failed", flush=True)
        left = [name for name in os.listdir(shop) if name.endswith(".bin")]
        print(open(os.path.join(shop, "notes.txt")).read(), len(left), len(ws.unfinished()), flush=True)
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(shop)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    for _ in range(10):
        time.sleep(0.03)
        os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=120)
    # Whichever exception is seen in the end, the block was rolled back, and is not on record any more.
    assert out.splitlines()[0] in ("interrupted", "failed") and out.splitlines()[1] == "good 300 0", (out, err)


def test_ctrl_c_ends_a_capture_by_the_other_process(shop: Path) -> None:
    script = textwrap.dedent(
        """
        import os, sqlite3, sys, safepoint
        os.setpgid(0, 0)
        shop = sys.argv[1]
        ws = safepoint.Workspace.open(shop)
        base = sqlite3.connect(os.path.join(shop, "data.db"))
        base.execute("create table t(x)"); base.commit()
        print("ready", flush=True)
        try:
            while True:
                ws.create()
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        print(ws.create("afterwards").label, flush=True)
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(shop)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(0.5)
    os.killpg(child.pid, signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert out == "interrupted\nafterwards\n", err
    assert safepoint.Workspace.open(shop).show().label == "afterwards"
