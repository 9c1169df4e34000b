"""Runs the tests of a folder with pytest: of one of Ludus's environments, or of a server whose code is an `app.py`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ludus.errors import UserError
from ludus_nemo_gym.hosted.source import ServerSource

#: Tests of a server import its code as in NeMo Gym, by its checkout or by its folder. A checkout may have a `nemo_gym`
#: of its own, so ours is imported first.
_PROGRAM = """
import sys, nemo_gym, pytest
count = int(sys.argv[1])
sys.path[:0] = sys.argv[2 + count:]
sys.exit(pytest.main(["-q", *sys.argv[2:2 + count]]))
"""

#: A checkout of NeMo Gym says so in its `pyproject.toml`: async tests need no mark.
_ASYNC = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function")
_CONFIGURATIONS = ("pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")


def run_tests(folder: Path) -> int:
    """Run the tests of a folder in a process of their own. Returns pytest's exit code."""
    if importlib.util.find_spec("pytest") is None:
        raise UserError("pytest, which runs the tests, is not installed", "pip install pytest pytest-asyncio")
    source = ServerSource.find(str(folder))
    command = [sys.executable, "-m", "pytest", "-q", str(folder)]
    if source is not None:
        arguments = [str(source.folder), *_async_options(source.folder)]
        command = [sys.executable, "-P", "-c", _PROGRAM, str(len(arguments)), *arguments, *source.search_path]
    return subprocess.run(command, check=False).returncode


def _async_options(folder: Path) -> Iterator[str]:
    """What makes async tests run, unless a configuration of pytest around the folder says how."""
    files = (place / name for place in (folder, *folder.parents) for name in _CONFIGURATIONS)
    configured = any(b"asyncio_mode" in file.read_bytes() for file in files if file.is_file())
    if importlib.util.find_spec("pytest_asyncio") is not None and not configured:
        yield from _ASYNC
