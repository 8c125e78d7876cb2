"""Drives the server with the official Python client: checkpoint, preview, rollback, undo."""

import asyncio
import pathlib
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import get_default_environment, stdio_client
import os


async def main(binary: str, project: str) -> None:
    file = pathlib.Path(project, "python.txt")
    file.write_text("good\n")
    environment = {**get_default_environment(), "SAFEPOINT_HOME": os.environ["SAFEPOINT_HOME"]}
    parameters = StdioServerParameters(command=binary, args=["mcp", "--workspace", project], env=environment)
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        assert len(tools) == 15, tools

        async def call(name: str, **arguments: object) -> dict:
            result = await session.call_tool(name, arguments)
            content = getattr(result, "structuredContent", None) or getattr(result, "structured_content", None)
            failed = getattr(result, "isError", None) or getattr(result, "is_error", None)
            assert not failed, content
            return content

        await call("checkpoint", label="good")
        file.write_text("bad\n")
        assert (await call("changes"))["counts"] == {"modified": 1}
        token = (await call("preview", to="good"))["token"]
        done = await call("rollback", token=token)
        assert done["read_again"] == ["python.txt"] and file.read_text() == "good\n", done
        await call("undo")
        assert file.read_text() == "bad\n"
        assert (await call("attempts"))["attempts"] == []
        timeline = await session.read_resource("safepoint://timeline")
        assert "undo" in timeline.contents[0].text
        assert len((await session.list_prompts()).prompts) == 3
    print("passed")


asyncio.run(main(*sys.argv[1:]))
