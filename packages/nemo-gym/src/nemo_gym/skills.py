"""Skills of an agent: folders with instructions that its program reads."""

from __future__ import annotations

import shutil
from pathlib import Path

from nemo_gym.path_utils import find_path


def stage_skills(path: str, dest_skills_dir: Path) -> None:
    """Copy a folder of skills to `dest_skills_dir`, which must not exist. `ValueError` if `path` is no folder."""
    source = find_path(path)
    if source is None or not source.is_dir():
        raise ValueError(f"skills: {path} is not a folder")
    shutil.copytree(source, dest_skills_dir)
