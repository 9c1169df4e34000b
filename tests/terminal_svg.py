"""Draws a recorded terminal session (asciicast v2) as one animated SVG, for `record_quickstart.py`.

The session is kept as one long sheet. Each cell remembers what it showed and from when to when. Neighbouring cells with
the same times and style become one text, and the sheet moves up behind a window of the terminal's height. A viewer that
does not animate shows the last screen.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

WIDTH, HEIGHT = 8.4, 17  # of a cell, in pixels
MARGIN, BAR = 14, 30
HOLD = 4.0  #: seconds that the last screen stays before the loop begins again
_PART = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b[^\[]|([\r\n\b])|([^\x1b\r\n\b]+)")
_COLOURS = ("#8b949e", "#ff7b72", "#7ee787", "#e3b341", "#79c0ff", "#d2a8ff", "#76e3ea", "#e6edf3")


class Look(NamedTuple):
    """A character and its style."""

    text: str = " "
    style: str = ""


class Shown(NamedTuple):
    """What a cell of the sheet shows, and when."""

    look: Look
    begin: float
    end: float | None


@dataclass
class Sheet:
    """A terminal without a last line: what scrolls out of the window is kept."""

    columns: int
    rows: int
    line: int = 0
    column: int = 0
    style: str = ""
    cells: dict[tuple[int, int], list[Shown]] = field(default_factory=lambda: defaultdict(list))
    tops: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])

    def feed(self, data: str, now: float) -> None:
        """Take what the program wrote at a time."""
        for found in _PART.finditer(data):
            arguments, command, control, text = found.groups()
            if text:
                self._write(text, now)
            elif control == "\r":
                self.column = 0
            elif control == "\b":
                self.column = max(self.column - 1, 0)
            elif control == "\n":
                self._down(now)
            elif command:
                self._control(command, arguments, now)

    def _write(self, text: str, now: float) -> None:
        for character in text:
            if self.column == self.columns:
                self.column = 0
                self._down(now)
            self._put(self.column, Look(character, self.style), now)
            self.column += 1

    def _put(self, column: int, look: Look, now: float) -> None:
        shown = self.cells[self.line, column]
        if shown and shown[-1].end is None:
            if shown[-1].look == look:
                return
            last = shown.pop()
            if last.begin < now:
                shown.append(last._replace(end=now))
        if look.text != " ":
            shown.append(Shown(look, now, None))

    def _down(self, now: float) -> None:
        self.line += 1
        top = self.line - self.rows + 1
        if top > self.tops[-1][1]:
            self.tops.append((now, top))

    def _control(self, command: str, arguments: str, now: float) -> None:
        number = int(arguments) if arguments.isdigit() else 0
        if command == "m":
            self.style = _style(self.style, arguments)
        elif command == "A":
            self.line = max(self.line - (number or 1), self.tops[-1][1])
        elif command == "G":
            self.column = (number or 1) - 1
        elif command == "K":
            for column in range(0 if number == 2 else self.column, self.columns):
                self._put(column, Look(), now)
        elif arguments != "?25":
            raise ValueError(f"the recording holds a control sequence that is not drawn: {arguments!r} {command!r}")


def _style(style: str, arguments: str) -> str:
    """The style after a sequence of SGR numbers: `b` bold, `d` dim, `i` italic, `c4` a colour by its number."""
    kept = set(style.split())
    numbers = iter(map(int, (arguments or "0").split(";")))
    for number in numbers:
        if number in (1, 2, 3):
            kept.add("_bdi"[number])
        elif number in (0, 22, 23):
            kept = {each for each in kept if number and each not in {22: "bd", 23: "i"}[number]}
        else:
            kept = {each for each in kept if not each.startswith("c")} | _colour_class(number, numbers)
    return " ".join(sorted(kept))


def _colour_class(number: int, rest: Iterator[int]) -> set[str]:
    if 30 <= number <= 37 or 90 <= number <= 97:
        return {f"c{number % 10}"}
    if number == 38 and next(rest, None) == 5:
        return {f"c{next(rest)}"}
    if number == 39:
        return set()
    raise ValueError(f"the recording holds a style that is not drawn: {number}")


def _colour(number: int) -> str:
    """A colour of the usual 256."""
    if number < 16:
        return _COLOURS[number % 8]
    if number >= 232:
        return f"#{8 + 10 * (number - 232):02x}" + f"{8 + 10 * (number - 232):02x}" * 2
    levels = (0, 95, 135, 175, 215, 255)
    place = number - 16
    return "#" + "".join(f"{levels[each]:02x}" for each in (place // 36, place // 6 % 6, place % 6))


def draw(cast: str, title: str) -> str:
    """The SVG of a recording, as text."""
    head, *events = (json.loads(line) for line in cast.splitlines())
    sheet = Sheet(head["width"], head["height"])
    for when, kind, data in events:
        if kind == "o":
            sheet.feed(data, round(when, 1))
    total = events[-1][0] + HOLD
    texts: list[str] = []
    names: dict[tuple[float, float | None], str] = {}
    for line, column, shown, text in _runs(sheet):
        name = names.setdefault((shown.begin, shown.end), f"t{len(names)}")
        texts.append(_text(line, column, shown, text, name))
    frames = [_frames(name, begin, end, total) for (begin, end), name in names.items()]
    return _picture(head, title, total, [*frames, _scroll(sheet, total)], texts, sheet.tops[-1][1])


def _runs(sheet: Sheet) -> Iterator[tuple[int, int, Shown, str]]:
    """Line, first column, times and characters of each text."""
    by_time: dict[tuple[Any, ...], list[tuple[int, str]]] = defaultdict(list)
    for (line, column), history in sorted(sheet.cells.items()):
        for shown in history:
            by_time[line, shown.begin, shown.end, shown.look.style].append((column, shown.look.text))
    for (line, begin, end, style), cells in sorted(by_time.items(), key=lambda each: (each[0][:2], each[1])):
        start, text = cells[0]
        for column, character in [*cells[1:], (10_000, "")]:
            gap = column - start - len(text)
            if gap > 1 or not character:
                yield line, start, Shown(Look("", style), begin, end), text
                start, text = column, character
            else:
                text += " " * gap + character


def _text(line: int, column: int, shown: Shown, text: str, name: str) -> str:
    """One text. `textLength` keeps the columns in place whatever monospaced font is there."""
    classes = " ".join(filter(None, (name, "gone" if shown.end is not None else "", shown.look.style)))
    x, y, length = round(column * WIDTH, 1), line * HEIGHT + 13, round(len(text) * WIDTH, 1)
    return f'<text class="{classes}" x="{x:g}" y="{y}" textLength="{length:g}">{escape(text, quote=False)}</text>'


def _frames(name: str, begin: float, end: float | None, total: float) -> str:
    hides = f"{100 * end / total:.2f}%{{visibility:hidden}}" if end is not None else ""
    shows = f"{100 * begin / total:.2f}%{{visibility:visible}}"
    hidden = "0%{visibility:hidden}" if begin > 0 else ""
    return f"@keyframes {name}{{{hidden}{shows}{hides}}}.{name}{{animation-name:{name}}}"


def _scroll(sheet: Sheet, total: float) -> str:
    moves = dict(sheet.tops)
    steps = (f"{100 * when / total:.2f}%{{transform:translateY({-top * HEIGHT}px)}}" for when, top in moves.items())
    return f"@keyframes up{{{''.join(steps)}}}#sheet{{animation-name:up}}"


def _picture(head: dict[str, Any], title: str, total: float, frames: list[str], texts: list[str], top: int) -> str:
    width, height = round(head["width"] * WIDTH + 2 * MARGIN), head["height"] * HEIGHT + BAR + MARGIN
    used = sorted({int(each) for text in texts for each in re.findall(r"[\" ]c(\d+)", text.partition(">")[0])})
    colours = "".join(f".c{number}{{fill:{_colour(number)}}}" for number in used)
    style = (
        f"text{{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#e6edf3;white-space:pre}}"
        f".gone{{visibility:hidden}}.b{{font-weight:700}}.d{{opacity:.65}}.i{{font-style:italic}}{colours}"
        f"#sheet{{transform:translateY({-top * HEIGHT}px)}}"
        f"@media (prefers-reduced-motion:no-preference){{"
        f"#sheet,text{{animation-duration:{total:.1f}s;animation-timing-function:step-end;animation-iteration-count:infinite}}"
        f"{''.join(frames)}}}"
    )
    dots = "".join(
        f'<circle cx="{20 + 18 * place}" cy="16" r="5" fill="{colour}"/>'
        for place, colour in enumerate(("#ff7b72", "#e3b341", "#7ee787"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img">\n<title>{escape(title)}</title>\n<style>{style}</style>\n'
        f'<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="9" fill="#161b22" stroke="#3d444d"/>\n'
        f'{dots}\n<svg x="{MARGIN}" y="{BAR}" width="{width - 2 * MARGIN}" height="{head["height"] * HEIGHT}">'
        f'<g id="sheet" xml:space="preserve">\n' + "\n".join(texts) + "\n</g></svg>\n</svg>\n"
    )
