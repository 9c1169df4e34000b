"""Play: a person takes part in a rollout from the page, as the model or as the user of a model.

The rollouts are those of `ludus chat`: the environment's own agent, session, deadlines and verdict. Only environments
that the command line named with `--play` can be played, because a session runs an environment's code. Nothing of a
played rollout is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

from ludus.agents.person import seat_person
from ludus.agents.typed_calls import signature
from ludus.collection.rows import Rows
from ludus.collection.single import play_one
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.game import Game, observation_items
from ludus.http.messages import Refusal
from ludus.model import Request
from ludus.models import open_model
from ludus.resources import Resources
from ludus.response import Item
from ludus.view.one import clipped

#: How many rollouts may be played at once.
MAX_TABLES = 8


class PlayTable:
    """A rollout in which a person takes part. `entries` is everything that the page shows, in order."""

    def __init__(self, *, as_model: bool) -> None:
        self.entries: list[dict[str, Any]] = []
        self.tools: list[dict[str, Any]] = []
        self.game: Game | None = None
        self.state = "opening"  # then `yours`, `waiting` or `ended`
        self.result: dict[str, Any] | None = None
        self.problem: str | None = None
        self.task: asyncio.Task[None] | None = None
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._shown = self._steps_shown = 0
        self._as_model = as_model

    def watch(self, resources: Resources) -> None:
        """Keep the game, if the resources are one."""
        self.game = resources if isinstance(resources, Game) else None

    def follow(self, request: Request) -> None:
        """Show the new items of a request."""
        self.tools = [entry for entry in request.params.get("tools") or () if isinstance(entry, dict)]
        self.catch_up(request.input)

    def catch_up(self, items: list[Item]) -> None:
        """Show the new rewards of a game, then the new items."""
        steps = self.game.steps if self.game is not None else []
        for step in steps[self._steps_shown :]:
            self.say(f"reward {step.reward:g}")
        self._steps_shown = len(steps)
        self.show_answer(items[self._shown :])
        self._shown = max(self._shown, len(items))

    def show_end(self) -> None:
        """Show the last observation of a game."""
        if self.game is not None and self.game.over:
            self.show_answer(observation_items(self.game.steps[-1].observation))

    def show_answer(self, items: list[Item]) -> None:
        """Show items."""
        self.entries += [{"item": clipped(dict(item))} for item in items]

    def mark_shown(self, count: int) -> None:
        """Count the next items as shown."""
        self._shown += count

    async def read(self) -> str | None:
        """Wait for the person's next line; None for the verdict."""
        self.state = "yours"
        line = await self._lines.get()
        self.state = "waiting"
        if line is not None:
            role = "assistant" if self._as_model else "user"
            self.entries.append({"item": {"type": "message", "role": role, "content": line}, "typed": True})
        return line

    def say(self, line: str) -> None:
        """Tell the person something."""
        self.entries.append({"said": line})

    @contextlib.contextmanager
    def waiting(self, name: str) -> Iterator[None]:
        """The model answers."""
        self.state = "waiting"
        yield

    def type(self, line: str | None) -> None:
        """The person typed a line, or asks for the verdict (None)."""
        if self.state != "yours":
            raise Refusal(409, "it is not your turn")
        self.state = "waiting"
        self._lines.put_nowait(line)

    def shown(self, skip: int) -> dict[str, Any]:
        """What the page shows, from an entry on."""
        return {
            "entries": self.entries[skip:],
            "state": self.state,
            "tools": [signature(entry) for entry in self.tools],
            "result": self.result,
            "problem": self.problem,
        }


class PlayRoom:
    """The rollouts that are being played. `environments` can be played, with `model` if the person is the user."""

    def __init__(self, environments: list[str], model: str | None) -> None:
        self.environments, self.model = environments, model
        self._tables: dict[str, PlayTable] = {}

    def offered(self) -> dict[str, Any]:
        """What can be played."""
        return {"environments": self.environments, "model": self.model}

    async def start(self, environment: str, row: int, *, as_model: bool) -> str:
        """Open a rollout and return its id."""
        if environment not in self.environments:
            raise Refusal(403, "this environment is not offered: start the viewer with --play ENV")
        if not as_model and self.model is None:
            raise Refusal(403, "no model is offered: start the viewer with --play-model MODEL")
        if sum(table.state != "ended" for table in self._tables.values()) >= MAX_TABLES:
            raise Refusal(429, f"{MAX_TABLES} rollouts are being played already: end one of them")
        loaded, chosen = await asyncio.to_thread(_load, environment, row)
        table, name = PlayTable(as_model=as_model), secrets.token_hex(8)
        self._tables = {key: each for key, each in self._tables.items() if each.state != "ended"} | {name: table}
        model = seat_person(loaded, table, None if as_model else open_model(self.model or ""))
        table.task = asyncio.create_task(self._play(table, play_one(loaded, chosen, model)))
        return name

    def table(self, name: Any) -> PlayTable:
        """The rollout with an id."""
        found = self._tables.get(str(name))
        if found is None:
            raise Refusal(404, "this rollout has ended")
        return found

    async def close(self) -> None:
        """End all rollouts; their sessions are closed."""
        tasks = [table.task for table in self._tables.values() if table.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _play(self, table: PlayTable, rollout: Any) -> None:
        try:
            played = await rollout
            row = played.to_row()
            kept = ("outcome", "reward", "reward_components", "mask", "stage", "kind", "cause", "stop_reason")
            values = {name: row[name] for name in row.get("verdict_fields") or () if name in row}
            table.result = clipped({**{name: row[name] for name in kept if name in row}, "values": values})
        except asyncio.CancelledError:
            table.problem = "left without a verdict; the session is closed"
        except UserError as error:
            table.problem = str(error)
        except Exception as error:
            table.problem = f"{type(error).__name__}: {error}"[:500]
        finally:
            table.state = "ended"


def _load(name: str, row: int) -> tuple[Environment, dict[str, Any]]:
    loaded = Environment.load(name)
    chosen, _ = Rows(loaded.rows(None), loaded.task, fill=loaded.with_prompt).nth(row)
    return loaded, chosen
