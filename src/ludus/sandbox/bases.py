"""Local root file systems that stand for images which Dockerfiles are built on: `ubuntu:24.04` is a folder here.

The table of all users of this machine is `bases.json` in the cache (`ludus sandbox base` writes it). A setting adds to
it for one run. Names may be patterns: `python:*`.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from ludus.errors import UserError
from ludus.sandbox.private_folders import temporary_name

#: What `docker` adds to a short name.
_PREFIXES = ("docker.io/library/", "docker.io/", "library/")
_SUITE = re.compile(r"[a-z][a-z0-9.-]{0,40}")


def cache_folder() -> Path:
    """Where images, bases and builds are kept. Not in root's home: the user of a sandbox must be able to walk there.

    The variable LUDUS_CACHE names another folder.
    """
    if named := os.environ.get("LUDUS_CACHE"):
        return Path(named).absolute()
    if os.geteuid() == 0:
        return Path("/var/cache/ludus")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ludus"


class Bases:
    """The bases of this machine, and those of a setting in front of them."""

    def __init__(self, setting: Mapping[str, str] | None = None, cache: Path | None = None) -> None:
        self._cache = cache or cache_folder()
        self._setting = dict(setting or {})

    @property
    def table(self) -> dict[str, str]:
        """The folder or archive for each name or pattern."""
        try:
            known = json.loads((self._cache / "bases.json").read_text())
        except (OSError, ValueError):
            known = {}
        return {**(known if isinstance(known, dict) else {}), **self._setting}

    def find(self, image: str) -> Path | None:
        """The base for an image, or None. A name comes before a pattern, and a long pattern before a short one."""
        table, names = self.table, _names(image)
        patterns = sorted(table, key=lambda name: ("*" in name, -len(name)))
        for pattern in patterns:
            if any(fnmatch.fnmatchcase(name, pattern) for name in names):
                path = Path(table[pattern]).expanduser()
                if not path.exists():
                    raise UserError(f"the base {pattern} is {path}, which does not exist", hint_for(image))
                return path.resolve()
        return None

    def add(self, names: list[str], path: Path) -> None:
        """Let a folder or an archive stand for these names, for all runs on this machine."""
        if not path.exists():
            raise UserError(f"{path} does not exist", "Name the folder or the tar archive of a root file system")
        table = {**Bases(cache=self._cache).table, **dict.fromkeys(names, str(path.resolve()))}
        self._cache.mkdir(parents=True, exist_ok=True)
        with temporary_name(self._cache) as (new, _):
            new.write_text(json.dumps(table, indent=2) + "\n")
            new.rename(self._cache / "bases.json")


def hint_for(image: str) -> str:
    """What to type if an image has no base."""
    return f"Make one: ludus sandbox base debian --for {image}, or with the path of a root file system for debian"


def make_debian(suite: str = "bookworm", mirror: str | None = None, cache: Path | None = None) -> Path:
    """A small Debian in the cache, made from Debian's packages; the one that is there already, if it is.

    The mirror is by default the one that this machine's apt uses.
    """
    if not _SUITE.fullmatch(suite):
        raise UserError(f"{suite!r:.60} is not a release of Debian", "Example: --suite bookworm")
    target = (cache or cache_folder()) / "bases" / f"debian-{suite}"
    if target.is_dir():
        return target
    if os.geteuid() != 0:
        raise UserError("debootstrap needs root", "Run the command as root, or name an existing folder")
    if shutil.which("debootstrap") is None:
        raise UserError("debootstrap is not installed", "Install it with: apt-get install -y debootstrap")
    with temporary_name(target.parent) as (new, lock):
        command = ["debootstrap", "--variant=minbase", suite, str(new)]
        command += [server] if (server := mirror or _own_mirror()) else []
        ended = subprocess.run(command, capture_output=True, text=True, check=False, pass_fds=[lock])
        if ended.returncode != 0:
            last = next(reversed([line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]), "")
            raise UserError(f"debootstrap {suite} failed: {last:.200}", "Check --suite and --mirror")
        for left in (new / "var/cache/apt/archives").glob("*.deb"):
            left.unlink()
        new.chmod(0o755)
        new.rename(target)
    return target


def _own_mirror() -> str | None:
    """The first mirror of Debian's packages in this machine's settings of apt."""
    folder = Path("/etc/apt")
    for path in (folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))):
        try:
            text = path.read_text()
        except OSError:
            continue
        if source := re.search(r"^(?:URIs:\s*|deb\s+(?:\[[^\]]*\]\s+)?)(https?://\S+)", text, re.MULTILINE):
            return source[1]
    return None


def _names(image: str) -> list[str]:
    """The ways to write an image's name: without the registry that everybody leaves out, and with its tag."""
    name = image.partition("@")[0]
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    tagged = name if ":" in name.rpartition("/")[2] else f"{name}:latest"
    return list(dict.fromkeys((image, name, tagged, tagged.removesuffix(":latest"))))
