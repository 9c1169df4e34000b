"""The images that a Dockerfile is built on, found and replaced without running anything of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ludus.errors import UserError

_START = re.compile(r"\s*(?P<word>[A-Za-z]+)\s+(?P<rest>.*)", re.DOTALL)
_FROM = re.compile(r"(?P<options>(?:--\S+\s+)*)(?P<image>\S+)(?P<rest>(?:\s+AS\s+(?P<stage>\S+))?\s*)", re.IGNORECASE)
_COPY = re.compile(r"(?P<head>(?:--\S+\s+)*?--from=)(?P<image>\S+)(?P<rest>.*)", re.DOTALL)
_ARGUMENT = re.compile(r"(\w+)(?:=(?:\"([^\"]*)\"|'([^']*)'|(\S*)))?")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")


@dataclass(frozen=True)
class ImageRecipe:
    """A Dockerfile and the files that it may copy, by path. `place` names it in messages."""

    dockerfile: str
    files: Mapping[str, bytes]
    executable: frozenset[str] = frozenset()  #: the paths of files that are programs
    place: str = "Dockerfile"
    network: bool = False  #: whether its commands reach the network of this machine, with its settings of pip and apt
    seconds: float = 600.0

    @classmethod
    def of_folder(cls, folder: Path, network: bool = False, seconds: float = 600.0) -> ImageRecipe:
        """The recipe in a folder: its `Dockerfile` and all of its files."""
        place = folder / "Dockerfile"
        if not place.is_file():
            raise UserError(f"{folder} has no Dockerfile", "Name a folder that has one, or a task")
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
        files = {path.relative_to(folder).as_posix(): path for path in paths}
        return cls(
            place.read_text(errors="replace"),
            {name: path.read_bytes() for name, path in files.items()},
            frozenset(name for name, path in files.items() if path.stat().st_mode & 0o100),
            str(place),
            network,
            seconds,
        )


@dataclass(frozen=True)
class ImageUse:
    """A line that names an image: with `FROM`, or with `COPY --from`."""

    line: int
    image: str
    text: str  #: of the instruction


class Dockerfile:
    """The text of a Dockerfile."""

    def __init__(self, text: str) -> None:
        self.text = text

    @property
    def images(self) -> list[ImageUse]:
        """The images that must be there before it is built: neither stages of its own nor `scratch`."""
        uses: list[ImageUse] = []
        self._rewritten(lambda use: uses.append(use) or use.image)  # type: ignore[func-returns-value]
        return uses

    def on(self, replace: Callable[[str], str]) -> str:
        """The text with other names for these images."""
        return self._rewritten(lambda use: replace(use.image))

    @property
    def workdir(self) -> str:
        """Where the commands of its image start, if it says so with an absolute path."""
        words = (text.split() for _, text in self._instructions())
        places = [word[1] for word in words if len(word) == 2 and word[0].upper() == "WORKDIR"]
        return places[-1] if places and places[-1].startswith("/") else ""

    def line_of(self, step: str) -> int | None:
        """The line of the instruction that a builder quotes, with its blanks as the builder likes them."""
        wanted = _squeezed(step)[:80]
        lines = (line for line, text in self._instructions() if _squeezed(text.replace("\\\n", " ")).startswith(wanted))
        return next(lines, None) if wanted else None

    def _instructions(self) -> Iterator[tuple[int, str]]:
        """Each instruction with the number of its first line. Comments and blank lines are instructions of no word."""
        first, parts, goes_on = 1, list[str](), False
        for number, line in enumerate(self.text.splitlines(keepends=True), start=1):
            first = first if goes_on else number
            parts.append(line)
            if line.strip() and not line.lstrip().startswith("#"):  # comments may stand between an instruction's lines
                goes_on = line.rstrip().endswith("\\")
            if not goes_on:
                yield first, "".join(parts)
                parts = []
        if parts:
            yield first, "".join(parts)

    def _rewritten(self, rename: Callable[[ImageUse], str]) -> str:
        stages: set[str] = {"scratch"}
        arguments: dict[str, str] = {}
        parts: list[str] = []
        started = 0
        for line, text in self._instructions():
            match = _START.fullmatch(text.rstrip("\n"))
            word = match["word"].upper() if match is not None and not text.lstrip().startswith("#") else ""
            rest = match["rest"] if match is not None else ""
            if word == "ARG" and not started:
                arguments |= {name: a or b or c for name, a, b, c in _ARGUMENT.findall(rest)}
            elif word == "FROM" and (match := _FROM.fullmatch(rest)) is not None:
                image = _filled(match["image"], arguments)
                if image.lower() not in stages:
                    image = rename(ImageUse(line, image, text.strip()))
                text = f"FROM {match['options']}{image}{match['rest']}\n"
                stages |= {str(started), *([match["stage"].lower()] if match["stage"] else [])}
                started += 1
            elif word in ("COPY", "ADD") and (match := _COPY.fullmatch(rest)) is not None:
                image = _filled(match["image"], arguments)
                if image.lower() not in stages:
                    image = rename(ImageUse(line, image, text.strip()))
                    text = f"{word} {match['head']}{image}{match['rest']}\n"
            parts.append(text)
        return "".join(parts)


def _filled(text: str, arguments: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda variable: arguments.get(variable[1] or variable[2]) or variable[3] or "", text)


def _squeezed(text: str) -> str:
    return " ".join(text.split()).lower()
