"""Build backend: that of maturin, with the command ``safepoint`` in the wheel.

maturin packs either a Python module or programs, so the program is built first and given to it as data.

Settings by environment: ``SAFEPOINT_PROFILE`` is the cargo profile (``release`` if not set), ``SAFEPOINT_PROGRAM`` a program that was built
before, ``CARGO_BUILD_TARGET`` the platform. Wheels for other machines come from ``.ci/wheels``: the program is linked against this
machine's C library here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import maturin

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "target" / "wheel-data"

get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_editable = maturin.get_requires_for_build_editable


def _profile() -> str:
    return os.environ.get("SAFEPOINT_PROFILE") or "release"


def _target_folder() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")


def _program() -> Path:
    """Builds the command, unless it is there already."""
    given = os.environ.get("SAFEPOINT_PROGRAM")
    if given:
        return Path(given)
    if "manylinux" in os.environ.get("MATURIN_PEP517_ARGS", ""):
        raise RuntimeError("the command in such a wheel would need this machine's C library: use .ci/wheels")
    profile = _profile()
    command = ["cargo", "build", "--locked", "--package", "safepoint-cli", "--bin", "safepoint", "--profile", profile]
    subprocess.run(command, cwd=ROOT, check=True)
    folder = _target_folder() / os.environ.get("CARGO_BUILD_TARGET", "")
    return folder / ("debug" if profile == "dev" else profile) / "safepoint"


def _prepare() -> None:
    """Puts the command where maturin takes data from, and sets the cargo profile of the module."""
    scripts = DATA / "scripts"
    shutil.rmtree(DATA, ignore_errors=True)
    scripts.mkdir(parents=True)
    shutil.copy2(_program(), scripts / "safepoint")
    # Dependencies that both have in common are compiled once.
    os.environ.setdefault("CARGO_TARGET_DIR", str(_target_folder()))
    os.environ.setdefault("MATURIN_PEP517_ARGS", f"--profile {_profile()}")


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: dict[str, Any] | None = None
) -> str:
    # maturin looks for the folder of the data already here.
    DATA.mkdir(parents=True, exist_ok=True)
    return str(maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings))


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    raise RuntimeError("there is no source distribution: build wheels in a clone of the repository")


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    _prepare()
    return str(maturin.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    _prepare()
    return str(maturin.build_editable(wheel_directory, config_settings, metadata_directory))
