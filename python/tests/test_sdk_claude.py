"""Claude Agent SDK: its own conformance suite of stores, hooks, and the way back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed")

from claude_agent_sdk import (  # noqa: E402
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    ResultMessage,
    get_session_messages_from_store,
)
from claude_agent_sdk.testing import run_session_store_conformance  # noqa: E402

import safepoint  # noqa: E402
from safepoint import claude  # noqa: E402
from safepoint._batches import Owner  # noqa: E402

KEY: Any = {"project_key": "-shop", "session_id": "s1"}


def entry(uuid: str, text: str, kind: str = "user") -> Any:
    return {"type": kind, "uuid": uuid, "message": {"role": kind, "content": text}, "timestamp": "2026-01-01T00:00:00Z"}


async def fire(options: ClaudeAgentOptions, event: str, **fields: Any) -> None:
    """Calls the hooks of an event as the SDK does."""
    given: Any = {
        "session_id": "s1", "transcript_path": "/user/.claude/projects/-shop/s1.jsonl", "cwd": "/", "hook_event_name": event, **fields,
    }  # fmt: skip
    assert options.hooks is not None
    for matcher in options.hooks[event]:  # type: ignore[index]
        if matcher.matcher is None or fields["tool_name"] in matcher.matcher.split("|"):
            for hook in matcher.hooks:
                assert await hook(given, None, {"signal": None}) == {}


@pytest.mark.parametrize("owner", ["home", "workspace"])
async def test_the_store_satisfies_every_contract(tmp_path: Path, owner: str) -> None:
    homes = iter(range(1000))

    def store() -> claude.SafepointSessionStore:
        place = tmp_path / f"home{next(homes)}"
        if owner == "home":
            return claude.SafepointSessionStore(home=place)
        folder = tmp_path / f"folder{next(homes)}"
        folder.mkdir()
        return claude.SafepointSessionStore(safepoint.Workspace.open(folder, home=place))

    await run_session_store_conformance(store)


async def test_entries_that_are_stored_already_are_ignored(ws: safepoint.Workspace) -> None:
    store = claude.SafepointSessionStore(ws)
    await store.append(KEY, [entry("a", "1"), {"type": "title"}])
    await store.append(KEY, [entry("a", "1"), entry("b", "2"), {"type": "title"}])
    for one in (store, claude.SafepointSessionStore(ws)):
        await one.append(KEY, [entry("b", "2")])
        loaded = await one.load(KEY)
        assert loaded is not None and [item.get("uuid") for item in loaded] == ["a", None, "b", None]


@pytest.mark.parametrize("bad", ["text", [7], [{1: 2}], [{"type": "x", "n": float("inf")}], [{"type": {1}}]])
async def test_malformed_entries_are_a_usage_error_and_nothing_is_stored(ws: safepoint.Workspace, bad: Any) -> None:
    store = claude.SafepointSessionStore(ws)
    with pytest.raises(safepoint.UsageError):
        await store.append(KEY, bad)
    assert await store.load(KEY) is None


@pytest.mark.parametrize(
    "key",
    [{}, {**KEY, "subpath": ""}, {**KEY, "session_id": 7}, {**KEY, "session_id": "x" * 600}, {**KEY, "subpath": "a\0"}],
    ids=["empty", "empty subpath", "number", "long", "nul"],
)
async def test_invalid_keys_are_a_usage_error(ws: safepoint.Workspace, key: Any) -> None:
    with pytest.raises(safepoint.UsageError):
        await claude.SafepointSessionStore(ws).append(key, [entry("a", "1")])


async def test_rewind_goes_back_to_before_a_prompt_and_undo_returns(ws: safepoint.Workspace, shop: Path) -> None:
    options = claude.options(ws, model="any")
    assert options.cwd == ws.root and options.model == "any"
    store: Any = options.session_store
    notes = shop / "notes.txt"
    for number in (1, 2, 3):
        # The same words each time: the conversation tells them apart.
        await fire(options, "UserPromptSubmit", prompt="go on")
        await fire(options, "PreToolUse", tool_name="Bash", tool_input={}, tool_use_id=str(number))
        notes.write_text(f"turn {number}")
        await fire(options, "PreToolUse", tool_name="Read", tool_input={}, tool_use_id=f"{number} read")
        await store.append(KEY, [entry(f"u{number}", "go on"), entry(f"a{number}", "done", "assistant")])
    claude.rewind(ws, "s1", "u3", dry_run=True)
    assert notes.read_text() == "turn 3"
    claude.rewind(ws, "s1", "u3")
    assert notes.read_text() == "turn 2" and [one["uuid"] for one in await store.load(KEY)] == ["u1", "a1", "u2", "a2"]
    claude.rewind(ws, "s1", "u1")
    assert notes.read_text() == "good" and await store.load(KEY) is None
    assert await store.list_sessions("-shop") == []
    ws.undo()
    ws.undo()
    assert notes.read_text() == "turn 3" and len(await store.load(KEY)) == 6
    for session, message in (("s1", "a9"), ("s1", "a3"), ("s9", "u1")):
        with pytest.raises(safepoint.NotFound):
            claude.rewind(ws, session, message)
    assert notes.read_text() == "turn 3"


async def test_a_tool_has_a_checkpoint_only_if_something_changed(ws: safepoint.Workspace, shop: Path) -> None:
    options = claude.options(ws)
    await fire(options, "UserPromptSubmit", prompt="go on")
    for text in ("one", "one", "two"):
        await fire(options, "PreToolUse", tool_name="Write", tool_input={}, tool_use_id="1")
        (shop / "notes.txt").write_text(text)
    found = ws.list()
    assert [ws.read("notes.txt", made) for made in found] == [b"one", b"good"]


async def test_a_hook_that_fails_lets_the_agent_go_on(
    ws: safepoint.Workspace, caplog: pytest.LogCaptureFixture
) -> None:
    options = claude.options(ws)
    ws.close()
    await fire(options, "UserPromptSubmit", prompt="go on")
    assert "no checkpoint before UserPromptSubmit" in caplog.text


async def test_hooks_of_the_user_stay(ws: safepoint.Workspace) -> None:
    called = []

    async def mine(*given: Any) -> Any:
        called.append(given)
        return {}

    options = claude.options(ws, hooks={"UserPromptSubmit": [HookMatcher(hooks=[mine])]})
    await fire(options, "UserPromptSubmit", prompt="go on")
    assert len(called) == 1 and len(ws.list()) == 1
    with pytest.raises(safepoint.UsageError):
        claude.options(ws, enable_file_checkpointing=True)


async def test_the_agents_own_program_runs_rewinds_and_resumes(
    ws: safepoint.Workspace, shop: Path, claude_model: tuple[list[Any], dict[str, str]]
) -> None:
    turns, model = claude_model
    notes = shop / "notes.txt"
    for text in ("one", "two"):
        command = {"command": f"printf {text} > {notes}", "description": "write"}
        turns += [
            {"type": "tool_use", "id": f"toolu_{text}", "name": "Bash", "input": command},
            {"type": "text", "text": f"wrote {text}"},
        ]
    options = claude.options(ws, env=model, allowed_tools=["Bash"], setting_sources=[])
    session = ""
    async with ClaudeSDKClient(options) as client:
        for text in ("one", "two"):
            await client.query(f"Write {text}")
            async for message in client.receive_response():
                if isinstance(message, ResultMessage):
                    session = message.session_id
            assert notes.read_text() == text
    found = await get_session_messages_from_store(options.session_store, session, directory=ws.root)
    prompts = [one.uuid for one in found if one.type == "user" and one.message.get("content") == "Write two"]
    assert len(prompts) == 1, found
    claude.rewind(ws, session, prompts[0])
    assert notes.read_text() == "one"
    left = await get_session_messages_from_store(options.session_store, session, directory=ws.root)
    assert "wrote one" in str(left) and "Write two" not in str(left)

    turns.append({"type": "text", "text": "resumed"})
    again = claude.options(ws, env=model, resume=session, setting_sources=[])
    async with ClaudeSDKClient(again) as client:
        await client.query("And now?")
        said = [message async for message in client.receive_response()]
    assert "resumed" in str(said)
    assert notes.read_text() == "one"


async def test_subagents_are_listed_without_their_entries(ws: safepoint.Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    store, real, answered = claude.SafepointSessionStore(ws), Owner.call, []
    key: Any = {"project_key": "p", "session_id": "s"}
    for subpath in ("subagents/a", "subagents/b"):
        for number in range(3):
            entry: Any = {"type": "user", "uuid": f"{subpath}{number}", "text": "x" * 5000}
            await store.append({**key, "subpath": subpath}, [entry])

    def seen(self: Owner, verb: str, **arguments: Any) -> Any:
        answer = real(self, verb, **arguments)
        answered.append(len(json.dumps(answer, default=bytes.hex)))
        return answer

    monkeypatch.setattr(Owner, "call", seen)
    assert await store.list_subkeys(key) == ["subagents/a", "subagents/b"]
    assert 0 < sum(answered) < 2000
