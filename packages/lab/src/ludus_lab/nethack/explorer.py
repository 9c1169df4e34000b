"""A player by script: it explores the level and takes the stairs down. It sees what a model sees.

`--model scripted:ludus_lab.nethack.explorer:explore` plays with it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from itertools import pairwise

from ludus import Request
from ludus.response import texts_of
from ludus_lab.nethack.actions import DIRECTIONS, actions_of

Cell = tuple[int, int]

#: The most actions in an answer.
MOST = 20

_MOVES = {(dx, dy): name for name, (_, dx, dy) in DIRECTIONS.items()}
_CLOSED = " |-}^\\"  # rock, walls, water, traps; an open door is drawn as ', and a boulder (`) may be pushed


class Screen:
    """A screen as the game showed it."""

    def __init__(self, shown: str) -> None:
        lines = shown.splitlines()
        start = next(number for number, line in enumerate(lines) if line.startswith("Cursor: "))
        column, line = map(int, re.findall(r"\d+", lines[start]))
        self.me: Cell = (column, line)
        self.rows = [text.ljust(80) for text in lines[start + 1 :]] + [" " * 80] * 24
        self.is_asked = start > 0 and "asks you" in lines[start - 1]
        self.has_more = "--More--" in shown

    def at(self, cell: Cell) -> str:
        """The character in a cell of the map; rock outside of it."""
        column, line = cell
        return self.rows[line][column] if 0 <= column < 79 and 0 < line < 22 else " "

    def cells(self, mark: str) -> list[Cell]:
        """All cells with this character."""
        return [(column, line) for line in range(1, 22) for column in range(79) if self.at((column, line)) == mark]

    def around(self, cell: Cell) -> Iterator[Cell]:
        """The cells that can be reached with one step. Doors are not passed diagonally."""
        for dx, dy in _MOVES:
            there = (cell[0] + dx, cell[1] + dy)
            is_straight = dx == 0 or dy == 0
            if self.at(there) not in _CLOSED and (is_straight or not {self.at(cell), self.at(there)} & set("+'")):
                yield there


def explore(request: Request) -> str:
    """The next actions."""
    shown = [texts_of(item) for item in request.input if "Cursor: " in texts_of(item)]
    answers = [texts_of(item) for item in request.input if item.get("role") == "assistant"]
    return f"<actions>{', '.join(_actions([Screen(text) for text in shown], answers))}</actions>"


def _actions(screens: list[Screen], answers: list[str]) -> list[str]:
    now = screens[-1]
    if now.has_more:
        return ["more"]
    if now.is_asked:
        return ["esc"]
    if len(screens) > 1 and screens[-2].at(now.me) == ">":
        return ["down"]
    visited = _visited(screens, answers)
    for goals in (now.cells(">"), _frontier(now, visited)):
        path = _path(now, set(goals))
        if path:
            ends = ["down"] if now.at(path[-1]) == ">" and len(path) < MOST else []
            return [*_steps([now.me, *path])[:MOST], *ends]
    return ["search"] * (MOST - 4)


def _frontier(screen: Screen, visited: set[Cell]) -> list[Cell]:
    """Cells that were not visited and may lead to something unseen: doors, corridors, floor beside the dark."""
    cells = []
    for mark in ".#+'<`":
        for cell in screen.cells(mark):
            column, line = cell
            beside = [screen.at((column + dx, line + dy)) for dx, dy in _MOVES]
            if cell not in visited and (mark in "+'#`" or " " in beside):
                cells.append(cell)
    return cells


def _path(screen: Screen, goals: set[Cell]) -> list[Cell]:
    """The shortest way to the nearest goal, without the cell where it begins; empty if there is none."""
    before: dict[Cell, Cell] = {screen.me: screen.me}
    queue = deque([screen.me])
    while queue:
        cell = queue.popleft()
        if cell in goals and cell != screen.me:
            path = [cell]
            while before[path[-1]] != screen.me:
                path.append(before[path[-1]])
            return path[::-1]
        for there in screen.around(cell):
            if there not in before:
                before[there] = cell
                queue.append(there)
    return []


def _steps(path: list[Cell]) -> list[str]:
    return [_MOVES[there[0] - here[0], there[1] - here[1]] for here, there in pairwise(path)]


def _visited(screens: list[Screen], answers: list[str]) -> set[Cell]:
    """Where the player has been or tried to go, as far as the answers tell."""
    visited = {screen.me for screen in screens}
    for screen, answer in zip(screens, answers, strict=False):
        column, line = screen.me
        for name in actions_of(answer, MOST) or []:
            if name in DIRECTIONS:
                _, dx, dy = DIRECTIONS[name]
                column, line = column + dx, line + dy
                visited.add((column, line))
    return visited
