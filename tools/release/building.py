"""Builds wheels and source archives from the last commit, twice in different folders, and compares the digests."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from io import BytesIO
from pathlib import Path

#: The folders of the distributions, from the root of the repository, and the names of their files.
CORE = "."
PROJECTS = {
    CORE: "ludus_gym",
    "packages/bench": "ludus_bench",
    "packages/browser": "ludus_browser",
    "packages/credit": "ludus_credit",
    "packages/data": "ludus_data",
    "packages/inspect": "ludus_inspect",
    "packages/lab": "ludus_lab",
    "packages/nemo-gym": "ludus_nemo_gym",
    "packages/qualify": "ludus_qualify",
    "packages/sandboxes": "ludus_sandboxes",
    "packages/telemetry": "ludus_telemetry",
    "packages/trainers": "ludus_trainers",
    "packages/transformers": "ludus_transformers",
}

#: How a version is written, in `src/ludus/__init__.py` or in a package's `pyproject.toml`.
_VERSION = re.compile(r'^(?:__version__|version) = "(.+)"$', re.MULTILINE)


class ReleaseError(Exception):
    """A check of the release failed: one line says which."""


def version_of(root: Path) -> str:
    """The version that the last commit has, in all its distributions."""
    versions = {}
    for project in PROJECTS:
        file = "src/ludus/__init__.py" if project == CORE else f"{project}/pyproject.toml"
        match = _VERSION.search(_committed(root, file))
        if match is None:
            raise ReleaseError(f"{file} has no version")
        versions[file] = match[1]
    if len(set(versions.values())) > 1:
        listed = ", ".join(f"{version} in {file}" for file, version in versions.items())
        raise ReleaseError(f"the versions differ: {listed}")
    return next(iter(versions.values()))


def check_changelog(root: Path, version: str) -> None:
    """Refuse a version for which the committed CHANGELOG.md has no section, or an empty one."""
    sections = re.split(r"^## ", _committed(root, "CHANGELOG.md"), flags=re.MULTILINE)[1:]
    of_version = [each for each in sections if re.match(rf"{re.escape(version)}(?![\w.])", each)]
    if not of_version:
        heads = ", ".join(each.splitlines()[0] for each in sections[:3]) or "none"
        raise ReleaseError(
            f"CHANGELOG.md has no section for version {version} (it has: {heads}). "
            f"Write `## {version}` above what it brings, and commit"
        )
    if not any(line.strip() for line in of_version[0].splitlines()[1:]):
        raise ReleaseError(f"the section of {version} in CHANGELOG.md is empty. Write what it brings, and commit")


def build(root: Path, dist: Path) -> dict[str, str]:
    """Build all distributions into `dist`, and return the SHA-256 of each file. Two builds must give the same bytes."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        made = [_build_all(root, Path(first)), _build_all(root, Path(second))]
        digests = [{path.name: digest(path) for path in sorted(each.iterdir())} for each in made]
        differing = [name for name in digests[0] | digests[1] if digests[0].get(name) != digests[1].get(name)]
        if differing:
            raise ReleaseError(f"two builds of {', '.join(sorted(differing))} differ")
        for project, name in PROJECTS.items():
            for archive in made[0].glob(f"{name}-*.tar.gz"):
                check_complete(root, project, archive)
        dist.mkdir(parents=True, exist_ok=True)
        for path in made[0].iterdir():
            shutil.copyfile(path, dist / path.name)
    return digests[0]


def check_complete(root: Path, project: str, archive: Path) -> None:
    """Refuse a source archive that lacks a committed file. Links are not asked for: their targets are files too."""
    listed = _git(root / project, "ls-tree", "-r", "-z", "HEAD").decode().split("\0")
    committed = {line.split("\t", 1)[1] for line in listed if line and not line.startswith("120000")}
    with tarfile.open(archive) as packed:
        held = {name.split("/", 1)[1] for name in packed.getnames() if "/" in name}
    missing = sorted(committed - held)
    if missing:
        raise ReleaseError(f"{archive.name} lacks {len(missing)} committed files, for example {missing[0]}")


def commit_time(root: Path) -> str:
    """The time of the last commit, in seconds: the date of every file in the archives."""
    return _git(root, "log", "-1", "--format=%ct").decode().strip()


def commit(root: Path) -> str:
    """The short name of the last commit."""
    return _git(root, "log", "-1", "--format=%h").decode().strip()


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a source archive, and return the folder of its content."""
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (content,) = folder.iterdir()
    return content


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


def _committed(root: Path, file: str) -> str:
    """A file as the last commit has it; empty if it has none."""
    try:
        return _git(root, "show", f"HEAD:{file}").decode()
    except subprocess.CalledProcessError:
        return ""


def _git(root: Path, *words: str) -> bytes:
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True).stdout
