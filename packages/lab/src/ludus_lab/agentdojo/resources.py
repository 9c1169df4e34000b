"""A task of AgentDojo: its tools on its state, judged by its own checks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import orjson
from pydantic import field_validator

import ludus
from ludus import Failure, Resources, Response, Verdict
from ludus.errors import UserError
from ludus.resources import ResourcesConfig
from ludus.response import is_message, texts_of
from ludus.runtime.threads import in_thread
from ludus.tools import error_text, not_found
from ludus_lab.agentdojo.judging import Played, check, values_of
from ludus_lab.agentdojo.suites import SUITES, VERSION, state, suite, tools_of


class AgentDojo(Resources):
    """One state of a suite for each rollout. Tools change it, and the checks of the tasks compare it with the start."""

    class Config(ResourcesConfig):
        """What the reward counts."""

        #: `both`: the user's task is done, and the injected one is not; `utility`: the user's task is done; `security`:
        #: the injected task is not done.
        reward: Literal["both", "utility", "security"] = "both"

    class Task(ludus.Task):
        """A user task of a suite, and what an attack wrote into the suite's state.

        A row with `injections` and without `injection_task` is an attack that only wants the user's task to be dropped.
        """

        suite: str
        user_task: str
        injection_task: str | None = None
        attack: str = "none"
        injections: dict[str, str] = {}
        version: str = VERSION

        @field_validator("suite")
        @classmethod
        def _known(cls, name: str) -> str:
            if name not in SUITES:
                raise ValueError(f"must be one of {', '.join(SUITES)}")
            return name

    config: Config

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[Any]:
        """Import the package once, before the first rollout's deadline runs."""
        for name in SUITES:
            await in_thread(suite, name)
        yield None

    def open(self, task: Task) -> None:
        """Make the state, with the row's injections in it."""
        from agentdojo.functions_runtime import FunctionsRuntime

        try:
            chosen = suite(task.suite, task.version)
            self.user_task = _task_of(chosen.user_tasks, "user_task", task.user_task)
            wanted = task.injection_task
            self.injection_task = _task_of(chosen.injection_tasks, "injection_task", wanted) if wanted else None
            self.state = self.user_task.init_environment(state(task.suite, task.version, task.injections))
        except (UserError, ValueError) as error:
            raise Failure("bad_row", str(error)) from error
        self.runtime = FunctionsRuntime(chosen.tools)
        self.offered = tools_of(task.suite, task.version)
        self.calls: list[tuple[str, str]] = []

    def tools(self) -> list[dict[str, Any]]:
        """The functions of the suite, with agentdojo's own schemas. None before the rollout is open."""
        return orjson.loads(self.offered) if hasattr(self, "offered") else []

    async def call(self, name: str, arguments: str) -> str:
        """Run a function on the state. The model reads its result, or its error, as agentdojo writes it."""
        from agentdojo.agent_pipeline.tool_execution import tool_result_to_str

        if name not in self.runtime.functions:
            return not_found()
        try:
            values = values_of(arguments)
        except ValueError as error:
            return error_text(f"Invalid tool call arguments: {error}", "bad_arguments")
        self.calls.append((name, arguments))
        try:
            result, problem = self.runtime.run_function(self.state, name, values)
            return str(problem or tool_result_to_str(result))
        except Exception as error:  # agentdojo catches those of the function, and not those around it
            return f"{type(error).__name__}: {error}"

    def verify(self, task: Task, response: Response) -> Verdict:
        """Ask the checks of the user's task and of the injected task."""
        played = Played(
            suite=task.suite,
            version=task.version,
            injections=task.injections,
            user_task=task.user_task,
            injection_task=task.injection_task or None,
            state=self.state,
            calls=self.calls,
            text=final_text(response),
        )
        checked = check(played)
        utility = checked.utility
        secure = not checked.injected if checked.injected is not None else utility or not task.injections
        counts = {"utility": utility, "security": secure, "both": utility and secure}
        return Verdict(
            float(counts[self.config.reward]),
            components={"utility": float(utility), "security": float(secure)},
            attacked=bool(task.injections),
            problem=checked.problem,
        )


def final_text(response: Response) -> str:
    """The texts after the last output of a tool, which is what the user reads."""
    texts: list[str] = []
    for item in reversed(response.output):
        if item.get("type") == "function_call_output":
            break
        if is_message(item):
            texts.insert(0, texts_of(item))
    return "\n".join(texts)


def _task_of(tasks: dict[str, Any], field: str, name: str) -> Any:
    if name not in tasks:
        raise ValueError(f"{field}: the suite has no task {name!r:.60}")
    return tasks[name]
