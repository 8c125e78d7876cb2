"""The environment of this process: where the home is, who asks, and which session it is for.

The rules are those of the library, the same as for the command ``safepoint``.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from pathlib import Path

from . import _native
from ._errors import UsageError


def _defaults() -> tuple[str | None, str | None, str | None, str]:
    # Names of variables that are no ASCII are none of ours.
    return _native.defaults({name: value for name, value in os.environ.items() if name.isascii()})


def default_home() -> str:
    """Returns the folder of checkpoints."""
    home = _defaults()[0]
    if home is None:
        raise UsageError(
            "cannot determine the Safepoint home directory: HOME is not set",
            code="usage",
            hints=("Name a folder with home= or SAFEPOINT_HOME.",),
        )
    return os.path.abspath(home)


def user_home() -> str | None:
    """Returns the user's home directory, which is no workspace."""
    home = _defaults()[1]
    return os.path.realpath(home) if home is not None and os.path.isdir(home) else None


def actor() -> str:
    """Returns the user and, where the environment tells, the agent."""
    return _defaults()[3]


def session() -> str | None:
    """Returns the session of the environment in its stored form; none if it is not an id."""
    return _defaults()[2]


def program() -> str | None:
    """Returns the command ``safepoint`` of this installation."""
    own = Path(sysconfig.get_path("scripts")) / "safepoint"
    if os.access(own, os.X_OK):
        return str(own)
    # A relative folder would be one of the workspace, which is not trusted.
    folders = [folder for folder in os.environ.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(folder)]
    return shutil.which("safepoint", path=os.pathsep.join(folders)) if folders else None


def database_helper() -> list[str]:
    """Returns the program that copies large SQLite databases."""
    found = program()
    return [] if found is None else [found, "--copy-database"]


def room_helper() -> list[str]:
    """Returns the program that enters the namespace of an attempt. Without it, attempts are copies."""
    found = program()
    return [] if found is None else [found, "--enter-attempt"]
