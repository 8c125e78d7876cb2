"""Plugin for pytest: LangGraph's own tests get a SafepointSaver where they ask for a SqliteSaver or an AsyncSqliteSaver.

    pytest -p safepoint_as_sqlite tests

Only cases with such a saver run; a case whose cache or store alone is SQLite is none. SAFEPOINT_REPORT names a file for the results: a
line for each case, with the saver, the result and the name. SAFEPOINT_SWAP=no runs the same cases with LangGraph's savers.
SAFEPOINT_SHARE=I/N runs the I-th of N equal shares.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from safepoint.langgraph import SafepointSaver

_FIXTURES = ("sync_checkpointer", "async_checkpointer")
_SAVERS = ("sqlite", "sqlite_aes", "sqlite_aio")
#: Tests that compare times of the clock to a tenth of a second. On a busy machine they fail with any saver.
_OF_THE_CLOCK = ("test_stream_subgraphs_during_execution", "test_stream_buffering_single_node")


@contextmanager
def _from_conn_string(_: str) -> Iterator[SafepointSaver]:
    with tempfile.TemporaryDirectory() as home:
        yield SafepointSaver(home=home)


@asynccontextmanager
async def _afrom_conn_string(_: str) -> AsyncIterator[SafepointSaver]:
    with tempfile.TemporaryDirectory() as home:
        yield SafepointSaver(home=home)


if os.environ.get("SAFEPOINT_SWAP") != "no":
    SqliteSaver.from_conn_string = staticmethod(_from_conn_string)  # type: ignore[assignment,method-assign]
    AsyncSqliteSaver.from_conn_string = staticmethod(_afrom_conn_string)  # type: ignore[assignment,method-assign]


def _saver_of(item: pytest.Item) -> str | None:
    given: Any = getattr(item, "callspec", None)
    named = [] if given is None else [given.params.get(fixture) for fixture in _FIXTURES]
    return next((saver for saver in named if saver in _SAVERS), None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    share, shares = (int(part) for part in os.environ.get("SAFEPOINT_SHARE", "1/1").split("/"))
    chosen = [
        item for item in items if _saver_of(item) and zlib.crc32(item.nodeid.encode()) % shares == share - 1
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen
    if os.environ.get("SAFEPOINT_QUIET_MACHINE"):
        return
    for item in items:
        if item.name.split("[")[0] in _OF_THE_CLOCK:
            item.add_marker(pytest.mark.skip(reason="compares times of the clock: SAFEPOINT_QUIET_MACHINE=1 runs it"))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    outcome: Any = yield
    report = outcome.get_result()
    path = os.environ.get("SAFEPOINT_REPORT")
    # One line for each case: that of its body, or of the phase that failed or skipped it.
    if path is None or (report.when != "call" and report.outcome == "passed"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
    result = report.outcome if report.when == "call" or report.skipped else "error"
    line = f"{_saver_of(item)}\t{result}\t{item.nodeid}\t{' '.join(str(reason).split())}\n"
    with open(path, "a", encoding="utf-8") as file:
        file.write(line)
