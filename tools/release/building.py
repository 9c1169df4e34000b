"""Builds wheels and source archives from the last commit, twice in different folders, and compares the digests."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

#: The folders of the distributions, from the root of the repository.
PROJECTS = (".", "packages/nemo-gym")


class ReleaseError(Exception):
    """A check of the release failed: one line says which."""


def build(root: Path, dist: Path) -> dict[str, str]:
    """Build all distributions into `dist`, and return the SHA-256 of each file. Two builds must give the same bytes."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        made = [_build_all(root, Path(first)), _build_all(root, Path(second))]
        digests = [{path.name: digest(path) for path in sorted(each.iterdir())} for each in made]
        differing = [name for name in digests[0] | digests[1] if digests[0].get(name) != digests[1].get(name)]
        if differing:
            raise ReleaseError(f"two builds of {', '.join(sorted(differing))} differ")
        dist.mkdir(parents=True, exist_ok=True)
        for path in made[0].iterdir():
            shutil.copyfile(path, dist / path.name)
    return digests[0]


def commit_time(root: Path) -> str:
    """The time of the last commit, in seconds: the date of every file in the archives."""
    return _git(root, "log", "-1", "--format=%ct").decode().strip()


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _build_all(root: Path, folder: Path) -> Path:
    """Unpack the last commit into a folder, and build every distribution there."""
    checkout, made = folder / "checkout", folder / "made"
    with tarfile.open(fileobj=BytesIO(_git(root, "archive", "--format=tar", "HEAD"))) as archive:
        archive.extractall(checkout, filter="data")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": commit_time(root)}
    for project in PROJECTS:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(made), str(checkout / project)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            raise ReleaseError(f"{project} cannot be built: {(done.stderr or done.stdout).strip()[-500:]}")
    return made


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True).stdout
