"""Why pip could not install something: because this machine cannot have it, or because the requirement is wrong.

A package without a file for this Python and processor, or with a source that does not compile here, is no defect of the
release: its extra is then not checked. A requirement that no Python and no processor can have is a defect.
"""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path

from building import ReleaseError
from packaging.requirements import InvalidRequirement, Requirement
from running import CommandFailed, run

#: Pythons and processors for which packages are published, to learn whether a package exists for others than ours.
_PYTHONS = ("3.11", "3.12", "3.13", "3.14")
_PLATFORMS = (
    *(f"{kind}_{cpu}" for cpu in ("x86_64", "aarch64") for kind in ("manylinux2014", "manylinux_2_28", "linux")),
    *("macosx_11_0_arm64", "macosx_14_0_arm64", "win_amd64"),
)

_NO_FILE = re.compile(r"No matching distribution found for (.+)")
_NO_BUILD = re.compile(
    r"Failed building wheel for ([\w.-]+)|"
    r"error: metadata-generation-failed(?:\s+\W .*\s+╰─> ([\w.-]+)$)?",
    re.MULTILINE,
)
#: What the compiler said; pip's own lines of this kind are one word with hyphens.
_COMPILER = re.compile(r"^\s*(?:fatal )?error: (?![\w-]+$)(.+)", re.MULTILINE)


class NotInstallable(ReleaseError):
    """Something cannot be installed on this machine, and that is no defect of the release."""


def machine_lacks(printed: str, python: Path, folder: Path) -> str:
    """What this machine lacks, from what pip printed; empty if the machine is not the reason."""
    here = f"Python {platform.python_version()} on {sys.platform} {platform.machine()}"
    if missing := _NO_FILE.search(printed):
        wanted = re.sub(r" \(from .*", "", missing[1]).strip()
        return f"{wanted} has no file for {here}" if _exists_elsewhere(wanted, python, folder) else ""
    if built := _NO_BUILD.search(printed):
        reasons = _COMPILER.findall(printed)
        detail = f": {reasons[-1].strip()[:150]}" if reasons else ""
        package = built[1] or built[2] or "a package that it needs"
        return f"{package} has no wheel for {here}, and its source does not compile here{detail}"
    return ""


def _exists_elsewhere(wanted: str, python: Path, folder: Path) -> bool:
    """Whether the index has a version that fits, for any Python and processor."""
    try:
        requirement = Requirement(wanted)
    except InvalidRequirement:
        return False
    platforms = [word for each in _PLATFORMS for word in ("--platform", each)]
    for version in _PYTHONS:
        others = ["--ignore-requires-python", "--python-version", version, *platforms]
        try:
            said = run([str(python), "-m", "pip", "index", "versions", requirement.name, *others], folder)
        except CommandFailed:
            continue
        listed = re.search(r"^Available versions: (.+)$", said, re.MULTILINE)
        if listed and any(requirement.specifier.contains(each) for each in listed[1].split(", ")):
            return True
    return False
