"""A model for the program of the Claude Agent SDK: the HTTP interface of the real one, with a script of turns."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def _events(message: dict[str, Any], block: dict[str, Any]) -> list[dict[str, Any]]:
    if block["type"] == "tool_use":
        first: dict[str, Any] = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        first, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
    end = {"type": "message_delta", "delta": {"stop_reason": message["stop_reason"]}, "usage": message["usage"]}
    return [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": first},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        end,
        {"type": "message_stop"},
    ]


def _handler(turns: list[dict[str, Any]]) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "/v1/messages" not in self.path or "count_tokens" in self.path:
                self._answer("application/json", b'{"input_tokens": 1}')
                return
            # Requests without tools ask for a title.
            block = turns.pop(0) if given.get("tools") and turns else {"type": "text", "text": "done"}
            message = {
                "id": f"msg_{time.time_ns()}", "type": "message", "role": "assistant", "model": given["model"],
                "usage": {"input_tokens": 1, "output_tokens": 1}, "stop_sequence": None,
                "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
            }  # fmt: skip
            if not given.get("stream"):
                self._answer("application/json", json.dumps({**message, "content": [block]}).encode())
                return
            text = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in _events(message, block))
            self._answer("text/event-stream", text.encode())

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler


@contextmanager
def serve(folder: Path) -> Iterator[tuple[list[dict[str, Any]], dict[str, str]]]:
    """Yields the turns, and the environment of a program that talks to this model."""
    turns: list[dict[str, Any]] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(turns))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield turns, {
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}",
            "ANTHROPIC_API_KEY": "test",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CONFIG_DIR": str(folder / "config"),
        }
    finally:
        server.shutdown()
        server.server_close()
