"""Runs the tests of a folder with pytest: of one of Ludus's environments, or of a server whose code is an `app.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ludus_nemo_gym.hosted.source import ServerSource

#: Tests of a server import its code as in NeMo Gym, by its checkout or by its folder. A checkout may have a `nemo_gym`
#: of its own, so ours is imported first.
_PROGRAM = """
import sys, nemo_gym, pytest
sys.path[:0] = sys.argv[2:]
sys.exit(pytest.main(["-q", sys.argv[1]]))
"""


def run_tests(folder: Path) -> int:
    """Run the tests of a folder in a process of their own. Returns pytest's exit code."""
    source = ServerSource.find(str(folder))
    command = [sys.executable, "-m", "pytest", "-q", str(folder)]
    if source is not None:
        command = [sys.executable, "-P", "-c", _PROGRAM, str(source.folder), *source.search_path]
    return subprocess.run(command, check=False).returncode
