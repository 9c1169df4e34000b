"""Endless positions: won endgames, and games from random openings."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from ludus_lab.needs import require

INSTRUCTION = (
    "You play chess. In each answer, think briefly and end with one move between tags, in UCI notation or in standard "
    "algebraic notation: <move>e2e4</move>. An answer without a legal move loses after two reminders."
)

#: The pieces of White beside the king in won endgames, and the moves that White has.
ENDGAMES = {"Q": 15, "R": 35, "QR": 10, "RR": 15}


def endgames(seed: int, *, pieces: str = "") -> Iterator[dict[str, Any]]:
    """Positions with White to move, a bare black king, and these pieces of White: one of ENDGAMES, by default any."""
    require(__package__, "chess")
    import chess

    generator = random.Random(seed)
    while True:
        wanted = pieces or generator.choice(sorted(ENDGAMES))
        squares = generator.sample(range(64), len(wanted) + 2)
        board = chess.Board(None)
        for square, symbol in zip(squares, ["K", "k", *wanted], strict=True):
            board.set_piece_at(square, chess.Piece.from_symbol(symbol))
        if board.is_valid() and not any(board.is_attacked_by(chess.BLACK, square) for square in squares[2:]):
            yield row(board.fen(), moves=ENDGAMES.get(wanted, 50))


def games(seed: int, *, plies: int = 6, moves: int = 100) -> Iterator[dict[str, Any]]:
    """Positions after some random moves from the start: games to win with `moves` moves."""
    require(__package__, "chess")
    import chess

    generator = random.Random(seed)
    while True:
        board = chess.Board()
        for _ in range(plies):
            board.push(generator.choice(sorted(board.legal_moves, key=str)))
            if board.is_game_over():
                break
        else:
            yield row(board.fen(), moves=moves)


def row(fen: str, *, goal: str = "win", moves: int) -> dict[str, Any]:
    """One row: a position, what to reach, and in how many moves."""
    prompt = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": "Begin."}]
    return {"responses_create_params": {"input": prompt}, "fen": fen, "goal": goal, "moves": moves}
