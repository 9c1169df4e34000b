"""Which files of an agent's output folder are its work, and which are records of the run."""

from __future__ import annotations

from pathlib import Path

IGNORE_FILES = frozenset(
    {
        "finish_params.json",
        "history.json",
        "history.pkl",
        "inprogress_history.json",
        "metadata.json",
        "log.txt",
        "reference_files",
    }
)


def is_deliverable(path: Path) -> bool:
    """Whether the path is a file of the agent's work."""
    return path.is_file() and path.name not in IGNORE_FILES
