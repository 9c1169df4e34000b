"""The addresses of Play."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ludus.http.app import Handler
from ludus.http.messages import Incoming, Refusal, Reply

if TYPE_CHECKING:
    from ludus.view.play import PlayRoom

#: How long a typed line may be.
MAX_LINE = 100_000

_PATHS = ("start", "look", "say", "verdict", "leave")


def play_routes(room: PlayRoom | None) -> dict[tuple[str, str], Handler]:
    """The routes of a room; without one, the page says how to offer an environment."""
    return _routes_without_room() if room is None else _routes(room)


def _routes_without_room() -> dict[tuple[str, str], Handler]:
    async def offered(incoming: Incoming) -> Reply:
        return Reply.of({"environments": [], "model": None})

    async def refuse(incoming: Incoming) -> Reply:
        raise Refusal(403, "no environment is offered: start the viewer with ludus view --play ENV")

    return {("GET", "/api/play"): offered, **{("POST", f"/api/play/{name}"): refuse for name in _PATHS}}


def _routes(room: PlayRoom) -> dict[tuple[str, str], Handler]:
    async def offered(incoming: Incoming) -> Reply:
        return Reply.of(room.offered())

    async def start(incoming: Incoming) -> Reply:
        body = incoming.json()
        environment, row = body.get("environment"), body.get("row", 1)
        if not isinstance(environment, str) or type(row) is not int or not 1 <= row <= 10**9:
            raise Refusal(422, "a rollout needs an `environment` and a `row` from 1")
        return Reply.of({"table": await room.start(environment, row, as_model=body.get("as") != "user")})

    async def look(incoming: Incoming) -> Reply:
        body = incoming.json()
        skip = body.get("skip", 0)
        return Reply.of(room.table(body.get("table")).shown(skip if isinstance(skip, int) and skip >= 0 else 0))

    async def say(incoming: Incoming) -> Reply:
        body: dict[str, Any] = incoming.json()
        line = body.get("line")
        if not isinstance(line, str) or not line.strip() or len(line) > MAX_LINE:
            raise Refusal(422, f"a `line` is a text of at most {MAX_LINE:,} characters")
        room.table(body.get("table")).type(line.strip())
        return Reply.of({})

    async def verdict(incoming: Incoming) -> Reply:
        room.table(incoming.json().get("table")).type(None)
        return Reply.of({})

    async def leave(incoming: Incoming) -> Reply:
        room.table(incoming.json().get("table")).leave()
        return Reply.of({})

    posts = zip(_PATHS, (start, look, say, verdict, leave), strict=True)
    return {("GET", "/api/play"): offered, **{("POST", f"/api/play/{name}"): handler for name, handler in posts}}
