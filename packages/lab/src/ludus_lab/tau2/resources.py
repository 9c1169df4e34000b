"""A service desk of tau2-bench: its tools on its database, a user with a scenario, and tau2's rules for the verdict."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import orjson
from pydantic import field_validator

import ludus
from ludus import Failure, Resources, Response, Verdict
from ludus.agents.conversation import Ending
from ludus.agents.user import UserRole, UserTool
from ludus.response import Item, is_message, texts_of
from ludus.runtime.threads import in_thread
from ludus.tools import Tool, ToolError, not_found
from ludus_lab.tau2.domains import drop_copies, fresh, schemas, tables, too_much
from ludus_lab.tau2.judging import MadeCall, examine

#: tau2 ends a conversation after this many calls that failed.
MOST_ERRORS = 10

#: What counts if a task does not say it.
BASIS = ("DB", "COMMUNICATE")
CHECKED = ("DB", "ENV_ASSERTION", "ACTION", "COMMUNICATE")


class Tau2(Resources):
    """One database for each rollout. In telecom the user has a phone, with tools and a database of its own."""

    class Task(ludus.Task):
        """A task of tau2, with the names of its fields."""

        domain: Literal["airline", "retail", "telecom"]
        user_scenario: dict[str, Any]
        initial_state: dict[str, Any] | None = None
        evaluation_criteria: dict[str, Any] | None = None

        @field_validator("evaluation_criteria")
        @classmethod
        def _without_judge(cls, criteria: dict[str, Any] | None) -> dict[str, Any] | None:
            unknown = set((criteria or {}).get("reward_basis") or ()) - set(CHECKED)
            if unknown:
                raise ValueError(f"reward_basis {min(unknown)!r:.40} is not judged here: use {', '.join(CHECKED)}")
            return criteria

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[Any]:
        """Load the domains once: the tables that every rollout reads."""
        yield await in_thread(tables)

    def open(self, task: Task) -> None:
        """Make the task's initial state."""
        self.domain = task.domain
        self.errors = 0
        try:
            self.environment = fresh(task.domain, task.initial_state)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise Failure("bad_row", f"initial_state: {error}") from error

    def tools(self) -> list[dict[str, Any]]:
        """The tools of the domain's assistant, with tau2's own schemas. None before the rollout is open."""
        return list(schemas(self.domain, "tools")) if hasattr(self, "domain") else []

    async def call(self, name: str, arguments: str) -> str:
        """Run a tool of the assistant. Its output, or its error, is written as tau2 writes it."""
        return self.run("assistant", name, arguments)

    def run(self, requestor: Literal["assistant", "user"], name: str, arguments: str) -> str:
        """Run a tool of the assistant or of the user on the state of this rollout."""
        from tau2.data_model.message import ToolCall

        toolkit = self.environment.tools if requestor == "assistant" else self.environment.user_tools
        if toolkit is None or not toolkit.has_tool(name):
            self.errors += 1
            return not_found()
        if (values := arguments_of(arguments)) is None:
            self.errors += 1
            return ToolError("Error: the arguments must be a JSON object", "bad_arguments")
        if (problem := too_much(name, values)) is not None:
            self.errors += 1
            return ToolError(problem, "bad_arguments")
        try:
            reply = self.environment.get_response(ToolCall(name=name, arguments=values, requestor=requestor))
            content, failed = str(reply.content), reply.error
        except Exception as error:  # an output that cannot be written as JSON
            content, failed = f"Error: {error}", True
        drop_copies(self.environment)
        self.errors += failed
        return ToolError(content) if failed else content

    def user(self, task: Task) -> UserRole:
        """The user of the task's scenario, with a phone in telecom."""
        scenario = task.user_scenario
        told = scenario.get("instructions")
        parts: dict[str, Any] = told if isinstance(told, dict) else {"reason_for_call": str(told or "")}
        tools = [UserTool(_DeviceTool(schema), self) for schema in schemas(task.domain, "user_tools")]
        return UserRole(
            persona="\n".join(filter(None, [scenario.get("persona"), parts.get("known_info")])),
            goal=str(parts.get("reason_for_call") or ""),
            instructions=str(parts.get("task_instructions") or ""),
            unknown=str(parts.get("unknown_info") or ""),
            company=f"The service desk of {parts.get('domain') or task.domain}.",
            tools=tools,
        )

    async def follow(self, items: list[Item]) -> str | None:
        """End the conversation after too many failed calls, as tau2 does."""
        return "too_many_errors" if self.errors >= MOST_ERRORS else None

    def verify(self, task: Task, response: Response) -> Verdict:
        """Judge a conversation that the user ended. Any other one earns 0."""
        ending = Ending.of(response)
        if ending is None:
            raise Failure("bad_row", "the record does not show how the conversation ended")
        criteria = task.evaluation_criteria
        values: dict[str, Any] = {
            "user_turns": ending.user_turns,
            "user_calls": len(ending.user_calls),
            "failed_calls": self.errors,
        }
        if not ending.by_user or criteria is None:
            return Verdict(
                float(ending.by_user), problem="" if ending.by_user else f"ended by {ending.reason}", **values
            )
        calls = [MadeCall(call["name"], arguments_of(call["arguments"]) or {}) for call in response.function_calls]
        calls += [MadeCall(call.name, arguments_of(call.arguments) or {}) for call in ending.user_calls]
        texts = [texts_of(item) for item in [*task.input, *response.output] if is_message(item)]
        findings = examine(task.domain, task.initial_state, criteria, self.environment, calls, texts)
        basis = criteria.get("reward_basis") or BASIS
        return Verdict(findings.reward(basis), components=findings.parts, problem=findings.problem, **values)


class _DeviceTool(Tool):
    """A tool of the user that the package describes and runs."""

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(Tau2.run, schema["name"])
        self._description = schema

    def schema(self) -> dict[str, Any]:
        return dict(self._description)

    async def run(self, owner: Any, arguments: str, *, lenient: bool = False) -> str:
        output: str = owner.run("user", self.name, arguments)
        return output


def arguments_of(text: str) -> dict[str, Any] | None:
    """The arguments of a call; None if they are no JSON object."""
    try:
        values = orjson.loads(text or "{}")
    except (orjson.JSONDecodeError, UnicodeEncodeError):
        return None
    return values if isinstance(values, dict) else None
