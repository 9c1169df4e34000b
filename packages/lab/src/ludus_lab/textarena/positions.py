"""What a player can know and do in each game, read from what the game showed to that player.

Scripted opponents and the oracle of qualification are made of these: they see what a model sees.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]

#: How many moves the expert at Connect Four looks ahead, and the columns from the middle outwards.
DEPTH, COLUMNS = 4, (3, 2, 4, 1, 5, 0, 6)

#: The points that win at Pig Dice.
PIG_SCORE = 50


@dataclass(frozen=True)
class Position:
    """The legal moves of a player, as the game takes them, and the best of them."""

    moves: list[str]
    best: Callable[[], str]


def read(game: str, shown: str) -> Position:
    """The position of a player who was shown this text, from the beginning of the game on."""
    return _READERS[game](shown)


def game_of(shown: str) -> str:
    """The game that a player was shown."""
    return next(game for game, title in _TITLES.items() if title in shown)


def _marks(shown: str) -> str:
    """The cells of the last board: X, O, or a dot."""
    board = shown.rpartition("Current Board:")[2].partition("Available Moves")[0]
    cells = [cell.strip() for line in board.splitlines() if "|" in line for cell in line.split("|")]
    return "".join(cell if cell in ("X", "O") else "." for cell in cells)


def _tic_tac_toe(shown: str) -> Position:
    marks = _marks(shown)
    mine = "X" if "you will be 'X'" in shown else "O"
    free = [number for number in range(9) if marks[number] == "."]
    return Position([f"[{number}]" for number in free], lambda: f"[{_minimax(marks, mine)[1]}]")


@cache
def _minimax(marks: str, mover: str) -> tuple[int, int]:
    """The result for the mover with best play (1, 0 or -1), and the first move that leads there fastest."""
    other, results = "O" if mover == "X" else "X", []
    for number in range(9):
        if marks[number] == ".":
            after = marks[:number] + mover + marks[number + 1 :]
            if any(all(after[cell] == mover for cell in line) for line in LINES):
                return 10, number
            value = -_minimax(after, other)[0] if "." in after else 0
            results.append((value - (value > 0) + (value < 0), number))
    return max(results, key=lambda result: result[0])


def _wild(shown: str) -> Position:
    marks = _marks(shown)
    moves = [f"[{mark} {number}]" for number in range(9) if marks[number] == "." for mark in "XO"]
    return Position(moves, lambda: f"[{_wild_minimax(marks)[1]}]")


@cache
def _wild_minimax(marks: str) -> tuple[int, str]:
    """As `_minimax`, in the game where both players use both marks."""
    results = []
    for number in range(9):
        for mark in "XO" if marks[number] == "." else "":
            after = marks[:number] + mark + marks[number + 1 :]
            if any(all(after[cell] == mark for cell in line) for line in LINES):
                return 10, f"{mark} {number}"
            value = -_wild_minimax(after)[0] if "." in after else 0
            results.append((value - (value > 0) + (value < 0), f"{mark} {number}"))
    return max(results, key=lambda result: result[0])


def _nim(shown: str) -> Position:
    piles = [int(size) for size in re.findall(r"pile \d+: (\d+)", shown.rpartition("Current Pile:")[2])]
    moves = [(pile, count) for pile, size in enumerate(piles) for count in range(1, size + 1)]
    return Position([f"[{pile} {count}]" for pile, count in moves], lambda: "[{} {}]".format(*_nim_move(piles)))


def _nim_move(piles: list[int]) -> tuple[int, int]:
    """The move after which the sizes add up to 0 without carrying; one object where no move does that."""
    total = 0
    for size in piles:
        total ^= size
    for pile, size in enumerate(piles):
        if size ^ total < size:
            return pile, size - (size ^ total)
    return piles.index(max(piles)), 1


def _connect_four(shown: str) -> Position:
    rows = re.findall(r"^[.XO](?: [.XO]){6}$", shown.rpartition("Board state:")[2], re.MULTILINE)
    columns = tuple("".join(row.split()[column] for row in reversed(rows)).rstrip(".") for column in range(7))
    mine = "X" if "Your disc symbol: X" in shown else "O"
    free = [column for column in range(7) if len(columns[column]) < 6]
    return Position([f"[col {column}]" for column in free], lambda: f"[col {_search(columns, mine, DEPTH)[1]}]")


@cache
def _search(columns: tuple[str, ...], mover: str, depth: int) -> tuple[int, int]:
    """The value of a position for the mover, and a move: wins are found up to `depth` moves ahead."""
    other, best = "O" if mover == "X" else "X", (-1000, -1)
    for column in COLUMNS:
        if len(columns[column]) == 6:
            continue
        after = (*columns[:column], columns[column] + mover, *columns[column + 1 :])
        if _connects(after, column):
            return 100 + depth, column
        value = -_search(after, other, depth - 1)[0] if depth > 1 else 3 - abs(3 - column)
        if value > best[0]:
            best = value, column
    return best if best[1] >= 0 else (0, -1)


def _connects(columns: tuple[str, ...], column: int) -> bool:
    row = len(columns[column]) - 1
    mark = columns[column][row]

    def run(across: int, up: int) -> int:
        length = 0
        while _mark(columns, column + across * (length + 1), row + up * (length + 1)) == mark:
            length += 1
        return length

    return any(run(across, up) + run(-across, -up) >= 3 for across, up in ((1, 0), (0, 1), (1, 1), (1, -1)))


def _mark(columns: tuple[str, ...], column: int, row: int) -> str:
    inside = 0 <= column < 7 and 0 <= row < len(columns[column])
    return columns[column][row] if inside else ""


def _pig(shown: str) -> Position:
    me = int(re.findall(r"You are Player (\d)", shown)[0])
    total = int(re.findall(r"current turn total is (\d+)", shown)[-1])
    scores = re.findall(r"Current Total Scores: Player 0: '(\d+)'; Player 1: '(\d+)'", shown)[-1]
    holds = total >= 20 or int(scores[me]) + total >= PIG_SCORE
    return Position(["[roll]", "[hold]"], lambda: "[hold]" if holds else "[roll]")


_READERS = {
    "TicTacToe-v0": _tic_tac_toe,
    "Nim-v0": _nim,
    "ConnectFour-v0": _connect_four,
    "WildTicTacToe-v0": _wild,
    "PigDice-v0-short": _pig,
}

_TITLES = {
    "TicTacToe-v0": " in Tic Tac Toe",
    "Nim-v0": "Welcome to Nim",
    "ConnectFour-v0": "in Connect Four",
    "WildTicTacToe-v0": "in Wild Tic Tac Toe",
    "PigDice-v0-short": "game of Pig Dice",
}

#: The games, by their names in TextArena.
GAMES = tuple(_READERS)
