"""The examples of the documents run as they stand there."""

from __future__ import annotations

import json
import re
import runpy
import uuid
from pathlib import Path

import pytest

import safepoint

ROOT = Path(__file__).resolve().parents[2]


#: Sections of python.md whose examples need an SDK; each has a test of its own.
SDKS = ("Claude Agent SDK", "OpenAI Agents", "Pydantic AI", "LangChain")


def examples(page: str, section: str | None = None) -> str:
    """Returns the examples of a page without those of the SDKs, or the ones of a section."""
    blocks = []
    for part in re.split(r"^## ", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE):
        title = part.split("\n", 1)[0]
        if title == section if section is not None else title not in SDKS:
            blocks += re.findall(r"^```python\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)
    assert blocks, (page, section)
    return "\n".join(blocks)


def run_section(section: str, names: dict[str, object]) -> None:
    exec(compile(examples("python.md", section), f"docs/python.md, {section}", "exec"), names)


def test_claude(ws: safepoint.Workspace, shop: Path, request: pytest.FixtureRequest) -> None:
    pytest.importorskip("claude_agent_sdk", reason="claude-agent-sdk is not installed")
    turns, environment = request.getfixturevalue("claude_model")
    command = {"command": f"printf worse > {shop / 'notes.txt'}", "description": "write"}
    turns += [{"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": command}, {"type": "text", "text": "done"}]
    run_section("Claude Agent SDK", {"ws": ws, "shop": shop, "environment": environment})


def test_openai_agents(ws: safepoint.Workspace, shop: Path) -> None:
    pytest.importorskip("agents", reason="openai-agents is not installed")
    from agents.testing import ScriptedModel
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    call = ResponseFunctionToolCall(
        call_id="1", type="function_call", name="write", arguments=json.dumps({"text": "worse"})
    )
    text = ResponseOutputText(text="done", type="output_text", annotations=[])
    end = ResponseOutputMessage(id="2", type="message", role="assistant", content=[text], status="completed")
    run_section("OpenAI Agents", {"ws": ws, "shop": shop, "model": ScriptedModel([[call], [end]])})


def test_pydantic_ai(ws: safepoint.Workspace, shop: Path) -> None:
    pytest.importorskip("pydantic_ai.conversation_store", reason="pydantic-ai-slim is not installed")
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.models.test import TestModel

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        made = sum(isinstance(message, ModelResponse) for message in messages)
        call = ToolCallPart("migrate", {"table": "ab"[made : made + 1]})
        return ModelResponse(parts=[call if made < 2 else TextPart("done")])

    names = {"ws": ws, "shop": shop, "model": TestModel(), "tool_model": FunctionModel(answer)}
    run_section("Pydantic AI", names)


def test_langchain(ws: safepoint.Workspace, shop: Path) -> None:
    pytest.importorskip("langchain.agents.middleware", reason="langchain is not installed")
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage

    class Model(GenericFakeChatModel):
        def bind_tools(self, *_: object, **__: object) -> Model:
            return self

    call = AIMessage("", tool_calls=[{"name": "migrate", "args": {}, "id": "1"}])
    run_section("LangChain", {"ws": ws, "shop": shop, "model": Model(messages=iter([call, AIMessage("done")]))})


def test_python(shop: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shop.parent)
    names = {"shop": shop, "repository": repository, "session_id": str(uuid.uuid4())}
    exec(compile(examples("python.md"), "docs/python.md", "exec"), names)


def test_langgraph(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("langgraph.graph", reason="langgraph is not installed")
    monkeypatch.chdir(shop.parent)
    # LangGraph looks up the types of nodes in their module.
    (shop.parent / "example.py").write_text(examples("langgraph.md"))
    runpy.run_path(str(shop.parent / "example.py"), run_name="example")
