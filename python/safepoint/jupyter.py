"""Magics for IPython and Jupyter: ``%safepoint [label]``, ``%rollback [checkpoint]``, ``%%transaction``.

They take files back, not variables: loading pickled variables runs code, open files and connections do not come back, and half a kernel is not
all or nothing. A rollback names the variables that were bound since, and advises a restart.
"""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from ._errors import SafepointError, UsageError
from ._records import Checkpoint, Rollback
from ._workspace import Workspace

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_NAMES_MAX = 12


class CellFailed(Exception):
    """The cell of a transaction failed. Its own traceback was shown before."""

    def _render_traceback_(self) -> list[str]:
        return [f"CellFailed: {self}"]


class _Magics:
    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._workspace: Workspace | None = None
        self._folder: str | None = None
        #: Variables and their values at each checkpoint of this kernel.
        self._bound: dict[str, dict[str, int]] = {}

    def _open(self) -> Workspace:
        folder = os.getcwd()
        if self._workspace is None or self._folder != folder:
            self._workspace, self._folder = Workspace.open(folder), folder
        return self._workspace

    def _variables(self) -> dict[str, int]:
        hidden: Any = self._shell.user_ns_hidden
        spaces: dict[str, Any] = self._shell.user_ns
        return {
            name: id(value)
            for name, value in list(spaces.items())
            if not name.startswith("_") and name not in hidden
        }

    def _note(self, checkpoint: Checkpoint) -> None:
        self._bound[checkpoint.id] = self._variables()

    def safepoint(self, line: str) -> Checkpoint:
        """Takes a checkpoint of the notebook's folder: %safepoint [label]"""
        made = self._open().create(line.strip() or None, tool="jupyter")
        self._note(made)
        print(f"checkpoint {made.id}: {made.files_count} files")
        return made

    def rollback(self, line: str) -> Rollback:
        """Rolls the files back: %rollback [checkpoint] [--dry-run] [--notebook]"""
        try:
            words = shlex.split(line)
        except ValueError as error:
            raise UsageError(f"cannot understand %rollback {line!r}: {error}", code="usage") from None
        flags = {word for word in words if word.startswith("--")}
        names = [word for word in words if not word.startswith("--")]
        unknown = flags - {"--dry-run", "--notebook"}
        if unknown or len(names) > 1:
            raise UsageError("usage: %rollback [checkpoint] [--dry-run] [--notebook]", code="usage")
        workspace = self._open()
        target = workspace.show(names[0] if names else "@")
        dry = "--dry-run" in flags
        done = self._carry_out(workspace, target, dry=dry, notebook="--notebook" in flags)
        verb = "would be" if dry else "were"
        print(f"{done.restored_files_count} files {verb} restored, {done.removed_files_count} removed")
        if not dry:
            self._advise(target)
        return done

    def _carry_out(self, workspace: Workspace, target: Checkpoint, *, dry: bool, notebook: bool) -> Rollback:
        kept = None if notebook else self._notebook(workspace)
        if kept is None:
            return workspace.rollback(target, dry_run=dry)
        print(f"{kept} is open in the browser, which would overwrite it: it stays as it is (--notebook takes it, too)")
        return workspace.rollback(target, leave=[kept], dry_run=dry)

    def _notebook(self, workspace: Workspace) -> str | None:
        """Returns the running notebook's path in the workspace, if the server tells it."""
        named = os.environ.get("JPY_SESSION_NAME") or self._shell.user_ns.get("__vsc_ipynb_file__")
        if not isinstance(named, str) or not named.endswith(".ipynb"):
            return None
        path = os.path.realpath(named)
        below = os.path.relpath(path, os.path.realpath(workspace.root))
        return None if below.startswith("..") else below

    def _advise(self, target: Checkpoint) -> None:
        before = self._bound.get(target.id)
        now = self._variables()
        if before is None:
            print("Variables stay as they are. Restart the kernel if they depend on the files.")
            return
        since = sorted(name for name, value in now.items() if before.get(name) != value)
        if since:
            shown = ", ".join(since[:_NAMES_MAX]) + (", ..." if len(since) > _NAMES_MAX else "")
            print(f"Bound since then, and not rolled back: {shown}. Restart the kernel to be sure.")

    def transaction(self, line: str, cell: str) -> None:
        """Runs a cell whose files are kept as a whole or not at all: %%transaction [name]"""
        workspace = self._open()
        kept = self._notebook(workspace)
        # The browser would overwrite the notebook that runs.
        block = workspace.transaction(line.strip() or "cell", leave=[] if kept is None else [kept])
        try:
            with block:
                if block.checkpoint is not None:
                    self._note(block.checkpoint)
                # IPython 8 has no type for it.
                run_cell: Any = self._shell.run_cell
                result = run_cell(cell)
                if not result.success:
                    raise CellFailed("the cell failed")
        except CellFailed as failed:
            done = block.rolled_back
            if done is not None:
                counts = f"{done.restored_files_count} files restored, {done.removed_files_count} removed"
                failed.args = (f"the cell failed and was rolled back: {counts}",)
            raise


def load(shell: InteractiveShell) -> None:
    """Registers the magics in a shell."""
    magics = _Magics(shell)

    def shown(act: Any) -> Any:
        def run(*words: str) -> Any:
            try:
                return act(*words)
            except SafepointError as error:
                # One line is enough; the traceback would be of the magics.
                from IPython.core.error import UsageError as Shown

                raise Shown(str(error)) from None

        run.__doc__ = act.__doc__
        return run

    shell.register_magic_function(shown(magics.safepoint), "line", "safepoint")
    shell.register_magic_function(shown(magics.rollback), "line", "rollback")
    shell.register_magic_function(shown(magics.transaction), "cell", "transaction")
