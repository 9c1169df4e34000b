"""A service desk with a written policy, and a simulated user with requests.

The policy model talks with the user and changes its rollout's database. In the end the database must equal the
database after the right actions, the model must have told the user everything that the policy requires, and the user
must have ended the conversation.
"""

from __future__ import annotations

import re
import sqlite3
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field

import ludus
from ludus import Failure, Resources, Response, Verdict
from ludus.agents.conversation import Ending
from ludus.agents.user import UserRole, user_tools
from ludus.environments.user_modeling.desk import Desk, State
from ludus.environments.user_modeling.generate import DESKS
from ludus.response import is_message, texts_of

#: How many worlds a process caches, at some 50 KB each.
WORLDS_KEPT = 300

#: Naming more different dates or amounts than this counts as guessing.
MOST_DATES, MOST_AMOUNTS = 8, 40

_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}"
_DATE = re.compile(
    rf"\d{{4}}-\d\d-\d\d|\d\d[./]\d\d[./]\d{{4}}|\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}|{_MONTH} \d{{1,2}}"
)
_AMOUNT = re.compile(r"\d{1,9}\.\d{1,2}")


class Person(BaseModel):
    """The user of a row. `belongings` are the things that the user's tools find."""

    persona: str = ""
    goal: str
    facts: dict[str, str] = {}
    unknown: str = ""
    instructions: str = ""
    refuses: list[str] = []
    belongings: dict[str, str] = {}


class Action(BaseModel):
    """One right action, by the policy model or by the user."""

    name: str
    arguments: dict[str, Any] = {}
    by: Literal["policy", "user"] = "policy"


class Worlds:
    """A cache of database templates, made on first use."""

    def __init__(self) -> None:
        self._templates: OrderedDict[tuple[str, int], sqlite3.Connection] = OrderedDict()

    def desk(self, domain: str, world: int, belongings: dict[str, str]) -> Desk:
        """A desk with a copy of its world's database."""
        key = domain, world
        if key not in self._templates:
            self._templates[key] = DESKS[domain].template(world)
        self._templates.move_to_end(key)
        if len(self._templates) > WORLDS_KEPT:
            self._templates.popitem(last=False)[1].close()
        return DESKS[domain](self._templates[key], belongings)

    def close(self) -> None:
        """Close all templates."""
        for template in self._templates.values():
            template.close()


class ServiceDesk(Resources):
    """Forwards tools and calls to the desk of the row's domain."""

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
        with closing(Worlds()) as worlds:
            yield worlds

    async def open(self, task: Task) -> None:
        self.desk = self.shared.desk(task.domain, task.world, task.user.belongings)

    def tools(self) -> list[dict[str, Any]]:
        return self.desk.tools() if self.desk is not None else []

    async def call(self, name: str, arguments: str) -> str:
        assert self.desk is not None
        return await self.desk.call(name, arguments)

    def user(self, task: Task) -> UserRole:
        """The role that the simulated user plays."""
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
        expected, state = await self._expected(task), self.desk.state()
        differing = [table for table in expected if expected[table] != state.get(table)]
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
        """The same conversation with a copy of the desk."""
        twin = type(self)(self.config, self.shared)
        twin.seed, twin.desk = self.seed, self.desk.fork() if self.desk is not None else None
        return twin

    async def _expected(self, task: Task) -> State:
        """The database after the right actions."""
        desk = self.shared.desk(task.domain, task.world, task.user.belongings)
        users = {tool.name: tool.tool for tool in user_tools(desk)}
        try:
            for action in task.actions:
                tools = users if action.by == "user" else desk.toolbox
                await tools[action.name].function(desk, **action.arguments)
            return desk.state()
        except Exception as error:
            raise Failure("bad_row", f"the right actions cannot be taken: {type(error).__name__}: {error}") from error
        finally:
            await desk.close()


def _was_said(spellings: list[str], said: str) -> bool:
    """Whether one of the spellings was said, outside of longer numbers, and not among too many guesses."""
    kind, most = (_DATE, MOST_DATES) if _DATE.fullmatch(spellings[0]) else (_AMOUNT, MOST_AMOUNTS)
    if len(set(kind.findall(said))) > most:
        return False
    written = "|".join(re.escape(spelling.replace(",", "").lower()) for spelling in spellings)
    return re.search(rf"(?<![\d.])(?:{written})(?!\d|\.\d)", said) is not None
