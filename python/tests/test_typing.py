"""Types: complete, and true of the native module."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SDKS = {"claude": "claude_agent_sdk", "openai_agents": "agents", "pydantic_ai": "pydantic_ai"}
PYRIGHT = shutil.which("pyright", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # mypy and pyright look for settings in the user's home.
    return subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_mypy_is_strict_and_content() -> None:
    done = run(sys.executable, "-m", "mypy", "--no-incremental")
    assert done.returncode == 0, done.stdout


def test_the_stub_is_true_of_the_native_module() -> None:
    done = run(sys.executable, "-m", "mypy.stubtest", "safepoint._native", "--ignore-missing-stub")
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(PYRIGHT is None, reason="pyright is not installed")
def test_every_public_type_is_known() -> None:
    assert PYRIGHT is not None
    # With --verifytypes the interpreter is the one on PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = run(PYRIGHT, "--verifytypes", "safepoint", "--ignoreexternal", "--outputjson", PATH=path)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        pytest.skip(f"pyright does not run here: {(done.stderr or done.stdout)[-200:]}")
    complete = found["typeCompleteness"]
    exported = [symbol for symbol in complete["symbols"] if symbol["isExported"]]
    unknown = [symbol["name"] for symbol in exported if not symbol["isTypeKnown"]]
    # Types of an SDK that is not installed are unknown.
    missing = tuple(f"safepoint.{ours}" for ours, sdk in SDKS.items() if find_spec(sdk) is None)
    assert exported and not [name for name in unknown if not name.startswith(missing)]
