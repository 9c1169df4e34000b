"""A service desk with a written policy, and a simulated user who wants something from it.

The policy model talks with the user and works on a database that belongs to its rollout alone. In the end the database
must hold what it would hold after the right actions, the user must have heard what the policy says they must hear, and
must have been the one to end the conversation.
"""

from __future__ import annotations

import re
import sqlite3
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field

import ludus
from ludus import Failure, Resources, Response, Verdict
from ludus.agents.conversation import Ending
from ludus.agents.user import UserRole, user_tools
from ludus.environments.user_modeling.desk import Desk, State
from ludus.environments.user_modeling.generate import DESKS
from ludus.response import is_message, texts_of

#: How many worlds a process keeps at hand, at some 50 KB each.
WORLDS_KEPT = 300

#: How many different dates or amounts somebody may name who knows which one is right.
MOST_DATES, MOST_AMOUNTS = 8, 40

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
_DATE = re.compile(
    rf"\d{{4}}-\d\d-\d\d|\d\d[./]\d\d[./]\d{{4}}|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}|{_MONTH} \d{{1,2}}"
)
_AMOUNT = re.compile(r"\d{1,9}\.\d{1,2}")


class Person(BaseModel):
    """The user of a row. `belongings` is what their own tools find."""

    persona: str = ""
    goal: str
    facts: dict[str, str] = {}
    unknown: str = ""
    instructions: str = ""
    refuses: list[str] = []
    belongings: dict[str, str] = {}


class Action(BaseModel):
    """One thing that had to be done, by the policy or by the user."""

    name: str
    arguments: dict[str, Any] = {}
    by: Literal["policy", "user"] = "policy"


class Worlds:
    """Templates of databases, made when they are first asked for."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int], sqlite3.Connection] = OrderedDict()

    def desk(self, domain: str, world: int, belongings: dict[str, str]) -> Desk:
        """A desk with a copy of its world."""
        key = domain, world
        if key not in self._known:
            self._known[key] = DESKS[domain].template(world)
        self._known.move_to_end(key)
        if len(self._known) > WORLDS_KEPT:
            self._known.popitem(last=False)[1].close()
        return DESKS[domain](self._known[key], belongings)

    def close(self) -> None:
        """Forget all of them."""
        for template in self._known.values():
            template.close()


class ServiceDesk(Resources):
    """The desk of the row's domain, behind one door."""

    class Task(ludus.Task):
        domain: Literal["retail", "travel", "library"]
        world: int
        user: Person
        actions: list[Action] = []
        communicate: list[Annotated[list[str], Field(min_length=1)]] = []

    shared: Worlds
    desk: Desk | None = None

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[Worlds]:
        worlds = Worlds()
        yield worlds
        worlds.close()

    async def open(self, task: Task) -> None:
        self.desk = self.shared.desk(task.domain, task.world, task.user.belongings)

    def tools(self) -> list[dict[str, Any]]:
        return self.desk.tools() if self.desk is not None else []

    async def call(self, name: str, arguments: str) -> str:
        assert self.desk is not None
        return await self.desk.call(name, arguments)

    def user(self, task: Task) -> UserRole:
        """Who is at the desk."""
        user = task.user
        return UserRole(
            persona=user.persona,
            goal=user.goal,
            facts=user.facts,
            unknown=user.unknown,
            instructions=user.instructions,
            refuses=tuple(user.refuses),
            tools=user_tools(self.desk),
        )

    async def verify(self, task: Task, response: Response) -> Verdict:
        assert self.desk is not None
        expected, found = await self._expected(task), self.desk.state()
        differing = [table for table in expected if expected[table] != found.get(table)]
        said = [texts_of(item).replace(",", "").lower() for item in response.output if is_message(item)]
        missing = [spellings[0] for spellings in task.communicate if not _was_said(spellings, "\n".join(said))]
        ending = Ending.of(response)
        communicated = 1 - len(missing) / len(task.communicate) if task.communicate else 1.0
        components = {
            "state": float(not differing),
            "communication": communicated,
            "ended_by_user": float(ending is not None and ending.by_user),
        }
        reward = float(all(part == 1 for part in components.values()))
        return Verdict(reward, components=components, differing_tables=differing, not_said=missing)

    async def close(self) -> None:
        if self.desk is not None:
            await self.desk.close()

    def fork(self) -> Self:
        """The same conversation at a desk of its own."""
        twin = type(self)(self.config, self.shared)
        twin.seed, twin.desk = self.seed, self.desk.fork() if self.desk is not None else None
        return twin

    async def _expected(self, task: Task) -> State:
        """The database after the right actions."""
        desk = self.shared.desk(task.domain, task.world, task.user.belongings)
        users = {tool.name: tool.tool for tool in user_tools(desk)}
        try:
            for action in task.actions:
                known = users if action.by == "user" else desk.toolbox
                await known[action.name].function(desk, **action.arguments)
            return desk.state()
        except Exception as error:
            raise Failure("bad_row", f"the right actions cannot be taken: {type(error).__name__}: {error}") from error
        finally:
            await desk.close()


def _was_said(spellings: list[str], said: str) -> bool:
    """Whether one of the spellings was said, not as part of a longer number, and not as one guess of many."""
    kind, most = (_DATE, MOST_DATES) if _DATE.fullmatch(spellings[0]) else (_AMOUNT, MOST_AMOUNTS)
    if len(set(kind.findall(said))) > most:
        return False
    written = "|".join(re.escape(each.replace(",", "").lower()) for each in spellings)
    return re.search(rf"(?<![\d.])(?:{written})(?!\d|\.\d)", said) is not None
