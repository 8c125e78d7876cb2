"""Calls of the native module: homes by process, arguments, failures, logs.

After a fork the child forgets the parent's homes, closes the locks that it inherited, and opens a home anew at its first use.
"""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import weakref
from typing import Any

from . import _native, _surroundings
from ._errors import UsageError, raise_failure
from ._signals import held

_log = logging.getLogger("safepoint")
_loggers = {name: logging.getLogger(f"safepoint.{name}") for name in ("catalog", "part", "store", "verb", "workspace")}
_NOT_LOGGED = 255

_FORK_WAIT_SECONDS = 30.0
_SQLITE = b"SQLite format 3\0"
#: Program of the other process. Neither the current directory nor another relative folder is searched for modules: workspaces are not
#: trusted. The last folder is that of this package.
_APART = """
import sys
sys.path[:] = [folder for folder in sys.path if folder.startswith("/") and folder != "/"] + sys.argv[1:]
from safepoint._apart import main
sys.exit(main())
"""

_homes: weakref.WeakSet[Home] = weakref.WeakSet()
#: Homes of a parent process. Never used again, and never destroyed: their locks may be held forever.
_inherited: list[_native.Home] = []


def path_argument(path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> Any:
    """Returns a path as an argument: text, or its bytes where they are none."""
    raw = os.fsencode(path)
    if b"\0" in raw:
        raise UsageError("a path must not contain NUL", code="bad_input")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return {"bytes": base64.b64encode(raw).decode("ascii")}


def path_of(value: Any) -> str:
    """Returns a path of a result, as ``os.fsdecode`` gives it."""
    if isinstance(value, dict):
        return os.fsdecode(base64.b64decode(value["bytes"]))
    return os.fsdecode(str(value).encode("utf-8"))


class Home:
    """An open home, in whichever process it is used."""

    def __init__(self, path: str, *, session: str | None, lock_wait: float) -> None:
        self.path: str = path
        self._session = session
        self._lock_wait_ms = int(max(0.0, lock_wait) * 1000)
        self._lock = threading.Lock()
        self._native: _native.Home | None = None
        self._closed = False
        _homes.add(self)

    def native(self) -> _native.Home:
        with self._lock:
            if self._closed:
                raise UsageError(
                    "the workspace is closed",
                    code="usage",
                    hints=("Open it again: safepoint.Workspace.open(path)",),
                )
            if self._native is None:
                settings = {
                    "user_home": _surroundings.user_home(),
                    "actor": _surroundings.actor(),
                    "session_id": self._session,
                    "lock_wait_ms": self._lock_wait_ms,
                    "helper": _surroundings.database_helper(),
                    "room_helper": _surroundings.room_helper(),
                }
                opened, failure = _native.Home.open(self.path, json.dumps(settings).encode())
                if opened is None:
                    raise_failure(failure)
                self._native = opened
            return self._native

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._native = None

    def forget(self) -> None:
        """Forgets what the parent process opened."""
        self._lock = threading.Lock()
        if self._native is not None:
            _inherited.append(self._native)
            self._native = None

    def call(
        self, verb: str, *, interruptible: bool = True, folder: str | None = None, **arguments: Any
    ) -> Any:
        """Calls a verb. ``folder`` is the workspace that it reads, if any.

        Values of threads are pairs of an encoding and bytes, in arguments and in results. Their bytes never become text.
        """
        beside: list[bytes] = []

        def position(value: Any) -> int:
            if not isinstance(value, (bytes, bytearray)):
                raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
            beside.append(bytes(value))
            return len(beside) - 1

        try:
            encoded = json.dumps(arguments, default=position).encode()
        except (TypeError, ValueError) as error:
            raise UsageError(f"invalid argument of {verb}: {error}", code="usage") from error
        answer, found = self.call_encoded(verb, encoded, beside, interruptible, folder)
        result = json.loads(answer)
        if found:
            for state in result.get("states") or (result,):
                _put_values(state, found)
        return result

    def call_encoded(
        self, verb: str, encoded: bytes, beside: list[bytes], interruptible: bool, folder: str | None = None
    ) -> tuple[bytes, list[bytes]]:
        """Calls a verb with JSON and the bytes that it names by position; returns such a pair."""
        native = self.native()
        level = _log.getEffectiveLevel()
        _native.set_log_level(min(level, _NOT_LOGGED) if _log.isEnabledFor(level) else _NOT_LOGGED)
        found: list[bytes] = []
        try:
            if folder is not None and has_open_database(folder):
                done, answer = _call_apart(self, verb, encoded, beside, interruptible)
            else:
                done, answer, found = native.call(verb, encoded, interruptible, beside)
        finally:
            for number, target, text in _native.drain_logs():
                _loggers.get(target, _log).log(number, "%s", text)
        if not done:
            raise_failure(answer)
        return answer, found


def _put_values(state: dict[str, Any], found: list[bytes]) -> None:
    """Puts the bytes of a state's values where the JSON has their positions."""
    values = [state["body"], *(value for _, value in state["channels"].values()), *(write[3] for write in state["writes"])]
    for value in values:
        if value is not None:
            value[1] = found[value[1]]


def has_open_database(folder: str) -> bool:
    """Returns true if this process has a SQLite database in the folder open.

    Closing a file drops all POSIX locks of the process on it, those of SQLite, too (sqlite.org/howtocorrupt.html, 2.2). So such a
    folder is read by another process. The check reads open descriptors only: opening the file is what must not happen.
    """
    prefix = os.path.realpath(folder) + os.sep
    try:
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return False
    for name in descriptors:
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
            if target.startswith(prefix) and os.pread(int(name), len(_SQLITE), 0) == _SQLITE:
                return True
        except OSError:
            continue
    return False


def _call_apart(
    home: Home, verb: str, arguments: bytes, beside: list[bytes], interruptible: bool
) -> tuple[bool, bytes]:
    """Calls a verb in another process. Verbs that read a folder return no values of threads."""
    request = {
        "home": path_argument(home.path),
        "session": home._session,
        "lock_wait_ms": home._lock_wait_ms,
        "verb": verb,
        "arguments": arguments.decode(),
        "beside": [base64.b64encode(value).decode("ascii") for value in beside],
        "interruptible": interruptible,
    }
    encoded = json.dumps(request).encode()
    with contextlib.nullcontext() if interruptible else held():
        code, answer, errors = _answer_of(encoded)
    if code not in (0, 1) or not answer:
        failure = {
            "code": "internal",
            "kind": "internal",
            "message": "the process that captures the workspace ended early",
            "causes": [errors.decode(errors="replace").strip()[-500:]],
            "hints": [],
        }
        return False, json.dumps(failure).encode()
    return code == 0, answer


def _answer_of(request: bytes) -> tuple[int, bytes, bytes]:
    """Runs the other process to its end. It has a session of its own, so that Ctrl-C in a terminal reaches this process alone."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen(
        [sys.executable, "-c", _APART, package],
        cwd="/",
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        start_new_session=True,
        **pipes,  # type: ignore[call-overload]
    )
    given: bytes | None = request
    raised: BaseException | None = None
    while True:
        try:
            answer, errors = child.communicate(given)
            break
        except BaseException as error:
            if raised is not None and isinstance(error, Exception):
                raise
            # It stops at the next point at which nothing has changed, and its end is awaited.
            given, raised = None, raised or error
            child.send_signal(signal.SIGINT)
    if raised is not None:
        raise raised
    return child.returncode, answer, errors


def _before_fork() -> None:
    if not _native.before_fork(_FORK_WAIT_SECONDS):
        _log.warning("a fork did not wait for a call of Safepoint that still runs")


def _after_fork_in_parent() -> None:
    _native.after_fork(False)


def _after_fork_in_child() -> None:
    _native.after_fork(True)
    for home in list(_homes):
        home.forget()
    if _inherited:
        _close_inherited_locks()


def _close_inherited_locks() -> None:
    """Closes descriptors that share a lock with the parent: the lock would outlive the parent otherwise."""
    mine = {os.path.realpath(home.path) for home in _homes}
    for name in os.listdir("/proc/self/fd"):
        try:
            with open(f"/proc/self/fdinfo/{name}", encoding="ascii", errors="replace") as facts:
                text = facts.read()
            if "FLOCK" not in text and "OFDLCK" not in text:
                continue
            target = os.readlink(f"/proc/self/fd/{name}")
            in_home = any(target == home or target.startswith(home + os.sep) for home in mine)
            if in_home or target in roots:
                os.close(int(name))
        except OSError:
            continue


#: Folders of the workspaces that this process opened.
roots: set[str] = set()

os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
