"""Any tree comes back as it was, seen by ``os.walk`` alone."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import safepoint
from conftest import tree_of

# `.git` is git's own folder at any depth: a rollback leaves it alone.
NAMES = st.one_of(
    st.sampled_from(["a", "b", "c", ".hidden", "-rf", "new\nline", "ü", "x" * 200]),
    st.binary(min_size=1, max_size=12)
    .filter(lambda raw: b"/" not in raw and b"\0" not in raw and raw not in (b".", b"..", b".git", b".safepoint"))
    .map(os.fsdecode),
)
FILES = st.tuples(st.just("file"), st.binary(max_size=2000), st.sampled_from([0o644, 0o600, 0o755, 0o400]))
LINKS = st.tuples(st.just("link"), st.sampled_from(["a", "../b", "/nowhere", "loop"]))
TREES = st.recursive(
    st.one_of(FILES, LINKS), lambda below: st.dictionaries(NAMES, below, max_size=5), max_leaves=12
).filter(lambda tree: isinstance(tree, dict))


def build(folder: str, tree: dict[str, object]) -> None:
    for name, node in tree.items():
        path = os.path.join(folder, name)
        if isinstance(node, dict):
            os.mkdir(path)
            build(path, node)
        elif isinstance(node, tuple) and node[0] == "file":
            with open(path, "wb") as file:
                file.write(node[1])
            os.chmod(path, node[2])
        elif isinstance(node, tuple):
            os.symlink(node[1], path)


def clear(folder: str) -> None:
    for entry in list(os.scandir(folder)):
        if entry.name == ".safepoint":
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


@settings(
    max_examples=int(os.environ.get("SAFEPOINT_TREES", "40")),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(old=TREES, new=TREES)
def test_any_tree_comes_back_from_any_other(old: dict[str, object], new: dict[str, object], tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as folder:
        build(folder, old)
        ws = safepoint.Workspace.open(folder)
        made, before = ws.create(), tree_of(folder)
        clear(folder)
        build(folder, new)
        after = tree_of(folder)
        ws.rollback(made)
        assert tree_of(folder) == before
        ws.undo()
        assert tree_of(folder) == after
        ws.close()
