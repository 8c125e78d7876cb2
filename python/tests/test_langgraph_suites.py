"""The conformance suite of LangGraph's checkpointers: all capabilities, every test."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

conformance: Any = pytest.importorskip(
    "langgraph.checkpoint.conformance", reason="langgraph-checkpoint-conformance is not installed"
)

from safepoint.langgraph import SafepointSaver  # noqa: E402


async def test_every_capability_is_detected_and_passes(tmp_path: Path) -> None:
    from langgraph.checkpoint.conformance import checkpointer_test, validate

    homes = iter(range(1000))

    @checkpointer_test(name="SafepointSaver")
    async def saver() -> AsyncGenerator[SafepointSaver, None]:
        yield SafepointSaver(home=tmp_path / f"home{next(homes)}")

    report = await validate(saver)
    results = report.results
    assert {name for name, one in results.items() if one.detected} >= {
        "put", "put_writes", "get_tuple", "list", "delete_thread", "delete_for_runs", "copy_thread", "prune",
    }  # fmt: skip
    failed = {name: one.failures for name, one in results.items() if not one.passed}
    assert not failed, failed
    passed = sum(one.tests_passed for one in results.values())
    print(f"{passed} tests passed")
    assert passed >= 81 and not any(one.tests_failed for one in results.values())
