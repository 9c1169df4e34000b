"""The resources of a game server that is not Ludus's code: only its address is known here."""

from __future__ import annotations

from ludus.game import Game


class ForeignGame(Game):
    """Accepts any row. The rules and the rewards are on the server."""
