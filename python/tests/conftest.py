"""Each test has its own home and its own folder; nothing of the user's is read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import claude_model as claude_model_server
import pytest

import safepoint


@pytest.fixture(autouse=True)
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without the user's settings. Returns the home."""
    for name in ("SAFEPOINT_SESSION_ID", "SAFEPOINT_AGENT", "CLAUDECODE", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    user = tmp_path / "user"
    user.mkdir()
    monkeypatch.setenv("SAFEPOINT_HOME", str(home))
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(user / "gitconfig"))
    (user / "gitconfig").write_text("[user]\nname = Test\nemail = test@example.com\n[init]\ndefaultBranch = main\n")
    return home


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "notes.txt").write_text("good")
    return folder


@pytest.fixture
def ws(shop: Path) -> Iterator[safepoint.Workspace]:
    workspace = safepoint.Workspace.open(shop)
    yield workspace
    workspace.close()


@pytest.fixture
def claude_model(tmp_path: Path) -> Iterator[tuple[list[dict[str, Any]], dict[str, str]]]:
    """Turns of a scripted model, and the environment in which the program of the Claude Agent SDK talks to it."""
    with claude_model_server.serve(tmp_path) as served:
        yield served


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with one commit."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "app.py").write_text("print('one')\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def tree_of(folder: str | os.PathLike[str]) -> dict[str, object]:
    """Reads a folder with ``os.walk``, independently of Safepoint: paths, types, modes, contents."""
    found: dict[str, object] = {}
    for above, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(above, name)
            below = os.path.relpath(path, folder)
            if below.split(os.sep)[0] == ".safepoint":
                continue
            facts = os.lstat(path)
            if os.path.islink(path):
                found[below] = ("link", os.readlink(path))
            elif os.path.isdir(path):
                found[below] = ("directory", facts.st_mode)
            else:
                with open(path, "rb") as file:
                    found[below] = ("file", facts.st_mode, file.read())
    return found


@pytest.fixture
def walked() -> Callable[[str | os.PathLike[str]], dict[str, object]]:
    return tree_of
