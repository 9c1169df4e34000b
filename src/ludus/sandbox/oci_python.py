"""The host's Python inside a container, for our supervisor: an image may bring none, or another C library.

Python and the libraries that it loads are mounted read-only under one folder, and Python is started through the host's
own dynamic linker. Programs of the image use the image's own libraries.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache

from ludus.sandbox.protocol import SandboxError
from ludus.sandbox.supervised_start import base_python

#: Where it is mounted.
INSIDE = "/.ludus"

#: Imports everything that the supervisor needs, then prints the mapped files.
_PROBE = "import ctypes, gc, json, resource, select, signal, socket, struct; print(open('/proc/self/maps').read())"


@dataclass(frozen=True)
class ContainerPython:
    """What to mount, and how to start it."""

    mounts: tuple[tuple[str, str], ...]  #: folders and files of the host, and where they go
    command: tuple[str, ...]
    hidden: tuple[str, ...]  #: folders in these that programs must not see


@cache
def container_python() -> ContainerPython:
    """The interpreter behind this one. Raises `SandboxError` if its dynamic linker is unknown."""
    python = base_python()
    standard = os.path.realpath(sysconfig.get_path("stdlib", vars={"base": sys.base_prefix}))
    libraries = [path for path in loaded_libraries(python) if not path.startswith(standard)]
    loader = next(filter(is_linker, libraries), None)
    if loader is None:
        raise SandboxError(f"{python} is not loaded by a dynamic linker that we know")
    folders = list(dict.fromkeys(os.path.dirname(path) for path in libraries))
    version = os.path.basename(standard)
    mounts = [(python, f"{INSIDE}/bin/python"), (standard, f"{INSIDE}/{sys.platlibdir}/{version}")]
    mounts += [(folder, f"{INSIDE}/libraries/{number}") for number, folder in enumerate(folders)]
    inside = {folder: place for folder, place in mounts}
    search = ":".join(inside[folder] for folder in folders)
    linker = f"{inside[os.path.dirname(loader)]}/{os.path.basename(loader)}"
    hidden = [f"{INSIDE}/{sys.platlibdir}/{version}/site-packages"]
    for folder in folders:  # a library may lie beside the standard library
        if standard.startswith(f"{folder}/"):
            hidden.append(f"{inside[folder]}{standard.removeprefix(folder)}/site-packages")
    command = (linker, "--library-path", search, f"{INSIDE}/bin/python", "-S", "-s", "-B", "-c")
    return ContainerPython(tuple(mounts), command, tuple(hidden))


def loaded_libraries(python: str) -> list[str]:
    """The shared libraries that a Python loads, with its dynamic linker."""
    try:
        maps = subprocess.run(
            [python, "-S", "-E", "-c", _PROBE], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"cannot start {python}: {error}") from error
    files = {line.split(maxsplit=5)[5] for line in maps.stdout.splitlines() if line.count("/")}
    return [path for path in sorted(files) if ".so" in os.path.basename(path)]


def is_linker(path: str) -> bool:
    """Whether a shared library is a dynamic linker."""
    return os.path.basename(path).startswith("ld-")
