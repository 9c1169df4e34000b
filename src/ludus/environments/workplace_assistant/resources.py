"""An office with 27 tools over mail, a calendar, web analytics, project boards and customers.

The model gets a request. It is graded by the final state of the tables, which must equal the state after the row's
actions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import ValidationInfo, field_validator, model_validator

import ludus
from ludus import ResourcesConfig, Response, Verdict
from ludus.environments.workplace_assistant import reference
from ludus.environments.workplace_assistant.customers import Customers
from ludus.environments.workplace_assistant.desk import is_writing
from ludus.environments.workplace_assistant.events import Calendar
from ludus.environments.workplace_assistant.fitting import object_of, run_actions
from ludus.environments.workplace_assistant.grading import differences
from ludus.environments.workplace_assistant.mail import Directory, Mail
from ludus.environments.workplace_assistant.projects import Projects
from ludus.environments.workplace_assistant.rules import Rules
from ludus.environments.workplace_assistant.tables import Office, Tables
from ludus.environments.workplace_assistant.visits import Analytics
from ludus.runtime.encoding import encode
from ludus.runtime.threads import in_thread
from ludus.tools import error_text, not_found

#: The arguments that name a row by its id.
IDS = frozenset({"email_id", "event_id", "task_id", "customer_id", "visitor_id"})

#: Replaces a list, an object or a boolean in the place of a text: no id, no address, no date, and none of the choices.
NO_TEXT = "\ufffd"


class Tools(Customers, Projects, Analytics, Calendar, Mail, Directory):  # the tools are offered in the reverse order
    """All tools of the office."""


class WorkplaceAssistant(Tools):
    """An office whose changes only its own rollout can see."""

    class Task(ludus.Task):
        """A request, and the right actions."""

        ground_truth: Any

        @model_validator(mode="before")
        @classmethod
        def _unnest_actions(cls, row: Any, info: ValidationInfo) -> Any:
            """One script for the public data puts the actions under `verifier_metadata`."""
            if isinstance(row, dict) and "ground_truth" not in row and not (info.context or {}).get("compat"):
                nested = row.get("verifier_metadata")
                if isinstance(nested, dict) and "ground_truth" in nested:
                    return {**row, "ground_truth": nested["ground_truth"]}
            return row

        @field_validator("ground_truth")
        @classmethod
        def _check_actions(cls, actions: Any, info: ValidationInfo) -> Any:
            if not (info.context or {}).get("compat"):
                if not isinstance(actions, list):
                    raise ValueError("it must be a list of actions")
                for action in actions:
                    _check_action(action)
            return actions

    class Config(ResourcesConfig):
        """Settings."""

        #: A folder with the CSV files of the public data, to use instead of our own.
        tables: Path | None = None

    config: Config
    right: Office  #: the tables after the row's actions

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Tables]:
        yield await in_thread(Tables.load, config.tables)

    async def open(self, task: Task) -> None:
        self.rules = reference.ReferenceRules() if self.config.compat else Rules()
        self.office = Office(self.shared, self.rules.table)
        if not self.config.compat:
            self.right = await run_actions(self._fresh(), task, task.ground_truth)

    def _fresh(self) -> Self:
        """A session whose tables are as they were at the start."""
        twin = type(self)(self.config, self.shared)
        twin.rules, twin.office = self.rules, Office(self.shared, self.rules.table)
        return twin

    def fork(self) -> Self:
        """A session with a copy of this office's changes."""
        twin = type(self)(self.config, self.shared)
        twin.seed, twin.rules, twin.office = self.seed, self.rules, self.office.copy()
        if not self.config.compat:
            twin.right = self.right
        return twin

    async def call(self, name: str, arguments: str) -> str:
        """Run a tool. Null arguments count as missing; the tool itself answers if a required one is missing."""
        try:
            parsed = orjson.loads(arguments or "{}")
        except orjson.JSONDecodeError as error:
            return error_text(f"Invalid tool call arguments: {error}")
        if not isinstance(parsed, dict):
            words = "Input should be a valid dictionary or object to extract fields from"
            return _validation_error(("model_attributes_type", [], words, parsed))
        values = {key: value for key, value in parsed.items() if value is not None}
        if self.config.compat:
            return await reference.call(self, name, values)
        entry = self.toolbox.get(name)
        if entry is None:
            return not_found()
        parameters = entry.schema()["parameters"]
        if unknown := values.keys() - parameters["properties"].keys():
            words = "Extra inputs are not permitted"
            return _validation_error(*(("extra_forbidden", [key], words, values[key]) for key in sorted(unknown)))
        values = dict.fromkeys(parameters["required"], "") | values
        odd = [key for key, value in values.items() if isinstance(value, (list, dict, bool))]
        if odd and (refusal := await self._refusal(name, values, odd)) is not None:
            return refusal
        return await entry.run(self, encode(values).decode())

    async def _refusal(self, name: str, values: dict[str, Any], odd: list[str]) -> str | None:
        """The tool's refusal of values that are no texts; None if it would store them.

        The tool runs on a copy of the office.
        """
        if not is_writing(name, Tools) and not IDS.issuperset(odd):
            return None  # a search for nonsense would find nothing
        twin = self._fresh()
        twin.office = self.office.copy()
        texts = {key: NO_TEXT if values[key] else "" for key in odd}
        answer = await self.toolbox[name].run(twin, encode(values | texts).decode())
        return answer if twin.office.edits == self.office.edits and NO_TEXT not in answer else None

    async def verify(self, task: Task, response: Response) -> Verdict:
        if self.config.compat:
            expected = await reference.replayed(self._fresh(), task.ground_truth)
            actual = await reference.replayed(self._fresh(), response.function_calls)
            return Verdict(float(reference.equal(expected, actual)))
        differing = differences(self.office, self.right)
        return Verdict(float(not differing), differing_tables=differing)


def _check_action(action: Any) -> None:
    """Refuse an action that can never run: without it, doing nothing could earn the reward."""
    name = action.get("name") if isinstance(action, dict) else None
    if not isinstance(name, str) or name not in Tools.toolbox:
        raise ValueError(f"there is no tool {name!r:.80}")
    arguments = object_of(action.get("arguments"))
    if arguments is None:
        raise ValueError(f"the arguments of {name} are not a JSON object")
    known = Tools.toolbox[name].schema()["parameters"]["properties"]
    if unknown := [key for key, value in arguments.items() if value is not None and key not in known]:
        raise ValueError(f"{name} has no argument {unknown[0]!r:.80}")


def _validation_error(*problems: tuple[str, list[str], str, Any]) -> str:
    detail = [
        {"type": kind, "loc": ["body", *where], "msg": words, "input": value} for kind, where, words, value in problems
    ]
    return encode({"detail": detail}).decode()
