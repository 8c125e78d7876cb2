"""Pydantic AI: the store beside the SDK's own store in memory, rollbacks, and tool calls as transactions."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai.conversation_store", reason="pydantic-ai-slim is not installed")

from pydantic_ai import Agent, DeferredToolRequests, ModelRetry  # noqa: E402
from pydantic_ai.conversation import Conversation  # noqa: E402
from pydantic_ai.conversation_store import (  # noqa: E402
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import ApprovalRequired  # noqa: E402
from pydantic_ai.messages import (  # noqa: E402
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel  # noqa: E402
from pydantic_ai.models.test import TestModel  # noqa: E402
from pydantic_ai.usage import RunUsage  # noqa: E402

import safepoint  # noqa: E402
from safepoint.pydantic_ai import SafepointConversationStore, SafepointTools  # noqa: E402


def asked(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart([text, BinaryContent(b"\x00\xff" + text.encode(), media_type="application/pdf")])])


def answered(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text), ToolCallPart("write", {"text": text})])


async def result(work: Any) -> Any:
    """Returns the result of a call, or the class of its exception."""
    try:
        return await work
    except ConversationConflict:
        return ConversationConflict
    except LookupError:
        return LookupError


@pytest.mark.parametrize("seed", range(4))
async def test_random_writes_have_the_results_of_the_store_in_memory(ws: safepoint.Workspace, seed: int) -> None:
    draw = random.Random(seed)
    ours, theirs = SafepointConversationStore(ws), InMemoryConversationStore()
    entries: list[str] = []
    for number in range(60):
        id = draw.choice(["a", "b", "c/d"])
        stored = await theirs.read_record(id)
        revision: Any = draw.choice(["old", None]) if draw.random() < 0.2 else stored.revision if stored else None
        if draw.random() < 0.1 and stored is not None:
            # Entries that nothing needs any more are kept by ours, and deleted by theirs: not compared.
            wanted = draw.choice([stored.revision, "old"])
            kept = dict(theirs._entries)
            assert await result(ours.delete_record(id, expected_revision=wanted)) == await result(
                theirs.delete_record(id, expected_revision=wanted)
            )
            theirs._entries = kept
            continue
        parent = draw.choice([*entries, None])
        new: list[ConversationEntry] = []
        for one in range(draw.randrange(3)):
            message: ModelMessage = draw.choice([asked, answered])(f"{number}.{one} \u00e9")
            new.append(ConversationEntry(parent_id=parent, message=message))
            parent = new[-1].id
        head = draw.choice([parent, parent, parent, "missing"])
        record = ConversationRecord(
            conversation_id=id, head_id=head, usage=RunUsage(input_tokens=number), scope=draw.choice([None, "user"])
        )
        done = [
            await result(store.write_record(record, new_entries=new, expected_revision=revision))
            for store in (ours, theirs)
        ]
        assert done[0] == done[1]
        if done[0] is None:
            entries += [one.id for one in new]
        else:
            assert new == [] or await result(ours.read_entry(new[0].id)) is LookupError
        for name in ("a", "b", "c/d"):
            assert await ours.read_record(name) == await theirs.read_record(name)
        assert await ours.read_records() == await theirs.read_records()
        assert await ours.read_records(scope="user", limit=1) == await theirs.read_records(scope="user", limit=1)
        if done[0] is None:
            for limit in (None, 0, 2):
                assert await ours.read_history(head, limit=limit) == await theirs.read_history(head, limit=limit)
    assert await result(ours.read_entry("missing")) is LookupError


async def test_runs_forks_and_branches_are_stored(ws: safepoint.Workspace) -> None:
    store, agent = SafepointConversationStore(ws), Agent(TestModel(custom_output_text="done"))
    for prompt in ("one", "two"):
        conversation = await store.load("t1") or Conversation(conversation_id="t1")
        await store.save(await agent.run(prompt, conversation=conversation))
    loaded = await store.load("t1")
    assert loaded is not None and len(loaded.messages) == 4 and loaded.usage.requests == 2
    fork = await store.fork("t1", new_conversation_id="t2")
    await store.save(await agent.run("three", conversation=fork))
    await store.delete("t1")
    again = await SafepointConversationStore(ws).load("t2")
    assert again is not None and len(again.messages) == 6
    assert await store.load("t1") is None


async def test_a_rollback_restores_conversation_and_files(ws: safepoint.Workspace, shop: Path) -> None:
    store, agent = SafepointConversationStore(ws), Agent(TestModel(custom_output_text="done"))
    await store.save(await agent.run("one", conversation=Conversation(conversation_id="t1")))
    before = ws.create("before")
    (shop / "notes.txt").write_text("worse")
    loaded = await store.load("t1")
    assert loaded is not None
    late = await agent.run("two", conversation=loaded)
    await store.save(late)
    ws.rollback(before)
    back = await store.load("t1")
    assert back is not None and len(back.messages) == 2 and (shop / "notes.txt").read_text() == "good"
    with pytest.raises(ConversationConflict):
        await store.save(late)
    ws.undo()
    back = await store.load("t1")
    assert back is not None and len(back.messages) == 4


async def test_a_rollback_brings_every_entry_of_a_conversation_back(ws: safepoint.Workspace) -> None:
    store, agent = SafepointConversationStore(ws), Agent(TestModel(custom_output_text="done"))
    conversation = Conversation(conversation_id="t1")
    for prompt in ["one", "two", "three"]:
        await store.save(await agent.run(prompt, conversation=conversation))
        loaded = await store.load("t1")
        assert loaded is not None
        conversation = loaded
    before = ws.create("before")
    for thread in store._owner.threads("pydantic-ai/"):
        store._owner.call("thread_delete", thread=thread)
    assert await store.load("t1") is None
    ws.rollback(before)
    back = await store.load("t1")
    assert back is not None and len(back.messages) == 6


async def test_of_two_writers_one_has_a_conflict(ws: safepoint.Workspace) -> None:
    stores = [SafepointConversationStore(ws) for _ in range(4)]
    record = ConversationRecord(conversation_id="t1", head_id=None)
    copies = [dataclasses.replace(record, revision=str(number)) for number in range(4)]
    done = await asyncio.gather(
        *(result(store.write_record(one, expected_revision=None)) for store, one in zip(stores, copies, strict=True))
    )
    assert sorted(done, key=str).count(None) == 1 and done.count(ConversationConflict) == 3


@pytest.mark.parametrize("bad", ["entry", "record", "id"])
async def test_malformed_data_is_a_usage_error_and_nothing_is_stored(ws: safepoint.Workspace, bad: str) -> None:
    store = SafepointConversationStore(ws)
    good = ConversationEntry(parent_id=None, message=asked("one"))
    wrong: Any = object()
    entry = ConversationEntry(parent_id=good.id, message=wrong if bad == "entry" else asked("two"))
    record = ConversationRecord(conversation_id="" if bad == "id" else "t1", head_id=entry.id)
    if bad == "record":
        record.usage = wrong
    with pytest.raises(safepoint.UsageError):
        await store.write_record(record, new_entries=[good, entry], expected_revision=None)
    assert await store.read_records() == []
    assert await result(store.read_entry(good.id)) is LookupError


def calling(*turns: list[ToolCallPart]) -> FunctionModel:
    """A model that makes these calls, one turn after the other, and then ends."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        made = sum(isinstance(message, ModelResponse) for message in messages)
        return ModelResponse(parts=[*turns[made]] if made < len(turns) else [TextPart("done")])

    return FunctionModel(answer)


def is_settled(ws: safepoint.Workspace) -> bool:
    """Returns true if no transaction is open, and no checkpoint pinned."""
    return ws.unfinished() == [] and not any(made.pinned for made in ws.list(all=True))


async def test_a_tool_that_raises_is_rolled_back_and_others_stay(ws: safepoint.Workspace, shop: Path) -> None:
    agent = Agent(
        calling([ToolCallPart("good", {})], [ToolCallPart("bad", {})]), capabilities=[SafepointTools(ws)]
    )

    @agent.tool_plain
    def good() -> str:
        (shop / "notes.txt").write_text("better")
        return "done"

    @agent.tool_plain
    async def bad() -> str:
        (shop / "notes.txt").write_text("half")
        (shop / "more.txt").write_text("half")
        raise RuntimeError("the second half fails")

    with pytest.raises(RuntimeError, match="second half"):
        await agent.run("Go on")
    assert (shop / "notes.txt").read_text() == "better" and not (shop / "more.txt").exists()
    assert [made.label for made in ws.list() if made.reason == "pre_risky_operation"] == ["before bad", "before good"]
    assert is_settled(ws)


async def test_a_call_that_the_model_has_to_repeat_begins_anew(ws: safepoint.Workspace, shop: Path) -> None:
    agent = Agent(
        calling([ToolCallPart("add", {"text": "wrong"})], [ToolCallPart("add", {"text": " right"})]),
        capabilities=[SafepointTools(ws)],
    )

    @agent.tool_plain
    def add(text: str) -> str:
        with open(shop / "notes.txt", "a") as notes:
            notes.write(text)
        if text == "wrong":
            raise ModelRetry("not that")
        return "done"

    await agent.run("Go on")
    assert (shop / "notes.txt").read_text() == "good right" and is_settled(ws)


async def test_parallel_calls_take_turns_and_keep_their_files(ws: safepoint.Workspace, shop: Path) -> None:
    calls = [ToolCallPart("write", {"name": name}) for name in ("a", "wrong", "b")]
    # Two capabilities, as of two agents in one program.
    agent = Agent(calling(calls), capabilities=[SafepointTools(ws, tools=["write"])])
    other = Agent(calling(calls), capabilities=[SafepointTools(ws)])
    inside: list[str] = []

    async def write(name: str) -> str:
        inside.append(name)
        assert len(inside) == 1
        (shop / f"{name}.txt").write_text(name)
        await asyncio.sleep(0.05)
        inside.remove(name)
        if name == "wrong":
            raise ModelRetry("not that")
        return "done"

    agent.tool_plain(write)
    other.tool_plain(write)
    await asyncio.gather(agent.run("Go on"), other.run("Go on"))
    assert sorted(path.name for path in shop.glob("*.txt")) == ["a.txt", "b.txt", "notes.txt"] and is_settled(ws)


async def test_a_tool_that_runs_an_agent_has_transactions_inside(ws: safepoint.Workspace, shop: Path) -> None:
    tools = SafepointTools(ws)
    below = Agent(calling([ToolCallPart("fails", {})], [ToolCallPart("works", {})]), capabilities=[tools])
    above = Agent(calling([ToolCallPart("delegate", {})]), capabilities=[tools])

    @below.tool_plain
    def fails() -> str:
        (shop / "inner.txt").write_text("half")
        raise ModelRetry("not that")

    @below.tool_plain
    def works() -> str:
        (shop / "works.txt").write_text("done")
        return "done"

    @above.tool_plain
    async def delegate() -> str:
        (shop / "outer.txt").write_text("done")
        return (await below.run("Go on")).output

    await above.run("Go on")
    assert sorted(path.name for path in shop.glob("*.txt")) == ["notes.txt", "outer.txt", "works.txt"]
    assert is_settled(ws)


async def test_calls_that_are_deferred_or_not_covered_are_not_rolled_back(ws: safepoint.Workspace, shop: Path) -> None:
    agent = Agent(
        calling([ToolCallPart("ask", {})]),
        output_type=[str, DeferredToolRequests],
        capabilities=[SafepointTools(ws, tools=["ask"])],
    )

    @agent.tool_plain
    def ask() -> str:
        (shop / "question.txt").write_text("may I?")
        raise ApprovalRequired

    @agent.tool_plain
    def free() -> str:
        (shop / "free.txt").write_text("half")
        raise RuntimeError("not covered")

    assert isinstance((await agent.run("Go on")).output, DeferredToolRequests)
    assert (shop / "question.txt").exists() and is_settled(ws)
    made = len(ws.list(all=True))
    with agent.override(model=calling([ToolCallPart("free", {})])), pytest.raises(RuntimeError, match="covered"):
        await agent.run("Go on")
    assert (shop / "free.txt").exists() and len(ws.list(all=True)) == made
    with pytest.raises(TypeError, match="names"):
        SafepointTools(ws, tools="ask")


async def test_a_cancelled_call_is_rolled_back(ws: safepoint.Workspace, shop: Path) -> None:
    agent, began = Agent(calling([ToolCallPart("waits", {})]), capabilities=[SafepointTools(ws)]), asyncio.Event()

    @agent.tool_plain
    async def waits() -> str:
        (shop / "half.txt").write_text("half")
        began.set()
        await asyncio.sleep(60)
        return "done"

    task = asyncio.ensure_future(agent.run("Go on"))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not (shop / "half.txt").exists() and is_settled(ws)


async def test_without_a_checkpoint_the_tool_does_not_run(ws: safepoint.Workspace, shop: Path) -> None:
    agent = Agent(calling([ToolCallPart("write", {})]), capabilities=[SafepointTools(ws)])

    @agent.tool_plain
    def write() -> str:
        (shop / "notes.txt").write_text("worse")
        return "done"

    ws.close()
    with pytest.raises(safepoint.UsageError, match="closed"):
        await agent.run("Go on")
    assert (shop / "notes.txt").read_text() == "good"
