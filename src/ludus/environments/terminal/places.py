"""Which of an agent's changes its judge gets to see: all but what the judge's own programs are made of or read.

The judge's box is made from the task's image. If programs, libraries and settings were carried into it, a planted
`bash` could write the reward. docs/moving/harbor.md states the rule for authors of tasks.
"""

from __future__ import annotations

import posixpath
import sys
from dataclasses import dataclass
from functools import cached_property

from ludus.sandbox.protocol import HOME

#: What only the judge has, and what the kernel or a start of the box makes anew.
_JUDGES = ("/tests", "/logs", "/solution", "/proc", "/sys", "/dev", "/run", "/.ludus")

#: Programs, libraries and settings of the image, and the lists of its packages.
_SYSTEM = (
    *("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc", "/boot"),
    *("/var/lib/dpkg", "/var/lib/apt", "/var/lib/rpm", "/var/cache", "/var/run", "/var/lock"),
)

#: Where test scripts put files of their own: links there could lead them astray.
_SCRATCH = ("/tmp", "/var/tmp")

#: Files that interpreters and test tools run or obey wherever they find them.
_LOOKED_FOR = {"conftest.py", "pytest.ini", ".pytest.ini", "sitecustomize.py", "usercustomize.py"}

#: The same at the root, above the folder of the tests.
_LOOKED_FOR_ABOVE = {"pyproject.toml", "setup.cfg", "setup.py", "tox.ini", "package.json", "node_modules"}

#: Modules that Python looks for in the folder it is started in before it looks for its own, and those of pytest.
_PYTEST = {"pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup"}
_MODULES = sys.stdlib_module_names | _PYTEST

#: Where test scripts start Python, beside the working folder; `app` lies in HOME where there is no image.
_STARTED_IN = ("/", "/root", HOME, f"{HOME}/app", *_SCRATCH)

#: Variables with folders and files from which programs take code.
READ_FROM = ("PYTHONPATH", "PYTHONSTARTUP", "BASH_ENV", "ENV", "LD_LIBRARY_PATH", "LD_PRELOAD")

#: What programs write by the way: it is left out without a word.
_BY_THE_WAY = ("/etc/ld.so.cache", "/etc/mtab", "/var/cache")


@dataclass(frozen=True)
class Places:
    """The places of a box.

    `path` has the folders of the image's PATH, `services` the program that it starts, and `read` what other variables
    make programs read: `PYTHONPATH`, `BASH_ENV`.
    """

    workdir: str
    path: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    home: str = HOME  #: of the user who runs the tests

    @cached_property
    def _own(self) -> str | None:
        """The working folder, unless programs of the image lie in it or around it, as in `/`, `/usr` or `/usr/bin`."""
        holds_programs = any(is_below(folder, self.workdir) for folder in ("/usr/bin", "/bin", "/etc"))
        is_programs = any(is_below(self.workdir, folder) for folder in self.path if _is_bin(folder))
        return None if holds_programs or is_programs else self.workdir

    @cached_property
    def _programs(self) -> tuple[str, ...]:
        """The folders of PATH; where they are called `bin`, with all that is installed beside them."""
        places = []
        for folder in map(posixpath.normpath, self.path):
            parent = posixpath.dirname(folder)
            installed = parent if _is_bin(folder) and parent != "/" else folder
            if is_below(self.workdir, installed):
                installed = folder
            if folder.startswith("/") and (_is_bin(folder) or not is_below(self.workdir, folder)):
                places.append(installed)
        return tuple(places)

    @property
    def judge_path(self) -> str:
        """PATH with the folders last that the agent may have filled: the working folder, or one that is relative."""
        agents = [folder for folder in self.path if not folder.startswith("/") or is_below(self.workdir, folder)]
        return ":".join([*(folder for folder in self.path if folder not in agents), *agents])

    def is_judges(self, path: str) -> bool:
        """Whether a place belongs to the judge, or to the running system."""
        return any(is_below(path, place) for place in _JUDGES)

    def may_lead(self, target: str, is_there: bool) -> bool:
        """Whether a link to a place may stay: not if it leads to what only the judge has, or to what a script makes."""
        if self.is_judges(target) or any(is_below(target, place) for place in _SCRATCH):
            return False
        return is_there or self.is_carried(target)

    def is_carried(self, path: str, kind: str = "file") -> bool:
        """Whether the judge sees what the agent did at a place."""
        if path == "/" or self.is_judges(path) or path in self.services:
            return False
        top, name = path.split("/")[1], posixpath.basename(path)
        if name in _LOOKED_FOR or name.endswith(".pth") or "/.git/hooks/" in path:
            return False
        if top in _LOOKED_FOR_ABOVE or top.startswith("."):
            return False
        if self._replaces_a_module(path, kind) or self._is_read(path, kind):
            return False
        if any(is_below(path, place) for place in self._programs) or self._is_setting_of_a_user(path):
            return False
        if self._own is not None and is_below(path, self._own):
            return True
        if any(is_below(path, place) for place in _SCRATCH):
            return kind != "link"
        return not any(is_below(path, place) for place in _SYSTEM)

    def is_worth_a_word(self, path: str) -> bool:
        """Whether somebody may miss what was left out here."""
        silent = self.is_judges(path) or any(is_below(path, place) for place in (*_BY_THE_WAY, *_SCRATCH))
        parts = path.split("/")
        return not (silent or "__pycache__" in parts or ".cache" in parts or path.endswith("_history"))

    def _replaces_a_module(self, path: str, kind: str) -> bool:
        """Whether `python -m pytest` in a folder where scripts start would take this for a module of Python's own."""
        folder, name = posixpath.split(path)
        if name.startswith("__init__."):
            folder, package = posixpath.split(folder)
            name = f"{package}.py"
        module, _, ending = name.partition(".")
        is_code = (kind == "link" and not ending) or ending in ("py", "pyc") or ending.endswith(("so", ".pyd"))
        return is_code and module in _MODULES and folder in (self.workdir, self.home, *self.read, *_STARTED_IN)

    def _is_read(self, path: str, kind: str) -> bool:
        """Whether a variable of the image makes programs run this: a file of `BASH_ENV`, a library in a folder."""
        folder, name = posixpath.split(path)
        return (path in self.read and kind != "folder") or (folder in self.read and ".so" in name)

    def _is_setting_of_a_user(self, path: str) -> bool:
        """Whether a path is a hidden file or folder in somebody's home: `.bashrc`, `.local`, `.gitconfig`."""
        if path.startswith(f"{self.home}/."):
            return True
        parts = path.split("/")[1:]
        name = parts[1:2] if parts[0] == "root" else parts[2:3] if parts[0] == "home" else []
        return bool(name) and name[0].startswith(".")


def _is_bin(folder: str) -> bool:
    return posixpath.basename(posixpath.normpath(folder)) in ("bin", "sbin")


def is_below(path: str, place: str) -> bool:
    """Whether a path is a place or lies in it."""
    return path == place or place == "/" or path.startswith(f"{place}/")
