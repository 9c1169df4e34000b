"""Runs commands without the variables of the shell that a release was started in."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from building import ReleaseError

#: Variables that would lead a command to the checkout or to another environment, or have every command compile anew.
_FOREIGN = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")

#: How long one command may take. Compiling llama.cpp for the extra `local` takes the longest, an hour under load.
MINUTES = 120

#: How lines begin that pip prints after the reason.
_ADVICE = ("hint:", "note:", "[end of output]", "╰─>", "[notice]")


class CommandFailed(ReleaseError):
    """A command failed. The last line that it printed is the reason, but for pip's advice; `printed` is everything."""

    def __init__(self, command: str, printed: str) -> None:
        lines = [line.strip() for line in printed.strip().splitlines()]
        reasons = [line for line in lines if line and not line.startswith(_ADVICE)]
        super().__init__(f"{command}: {(reasons or lines)[-1][:300]}")
        self.printed = printed


def run(command: list[str], folder: Path, **variables: str) -> str:
    """Run a command in a folder, and return what it printed."""
    environment = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
    words = " ".join(os.path.basename(word) for word in command[:4] if "\n" not in word)
    with subprocess.Popen(
        command,
        cwd=folder,
        env={**environment, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as started:
        try:
            printed, complaints = started.communicate(timeout=60 * MINUTES)
        except BaseException as error:
            os.killpg(started.pid, signal.SIGKILL)  # with everything that it started
            if isinstance(error, subprocess.TimeoutExpired):
                raise CommandFailed(words, f"timed out after {MINUTES} minutes") from error
            raise
    if started.returncode:
        raise CommandFailed(words, complaints.strip() or printed.strip() or f"exit code {started.returncode}")
    return printed
