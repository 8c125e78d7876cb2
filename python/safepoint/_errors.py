"""Failures: one class for each kind in docs/errors.md."""

from __future__ import annotations

import json
from typing import Any, NoReturn


class SafepointError(Exception):
    """A failure. Unless docs/errors.md says otherwise, nothing was changed.

    ``code`` is a stable name for programs, ``kind`` the word for its class, ``hints`` are next steps, and ``causes`` the causes,
    nearest first.
    """

    kind: str = "failed"

    def __init__(
        self,
        message: str,
        *,
        code: str = "failed",
        hints: tuple[str, ...] = (),
        causes: tuple[str, ...] = (),
        kind: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message: str = message
        self.code: str = code
        self.hints: tuple[str, ...] = tuple(hints)
        self.causes: tuple[str, ...] = tuple(causes)
        if kind is not None:
            self.kind = kind

    def __str__(self) -> str:
        lines = [": ".join((self.message, *self.causes))]
        lines.extend(f"Hint: {hint}" for hint in self.hints)
        return "\n".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), self.message, self.code, self.hints, self.causes, self.kind)


class OperationFailed(SafepointError):
    """It did not work, and nothing changed. (``failed``)"""

    kind = "failed"


class UsageError(SafepointError, ValueError):
    """Invalid arguments. (``usage``)"""

    kind = "usage"


class NotFound(SafepointError, LookupError):
    """No such workspace, checkpoint, plan or path. (``not_found``)"""

    kind = "not_found"


class Busy(SafepointError, TimeoutError):
    """Another process holds it. (``busy``)"""

    kind = "busy"


class Conflict(SafepointError):
    """A guard, or an obstacle in the workspace, refuses it. (``conflict``)"""

    kind = "conflict"


class Damaged(SafepointError):
    """Data on disk is not what was written. (``damaged``)"""

    kind = "damaged"


class Interrupted(SafepointError):
    """The caller asked to stop. (``interrupted``)"""

    kind = "interrupted"


class InternalError(SafepointError):
    """A defect of Safepoint. (``internal``)"""

    kind = "internal"


class RollbackFailed(SafepointError):
    """A transaction had to be rolled back, and that failed. ``__cause__`` is the first exception; ``failure`` the second.

    The transaction stays open: ``Workspace.unfinished`` names it.
    """

    failure: SafepointError | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), {"failure": self.failure})


KINDS: dict[str, type[SafepointError]] = {
    kind.kind: kind
    for kind in (OperationFailed, UsageError, NotFound, Busy, Conflict, Damaged, Interrupted, InternalError)
}


def _again(
    of: type[SafepointError],
    message: str,
    code: str,
    hints: tuple[str, ...],
    causes: tuple[str, ...],
    kind: str,
) -> SafepointError:
    return of(message, code=code, hints=hints, causes=causes, kind=kind)


def error_of(failure: dict[str, Any]) -> SafepointError:
    """Returns the exception of a failure."""
    kind = str(failure["kind"])
    return KINDS.get(kind, SafepointError)(
        failure["message"],
        code=failure["code"],
        hints=tuple(failure["hints"]),
        causes=tuple(failure["causes"]),
        kind=kind,
    )


def raise_failure(text: bytes) -> NoReturn:
    """Raises the exception of a failure that the native module returned."""
    raise error_of(json.loads(text))
