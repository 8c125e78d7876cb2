"""One call in a process of its own: a request on standard input, the answer on standard output."""

from __future__ import annotations

import base64
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
    beside = [base64.b64decode(value) for value in request["beside"]]
    try:
        answer, _ = home.call_encoded(request["verb"], request["arguments"].encode(), beside, request["interruptible"])
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
    sys.stdout.write(answer.decode())
    return 0

