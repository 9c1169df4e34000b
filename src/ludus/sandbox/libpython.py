"""The shared library that Python itself may be, and how a sandbox finds the same one.

Python of pyenv, for example, is a small program and a `libpython`, which it looks for at the absolute path of its
installation or in `LD_LIBRARY_PATH`. Inside a sandbox neither may lead to it. Then Python does not start, or it starts
with a library of the same name that the system has, which is another release. So each sandbox gets a folder that holds
this one library, and `LD_LIBRARY_PATH` names that folder: a whole folder of libraries would also change what the
programs of the system load.
"""

from __future__ import annotations

import os
import sysconfig
from functools import cache
from pathlib import Path


@cache
def python_library() -> str | None:
    """The file of the library that this process runs on, or None where Python is one program."""
    name = sysconfig.get_config_var("INSTSONAME")
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        path = line[line.find("/") :]
        if "/" in line and os.path.basename(path) == name:
            return path
    return None


def library_variable(folder: str) -> dict[str, str]:
    """The variable that leads Python to its library in a folder. None where Python is one program."""
    return {} if python_library() is None else {"LD_LIBRARY_PATH": folder}
