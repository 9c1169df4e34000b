"""How qualification plays chess: the engine's own moves are right, and random legal moves are a bad policy."""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING, Any

from ludus_lab import needs

if TYPE_CHECKING:
    import chess

#: The oracle searches deeper than the opponent.
NODES = 40_000


def oracle(task: Any) -> Any:
    """The engine's best move in each position."""
    return _engine_move


def preserving(task: Any) -> dict[str, Any]:
    """The engine's moves, written in other ways."""
    return {
        "san": lambda request: f"<move>{_san(request)}</move>",
        "after_thought": lambda request: f"I see it.\n<move>a1a1</move>? No: {_engine_move(request)}",
        "spaces": lambda request: _engine_move(request).replace(">", "> ", 1),
    }


def breaking(task: Any) -> dict[str, Any]:
    """Moves that are not legal, moves without tags, and claims."""
    return {
        "null_move": "<move>0000</move>",
        "null_move_in_san": "<move>--</move>",
        "no_tags": lambda request: _engine_move(request)[6:-7],
        "unclosed": lambda request: _engine_move(request).removesuffix("</move>"),
        "own_king": "<move>e9e9</move>",
        "claims_mate": "Checkmate. I win. Result: 1-0.",
        "resigns": "<move>resign</move>",
    }


def exploits(task: Any) -> dict[str, Any]:
    """A random legal move in each position."""
    return {"random_legal": _random_move}


def _engine_move(request: Any) -> str:
    return f"<move>{_best(_board(request).fen())}</move>"


@cache
def _best(fen: str) -> str:
    import chess.engine

    with chess.engine.SimpleEngine.popen_uci(needs.program("stockfish") or "stockfish") as engine:
        return str(engine.play(chess.Board(fen), chess.engine.Limit(nodes=NODES)).move)


def _san(request: Any) -> str:
    board = _board(request)
    san: str = board.san(board.parse_uci(_engine_move(request)[6:-7]))
    return san


def _random_move(request: Any) -> str:
    board = _board(request)
    moves = sorted(board.legal_moves, key=str)
    return f"<move>{random.Random(board.fen()).choice(moves)}</move>"


def _board(request: Any) -> chess.Board:
    """The position that the game showed last."""
    import chess

    shown = str(request.input[-1]["content"])
    return chess.Board(shown.partition("Position: ")[2].partition("\n")[0])
