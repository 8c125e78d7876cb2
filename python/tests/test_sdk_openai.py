"""OpenAI Agents SDK: sessions and hooks, with the SDK's own runner and a scripted model."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="openai-agents is not installed")

from agents import Agent, Runner, SQLiteSession, function_tool  # noqa: E402
from agents.testing import ScriptedModel  # noqa: E402
from openai.types.responses import (  # noqa: E402
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import safepoint  # noqa: E402
from safepoint._batches import Owner  # noqa: E402
from safepoint.openai_agents import SafepointHooks, SafepointSession  # noqa: E402


def item(text: str) -> Any:
    return {"role": "user", "content": text}


def said(text: str) -> ResponseOutputMessage:
    content = ResponseOutputText(text=text, type="output_text", annotations=[], logprobs=[])
    return ResponseOutputMessage(id="1", type="message", role="assistant", content=[content], status="completed")


async def test_items_are_added_limited_popped_and_cleared(ws: safepoint.Workspace) -> None:
    session = SafepointSession("t1", ws)
    assert await session.get_items() == [] and await session.pop_item() is None
    await session.add_items([item("a"), item("b")])
    await session.add_items([item("c")])
    assert await session.get_items() == [item("a"), item("b"), item("c")]
    assert await session.get_items(2) == [item("b"), item("c")]
    assert await session.get_items(0) == []
    assert [await session.pop_item() for _ in range(2)] == [item("c"), item("b")]
    await session.add_items([item("d")])
    assert await SafepointSession("t1", ws).get_items() == [item("a"), item("d")]
    assert await SafepointSession("t2", ws).get_items() == []
    await session.clear_session()
    assert await session.get_items() == [] and await session.pop_item() is None
    await session.add_items([item("e")])
    assert await session.get_items() == [item("e")]
    await session.erase()
    assert await session.get_items() == []


async def test_random_calls_have_the_results_of_sqlite(ws: safepoint.Workspace) -> None:
    import random

    draw = random.Random(16)
    ours, theirs = SafepointSession("t1", ws), SQLiteSession("t1")
    for number in range(120):
        call = draw.choice(["add", "add", "add", "pop", "get", "clear"] if number % 20 == 0 else ["add", "pop", "get"])
        if call == "add":
            items = [item(f"{number}.{one} \u00e9\ud83d\ude00") for one in range(draw.randrange(4))]
            await ours.add_items(items)
            await theirs.add_items(items)
        elif call == "pop":
            assert await ours.pop_item() == await theirs.pop_item()
        elif call == "clear":
            await ours.clear_session()
            await theirs.clear_session()
        limit = draw.choice([None, -1, 0, 1, 3, 100])
        assert await ours.get_items(limit) == await theirs.get_items(limit)


async def test_a_rollback_restores_items_and_files(ws: safepoint.Workspace, shop: Path) -> None:
    session = SafepointSession("t1", ws)
    await session.add_items([item("a"), item("b")])
    before = ws.create("before")
    (shop / "notes.txt").write_text("worse")
    await session.pop_item()
    await session.add_items([item("c")])
    ws.rollback(before)
    assert await session.get_items() == [item("a"), item("b")]
    assert (shop / "notes.txt").read_text() == "good"
    await session.add_items([item("d")])
    assert await session.get_items() == [item("a"), item("b"), item("d")]
    ws.undo(replace_changes=True)
    assert await session.get_items() == [item("a"), item("c")]
    assert (shop / "notes.txt").read_text() == "worse"
    await session.clear_session()
    ws.rollback(before)
    assert await session.get_items() == [item("a"), item("b")]


async def test_a_rollback_brings_an_erased_conversation_back_from_its_beginning(ws: safepoint.Workspace) -> None:
    session = SafepointSession("t1", ws)
    for number in range(12):
        await session.add_items([item(str(number))])
    before = ws.create("before")
    await session.erase()
    ws.rollback(before)
    assert await session.get_items() == [item(str(number)) for number in range(12)]


@pytest.mark.parametrize(
    "bad",
    ["text", item("no list"), [item("ok"), "text"], [{1: "key"}], [{"value": object()}], [{"value": float("nan")}]],
    ids=["text", "dict", "text in list", "number as key", "object", "nan"],
)
async def test_malformed_items_are_a_usage_error_and_nothing_is_stored(ws: safepoint.Workspace, bad: Any) -> None:
    session = SafepointSession("t1", ws)
    await session.add_items([item("a")])
    with pytest.raises(safepoint.UsageError):
        await session.add_items(bad)
    assert await session.get_items() == [item("a")]


@pytest.mark.parametrize("id", ["", "a\0b", "x" * 600, 7])
async def test_invalid_session_ids_are_a_usage_error(ws: safepoint.Workspace, id: Any) -> None:
    with pytest.raises(safepoint.UsageError):
        await SafepointSession(id, ws).add_items([item("a")])


async def test_a_cancelled_add_is_complete(ws: safepoint.Workspace) -> None:
    session = SafepointSession("t1", ws)
    task = asyncio.ensure_future(session.add_items([item("a"), item("b")]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await session.get_items() == [item("a"), item("b")]


async def test_a_closed_session_refuses_every_call(ws: safepoint.Workspace) -> None:
    session = SafepointSession("t1", ws)
    session.close()
    for call in (session.get_items, lambda: session.add_items([]), session.pop_item, session.clear_session):
        with pytest.raises(safepoint.UsageError, match="closed"):
            await call()


async def test_an_append_reads_and_writes_its_own_items_alone(
    ws: safepoint.Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many items are stored, and however many of them came with the last call."""
    session, real, moved = SafepointSession("t1", ws), Owner.call, []

    def seen(self: Owner, verb: str, **arguments: Any) -> Any:
        answer = real(self, verb, **arguments)
        moved.append((verb, sum(len(json.dumps(part, default=bytes.hex)) for part in (arguments, answer))))
        return answer

    monkeypatch.setattr(Owner, "call", seen)
    for stored in (0, 1, 300):
        await session.add_items([item(f"{number} {'x' * 500}") for number in range(stored)])
        moved.clear()
        await session.add_items([item("one more")])
        assert [verb for verb, _ in moved] == ["thread_list", "thread_put"]
        assert sum(size for _, size in moved) < 2500, moved
    # A head that this session did not save is found all the same.
    other = SafepointSession("t1", ws)
    await other.add_items([item("from elsewhere")])
    await session.add_items([item("last")])
    assert await other.get_items(2) == [item("from elsewhere"), item("last")]


def test_two_processes_lose_no_items(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from safepoint.openai_agents import SafepointSession
async def main():
    session = SafepointSession("t1", home=sys.argv[1])
    for number in range(25):
        await session.add_items([{"role": "user", "content": f"{sys.argv[2]} {number}"}])
asyncio.run(main())
"""
    home = str(tmp_path / "shared")
    workers = [subprocess.Popen([sys.executable, "-c", program, home, name]) for name in ("a", "b")]
    assert [worker.wait(120) for worker in workers] == [0, 0]
    items = asyncio.run(SafepointSession("t1", home=home).get_items())
    for name in ("a", "b"):
        texts: list[str] = [one["content"] for one in json.loads(json.dumps(items))]
        assert [text for text in texts if text.startswith(name)] == [f"{name} {number}" for number in range(25)]


async def test_a_run_has_a_checkpoint_before_each_tool_that_follows_a_change(
    ws: safepoint.Workspace, shop: Path
) -> None:
    @function_tool
    def write(text: str) -> str:
        (shop / "notes.txt").write_text(text)
        return "done"

    def call(text: str) -> Any:
        return ResponseFunctionToolCall(
            id="1", call_id=text, type="function_call", name="write", arguments=json.dumps({"text": text})
        )

    agent = Agent(name="test", model=ScriptedModel([[call("one")], [call("two")], [said("done")]]), tools=[write])
    session = SafepointSession("t1", ws)
    await Runner.run(agent, "Go on", session=session, hooks=SafepointHooks(ws))
    assert (shop / "notes.txt").read_text() == "two"
    found = [made for made in ws.list() if made.source_tool == "openai_agents"]
    assert [ws.read("notes.txt", made) for made in found] == [b"one", b"good"]
    ws.rollback(found[-1])
    assert (shop / "notes.txt").read_text() == "good"
