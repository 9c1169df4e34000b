"""How a supervisor is started: its command, its text, and what it must know before it runs a program."""

from __future__ import annotations

import marshal
import os
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ludus.sandbox.cgroups import controllers
from ludus.sandbox.libpython import library_variable
from ludus.sandbox.protocol import HOME, SandboxSpec

#: Where programs find the packages of their spec.
PACKAGES = "/opt/packages"

#: Where Python finds its own library.
LIBRARIES = "/opt/libraries"

#: The modules of the supervisor, in the order in which they import each other.
_INSIDE = ("folders", "relay", "guard", "processes", "program", "python", "supervisor")
_MODULES = ("ludus.runtime.frames", *(f"ludus.sandbox.inside.{name}" for name in _INSIDE))

#: The first code of the interpreter inside: the supervisor's modules come through the socket.
_BOOTSTRAP = """
import marshal, os, sys, types
def read(size):
    data = b""
    while len(data) < size:
        data += os.read(0, size - len(data)) or os._exit(1)
    return data
for name, code in marshal.loads(read(int.from_bytes(read(4), "big"))).items():
    module = sys.modules[name] = types.ModuleType(name)
    exec(code, module.__dict__)
module.main()
"""


def supervisor_command() -> list[str]:
    """The command that starts the supervisor, with the socket to the host as its standard input."""
    return [base_python(), "-S", "-s", "-B", "-c", _BOOTSTRAP]


@cache
def supervisor_source() -> bytes:
    """The modules of the supervisor, compiled: the interpreter inside is ours. Their packages are empty inside."""
    packages = ("ludus", "ludus.runtime", "ludus.sandbox", "ludus.sandbox.inside")
    modules = {name: compile("", name, "exec") for name in packages}
    for name in _MODULES:
        path = Path(__file__).parents[2].joinpath(*name.split(".")).with_suffix(".py")
        modules[name] = compile(path.read_text(encoding="utf-8"), name, "exec")
    return marshal.dumps(modules)


def setup_message(spec: SandboxSpec, writable: Sequence[str], packages: Sequence[str], **more: Any) -> dict[str, Any]:
    """What a supervisor must know before it runs a program."""
    limits = spec.limits
    return {
        "home": HOME,
        "writable": list(writable),
        "kept": [],
        "packages": list(packages),
        "preload": list(spec.preload),
        "background": spec.background,
        "env": program_environment(spec),
        "watch_memory": controllers().memory is None,
        "own_user": False,
        "guard": None,
        "limits": {
            "memory": limits.memory_mb << 20,
            "disk": limits.disk_mb << 20,
            "files": limits.files,
            "open_files": limits.open_files,
            "processes": limits.processes,
        },
        **more,
    }


def program_environment(spec: SandboxSpec) -> dict[str, str]:
    """The environment of a program. Hash seeds are fixed, so that a program prints the same every time."""
    path = dict.fromkeys([os.path.dirname(base_python()), "/usr/local/bin", "/usr/bin", "/bin"])
    return {
        "PATH": ":".join(path),
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "USER": "user",
        "PYTHONHASHSEED": "0",
        **library_variable(LIBRARIES),
        **({"PYTHONPATH": PACKAGES} if spec.packages else {}),
        **spec.env,
    }


@cache
def base_python() -> str:
    """The interpreter behind this one: that of a virtual environment is a link to it."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
