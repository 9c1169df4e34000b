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
from time import monotonic
from typing import Any

from ludus.agents.person import seat_person
from ludus.agents.person_seat import PersonSeat
from ludus.agents.typed_calls import Call, read_turn, signature
from ludus.collection.single import play_one
from ludus.data.rows import Rows
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.http.messages import Refusal
from ludus.model import Request
from ludus.models import open_model
from ludus.response import Item, function_call
from ludus.runtime.keys import without_keys
from ludus.view.one import clipped

#: How many rollouts may be played at once, and how many ended ones stay visible.
MAX_TABLES = 8
MAX_ENDED = 32

#: A rollout ends if no page has polled it for so many seconds. A background tab polls once a minute.
LEFT_AFTER = 300.0


class PlayTable(PersonSeat):
    """A rollout in which a person takes part. `entries` are the page's content, in order."""

    def __init__(self, *, as_model: bool) -> None:
        super().__init__(as_model=as_model)
        self.entries: list[dict[str, Any]] = []
        self.state = "opening"  # then `yours`, `waiting` or `ended`
        self.result: dict[str, Any] | None = None
        self.problem: str | None = None
        self.task: asyncio.Task[None] | None = None
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._turn = 0
        self._looked = monotonic()

    @property
    def seconds_alone(self) -> float:
        """Seconds since a page last polled it."""
        return monotonic() - self._looked

    def follow(self, request: Request) -> None:
        """Show the new items of a request."""
        self._turn = request.turn
        super().follow(request)

    def show(self, items: list[Item]) -> None:
        """Show items."""
        self.entries += [{"item": clipped(dict(item))} for item in items]

    async def read(self) -> str | None:
        """Wait for the person's next line that is no command; None for the verdict."""
        while True:
            self.state = "yours"
            line = await self._lines.get()
            self.state = "waiting"
            if line is None or line.split()[0] == "/verify":
                return None
            if not self.run_command(line.split()[0]):
                if (item := self._typed_item(line)) is not None:
                    self.entries.append({"item": clipped(item), "typed": True})
                return line

    def _typed_item(self, line: str) -> Item | None:
        if not self.as_model:
            return {"type": "message", "role": "user", "content": line.removeprefix("/say ")}
        turn = read_turn(line, self.tools)
        if isinstance(turn, Call):  # its output will name the same id
            return function_call(turn.name, turn.arguments, call_id=f"call_{self._turn}")
        return {"type": "message", "role": "assistant", "content": turn} if isinstance(turn, str) else None

    def leave(self) -> None:
        """End the rollout without a verdict; its session is closed."""
        if self.task is not None:
            self.task.cancel()

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
        """The content of the page from entry `skip` on."""
        self._looked = monotonic()
        return {
            "entries": self.entries[skip:],
            "state": self.state,
            "as": "model" if self.as_model else "user",
            "tools": [signature(entry) for entry in self.tools],
            "abouts": {signature(entry): str(entry.get("description") or "")[:500] for entry in self.tools},
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
        ended = [key for key, table in self._tables.items() if table.state == "ended"]
        for key in ended[:-MAX_ENDED]:
            del self._tables[key]
        self._tables[name] = table
        model = seat_person(loaded, table, None if as_model else open_model(self.model or ""))
        table.task = asyncio.create_task(self._play(table, play_one(loaded, chosen, model)))
        return name

    def table(self, name: Any) -> PlayTable:
        """The rollout with an id."""
        table = self._tables.get(str(name))
        if table is None:
            raise Refusal(404, "this rollout has ended, or the viewer was started again")
        return table

    async def close(self) -> None:
        """End all rollouts; their sessions are closed."""
        tasks = [table.task for table in self._tables.values() if table.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _play(self, table: PlayTable, rollout: Any) -> None:
        _leave_if_alone(table)
        try:
            played = await rollout
            row = played.to_row()
            fields = ("outcome", "reward", "reward_components", "mask", "stage", "kind", "cause", "stop_reason")
            values = {name: row[name] for name in row.get("verdict_fields") or () if name in row}
            table.result = clipped({**{name: row[name] for name in fields if name in row}, "values": values})
        except asyncio.CancelledError:
            table.problem = "left without a verdict; the session is closed"
        except UserError as error:
            table.problem = str(error)
        except Exception as error:
            table.problem = without_keys(f"{type(error).__name__}: {error}")[:500]
        finally:
            table.state = "ended"


def _leave_if_alone(table: PlayTable) -> None:
    """End a rollout whose page was closed: its session may hold a container, and there is room for few."""
    left = LEFT_AFTER - table.seconds_alone
    if left > 0 and table.state != "ended":
        asyncio.get_running_loop().call_later(left, _leave_if_alone, table)
    else:
        table.leave()


def _load(name: str, row: int) -> tuple[Environment, dict[str, Any]]:
    loaded = Environment.load(name)
    chosen, _ = Rows(loaded.rows(None), loaded.task, fill=loaded.with_prompt).nth(row, "a row")
    return loaded, chosen
