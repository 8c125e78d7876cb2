"""Checkpoints and rollback for the work of AI agents.

>>> import safepoint
>>> ws = safepoint.Workspace.open("shop")                   # doctest: +SKIP
>>> cp = ws.create("tests pass")                            # doctest: +SKIP
>>> with ws.transaction("refactor"):                        # doctest: +SKIP
...     agent()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._aio import AsyncTransaction, AsyncWorkspace
from ._attempts import (
    AsyncAttempts,
    Attempt,
    AttemptComparison,
    AttemptKept,
    AttemptRan,
    Attempts,
    TestCounts,
)
from ._errors import (
    Busy,
    Conflict,
    Damaged,
    InternalError,
    Interrupted,
    NotFound,
    OperationFailed,
    RollbackFailed,
    SafepointError,
    UsageError,
)
from ._native import version as _version
from ._records import Change, Checkpoint, Counters, Entry, Part, Rollback, Status
from ._transaction import Transaction, Unfinished
from ._workspace import Workspace

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__: str = _version()

__all__ = [
    "AsyncAttempts",
    "AsyncTransaction",
    "AsyncWorkspace",
    "Attempt",
    "AttemptComparison",
    "AttemptKept",
    "AttemptRan",
    "Attempts",
    "Busy",
    "Change",
    "Checkpoint",
    "Conflict",
    "Counters",
    "Damaged",
    "Entry",
    "InternalError",
    "Interrupted",
    "NotFound",
    "OperationFailed",
    "Part",
    "Rollback",
    "RollbackFailed",
    "SafepointError",
    "Status",
    "TestCounts",
    "Transaction",
    "Unfinished",
    "UsageError",
    "Workspace",
    "__version__",
]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Registers the magics: ``%load_ext safepoint``."""
    from .jupyter import load

    load(shell)
