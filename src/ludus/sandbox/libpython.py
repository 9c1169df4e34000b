"""The `libpython` of this interpreter, and how a sandbox finds the same one.

Python of pyenv, for example, is a small program that loads `libpython` from the absolute path of its installation or
from `LD_LIBRARY_PATH`. Inside a sandbox that path may not exist. Then Python does not start, or it loads the system's
library of the same name, which is another release. So each sandbox gets a folder with this one library, and
`LD_LIBRARY_PATH` names that folder. A folder with more libraries would also change what the system's programs load.
"""

from __future__ import annotations

import os
import sysconfig
from functools import cache
from pathlib import Path


@cache
def python_library() -> str | None:
    """The library that this process runs on; None if Python is statically linked."""
    name = sysconfig.get_config_var("INSTSONAME")
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        path = line[line.find("/") :]
        if "/" in line and os.path.basename(path) == name:
            return path
    return None


def library_variable(folder: str) -> dict[str, str]:
    """The variable that leads Python to its library in a folder. Empty if Python is statically linked."""
    return {} if python_library() is None else {"LD_LIBRARY_PATH": folder}
