"""One call in a process of its own: a request on standard input, the answer on standard output."""

from __future__ import annotations

import json
import signal
import sys

from ._calls import Home, path_of
from ._errors import SafepointError


def main() -> int:
    request = json.load(sys.stdin)
    if not request["interruptible"]:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    home = Home(path_of(request["home"]), session=request["session"], lock_wait=request["lock_wait_ms"] / 1000)
    try:
        answer = home.call(request["verb"], interruptible=request["interruptible"], **request["arguments"])
    except SafepointError as error:
        failure = {
            "code": error.code,
            "kind": error.kind,
            "message": error.message,
            "causes": list(error.causes),
            "hints": list(error.hints),
        }
        json.dump(failure, sys.stdout)
        return 1
    json.dump(answer, sys.stdout)
    return 0

