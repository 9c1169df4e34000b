"""What the requirement files of a server name: `requirements.txt` as pip reads it, and `pyproject.toml`.

A line that names NeMo Gym itself, or the checkout, is left out: this package stands in for it.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.errors import UserError, cannot_read, missing_extra
from ludus_nemo_gym.hosted.packages import normal, provides

if TYPE_CHECKING:
    from packaging.requirements import Requirement

FILES = ("requirements.txt", "pyproject.toml")

#: The distribution that this package stands in for.
REPLACED = "nemo-gym"

#: Options of pip that say where packages come from. They belong to the command that installs the packages.
_PLACES = {"-i", "--index-url", "--extra-index-url", "-f", "--find-links", "--trusted-host"}
_SWITCHES = {"--pre", "--no-index", "--prefer-binary"}
_DIRECT = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*@\s*(?P<place>\S+)")
_EGG = re.compile(r"[#&]egg=([\w.-]+)")
#: What packaging raises, and what paths raise that cannot be paths.
_UNREADABLE = (ValueError, OSError, RuntimeError)
#: The user and the password of a URL. pip asks for them.
_USER = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*@|(?<=https://)[^/@\s]+@")


@dataclass(frozen=True)
class Wanted:
    """One package. `name` is empty if only the package itself could say it."""

    name: str
    #: what pip is given
    arguments: tuple[str, ...]
    #: the file and the line
    where: str
    requirement: Requirement | None = None

    def admits(self, version: str) -> bool:
        """Whether an installed version will do."""
        from packaging.version import InvalidVersion, Version

        try:
            known = Version(version)
        except InvalidVersion:
            return True
        return self.requirement is None or self.requirement.specifier.contains(known, prereleases=True)

    def __str__(self) -> str:
        return " ".join(self.arguments)


@dataclass
class Requirements:
    """All packages of a server's files, the options of pip beside them, and the Python that they ask for."""

    wanted: list[Wanted] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    python: str = ""
    #: lines that cannot be read, and why
    problems: list[str] = field(default_factory=list)

    def arguments(self, wanted: list[Wanted]) -> list[str]:
        """What pip is given to install some of the packages."""
        return [*self.options, *(argument for package in wanted for argument in package.arguments)]

    def admits_python(self, version: str) -> bool:
        """Whether a version of Python will do."""
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            return SpecifierSet(self.python).contains(version, prereleases=True)
        except InvalidSpecifier:
            return True

    def explain(self, module: str) -> Wanted | None:
        """The package that most likely provides a module."""
        packages = [package for package in self.wanted if provides(package.name, module)]
        return min(packages, key=lambda package: len(package.name), default=None)


def read_requirements(folder: Path, root: Path | None = None) -> Requirements:
    """The requirements of a server's folder; `root` is its checkout. Raises a `MissingExtra` without `packaging`."""
    try:
        import packaging.requirements  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_extra("packaging", "servers", package="nemo-gym") from error
    reader = _Reader(folder, root)
    if (folder / FILES[0]).is_file():
        reader.read_text(folder / FILES[0])
    if (folder / FILES[1]).is_file():
        reader.read_project(folder / FILES[1])
    return reader.found


class _Reader:
    def __init__(self, folder: Path, root: Path | None) -> None:
        self.found = Requirements()
        self._folder, self._root = folder, root
        self._read: set[Path] = set()
        self._names: set[str] = set()

    def read_text(self, path: Path) -> None:
        """A file in pip's format, with the files that it includes, each once."""
        if path.resolve() in self._read:
            return
        self._read.add(path.resolve())
        if not path.is_file():
            self.found.problems.append(f"{self._shown(path)} does not exist")
            return
        for number, line in _lines(_text(path)):
            where = f"{self._shown(path)}:{number}"
            try:
                self._line(line, path, where)
            except _UNREADABLE:  # the line is not quoted, because it may hold a password
                self.found.problems.append(f"{where} is not a requirement")

    def read_project(self, path: Path) -> None:
        """`[project]` of a `pyproject.toml`."""
        where = self._shown(path)
        project = _project(path)
        self.found.python = str(project.get("requires-python") or "")
        dependencies = project.get("dependencies")
        for line in dependencies if isinstance(dependencies, list) else ():
            try:
                self._package(str(line), where)
            except _UNREADABLE:
                self.found.problems.append(f"{where}: a dependency is not a requirement")

    def _line(self, line: str, path: Path, where: str) -> None:
        if not line.startswith("-"):
            self._package(re.split(r"\s--", line)[0], where)
            return
        option, value = _option(line)
        if option in ("-r", "--requirement"):
            if "://" in value:
                self.found.problems.append(f"{where} includes a file from the network, which is not read")
            else:
                self.read_text(path.parent / value)
        elif option in ("-e", "--editable"):
            self._package(value, where, editable=True)
        elif option in _PLACES:
            self.found.options += [option, _USER.sub("", value)]
        elif option in _SWITCHES:
            self.found.options.append(option)

    def _package(self, line: str, where: str, *, editable: bool = False) -> None:
        from packaging.requirements import Requirement

        text, _, marker = line.partition(" ;") if "://" in line else line.partition(";")
        text, direct = text.strip(), _DIRECT.fullmatch(text.strip())
        place = direct["place"] if direct else text
        if marker and not Requirement(f"x;{marker}").marker.evaluate({"extra": ""}):  # type: ignore[union-attr]
            return
        if "://" in place:
            egg = _EGG.search(place)
            name = direct["name"] if direct else egg[1] if egg else ""
            self._add(Wanted(normal(name), _pip(_USER.sub("", text), editable), where))
        elif direct or editable or place.startswith((".", "/")):
            folder = (self._folder / place.partition("[")[0]).resolve()
            name = direct["name"] if direct else _name_of(folder)
            if folder != self._root:
                self._add(Wanted(normal(name), _pip(str(folder), editable), where))
        else:
            requirement = Requirement(text)
            self._add(Wanted(normal(requirement.name), (text,), where, requirement))

    def _add(self, wanted: Wanted) -> None:
        if wanted.name != REPLACED and str(wanted) not in self._names:
            self._names.add(str(wanted))
            self.found.wanted.append(wanted)

    def _shown(self, path: Path) -> str:
        path = path.resolve()
        return path.relative_to(self._folder).as_posix() if path.is_relative_to(self._folder) else str(path)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines that say something: without comments, and joined where one ends with a backslash."""
    start, joined = 0, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        start = start or number
        if line.endswith("\\"):
            joined += line[:-1]
            continue
        content = re.sub(r"(^|\s)#.*", "", joined + line).strip()
        if content:
            yield start, content
        start, joined = 0, ""


def _option(line: str) -> tuple[str, str]:
    """The option and the value of a line: `-r a`, `-ra`, `--requirement=a`. `-e name @ place` has spaces in it."""
    if line.startswith("--"):
        option, value = re.split(r"[=\s]", f"{line} ", maxsplit=1)
    else:
        option, value = line[:2], line[2:]
    return option, value.strip().strip("\"'")


def _pip(target: str, editable: bool) -> tuple[str, ...]:
    return ("-e", target) if editable else (target,)


def _name_of(folder: Path) -> str:
    """The name of the package in a folder, or an empty text."""
    file = folder / "pyproject.toml"
    return str(_project(file).get("name") or "") if file.is_file() else ""


def _project(path: Path) -> dict[str, Any]:
    try:
        project = tomllib.loads(_text(path)).get("project")
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path}: not valid TOML: {error}") from error
    return project if isinstance(project, dict) else {}


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig", "replace")
    except OSError as error:
        raise cannot_read(path, error) from error


def pip_install(arguments: list[str]) -> str:
    """The command that installs packages."""
    return shlex.join(["pip", "install", *arguments])
