"""Spaces as text: how observations are shown, how actions are described, and how an action is read from an answer.

The action is the last `<action>...</action>`, else the last `\\boxed{...}`, else the answer itself, or its last number
if an action is a number. Answers may be hostile, so everything here reads them in linear time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from ludus.errors import UserError, missing_extra
from ludus.graders.answers import last_boxed

#: An observation with more numbers than this cannot be read as text.
MOST_NUMBERS = 400
DIGITS = 4

_TAG = re.compile(r"<(/?)action>", re.IGNORECASE)
_INTEGER = re.compile(r"(?<![\d.])[-+]?\d{1,18}(?!\.?\d)")
_COLOURED = re.compile(r"\x1b\[([\d;]*)m(.*?)\x1b\[0?m", re.DOTALL)
_CODE = re.compile(r"\x1b\[[\d;]*m")
_COLOURS = ("grey", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


def library() -> Any:
    """The gymnasium module. Raises a `UserError` with the install command if it is missing."""
    if find_spec("gymnasium") is None:
        raise missing_extra("gymnasium", "gymnasium")
    import gymnasium

    return gymnasium


class Actions:
    """The actions of a game: their description, and how to read one. Without a space, any text is an action."""

    def __init__(self, space: Any = None) -> None:
        self.described, self.example, self._read = _description(space)
        self._contains = space.contains if space is not None else bool

    def read(self, answer: str) -> Any:
        """The legal action in an answer, or None."""
        marked = _marked(answer)
        action = self._read(marked if marked is not None else answer, marked is None)
        return action if action is not None and self._contains(action) else None


def rendered(observation: Any) -> str:
    """An observation as text."""
    if isinstance(observation, str):
        return observation
    if isinstance(observation, dict):
        return "\n".join(f"{name}: {rendered(value)}" for name, value in observation.items())
    if isinstance(observation, tuple):
        return f"({', '.join(map(rendered, observation))})"
    shape = getattr(observation, "shape", ())
    if len(shape) == 2:
        return "\n".join(" ".join(map(_number, row)) for row in observation.tolist())
    if shape or isinstance(observation, list):
        values = observation.tolist() if shape else observation
        return f"[{', '.join(map(_number, values))}]" if len(shape) < 2 else str(values)
    return _number(observation.item() if hasattr(observation, "item") else observation)


def numbers_in(space: Any) -> int:
    """How many numbers an observation of a space holds."""
    parts = getattr(space, "spaces", None)
    if parts is not None:
        return sum(map(numbers_in, parts.values() if hasattr(parts, "values") else parts))
    return math.prod(getattr(space, "shape", None) or (1,))


def plain_picture(picture: str) -> str:
    """A terminal picture without colours: highlighted text is in brackets, and a legend of colours follows."""
    legend: dict[str, str] = {}

    def uncoloured(match: re.Match[str]) -> str:
        codes = [int(code) for code in match[1].split(";") if code]
        lit = any(40 <= code < 48 for code in codes)
        shown = f"[{match[2]}]" if lit else match[2]
        colour = next((_COLOURS[code % 10] for code in codes if 30 <= code < 48 and code % 10 < 8), None)
        if colour is not None:
            legend[shown] = colour
        return shown

    drawn = _CODE.sub("", _COLOURED.sub(uncoloured, picture)).strip("\n")
    colours = ", ".join(f"{shown} is {colour}" for shown, colour in legend.items())
    return f"{drawn}\n({colours})" if len(legend) > 1 else drawn


Reading = Callable[[str, bool], Any]


def _description(space: Any) -> tuple[str, str, Reading]:
    """A description of the space's actions, an example, and a reader; `whole` means no tag or box marks the action."""
    if space is None:
        return "a text", "TEXT", lambda text, whole: text.strip()
    spaces = library().spaces
    if isinstance(space, spaces.Discrete):
        first = int(space.start)
        return f"an integer from {first} to {first + int(space.n) - 1}", str(first), _integer
    if isinstance(space, spaces.Text):
        length = f"{space.min_length} to {space.max_length} characters"
        return f"a text of {length}", "TEXT", lambda text, whole: text.strip()
    if isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1:
        bounds = [(int(first), int(first + n) - 1) for first, n in zip(space.start, space.nvec, strict=True)]
        ranges = ", ".join(f"{first} to {last}" for first, last in bounds)
        example = ", ".join(str(first) for first, _ in bounds)
        return f"{len(bounds)} integers with commas between them, from {ranges}", example, _integers(space)
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        size = space.shape[0]
        return f"{size} zeros or ones with commas between them", ", ".join("0" * size), _integers(space)
    raise UserError(
        f"its actions are {space!r:.120}, which cannot be written as text",
        "Actions must be Discrete, MultiDiscrete, MultiBinary or Text",
    )


def _marked(answer: str) -> str | None:
    """The marked action: the last pair of tags, else the last box; empty if the last tag is not closed."""
    tags = list(_TAG.finditer(answer))
    if not tags:
        return last_boxed(answer)
    opening, closing = tags[-2:] if len(tags) > 1 else (tags[0], tags[0])
    return answer[opening.end() : closing.start()] if closing[1] and not opening[1] else ""


def _integer(text: str, whole: bool) -> int | None:
    """A number alone, or the last number of a whole answer."""
    if whole:
        numbers = _INTEGER.findall(text)
        return int(numbers[-1]) if numbers else None
    return int(text) if _INTEGER.fullmatch(text := text.strip()) else None


def _integers(space: Any) -> Reading:
    """A reader of exactly as many numbers as the space needs."""

    def read(text: str, whole: bool) -> Any:
        import numpy

        words = text.strip().strip("[]()").replace(",", " ").split()
        if len(words) != space.shape[0] or not all(map(_INTEGER.fullmatch, words)):
            return None
        values = [int(word) for word in words]
        held = numpy.array(values).astype(space.dtype)
        return held if held.tolist() == values else None

    return read


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    return rendered(value) if isinstance(value, (list, tuple, dict)) else str(value)
