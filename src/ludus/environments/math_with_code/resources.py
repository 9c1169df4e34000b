r"""A mathematical problem and a Python session to compute with. The answer is in a box, in a message.

The session runs in a sandbox and belongs to one rollout. What it prints is for the model: it does not count as an
answer, so there is nothing to gain from deceiving it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

from pydantic import PositiveFloat

import ludus
from ludus import Response, UserError, Verdict, tool
from ludus.environments.math_with_code.answers import same_answer
from ludus.environments.math_with_code.session import PythonSession, installed, session_spec
from ludus.graders.answers import last_boxed
from ludus.response import texts_of
from ludus.sandbox.resources import LazySandbox, SandboxConfig, SandboxResources

_EMPTY_BOX = re.compile(r"\\boxed\{\s*\}")


class MathWithCode(SandboxResources):
    """One tool, and the session behind it."""

    class Task(ludus.Task):
        expected_result: str

    class Config(SandboxConfig):
        """Settings of the tool."""

        #: CPU time of one call of the tool, in seconds.
        max_execution_time: PositiveFloat = 10.0

    config: Config
    sandbox_spec = session_spec()

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[Any]:
        if config.sandbox.provider == "process":
            cause = "a Python session needs sockets, and the sandbox provider process gives programs none"
            raise UserError(cause, "Leave resources.sandbox.provider out, so that math_with_code uses bubblewrap")
        async with super().share(config) as provider:
            yield provider

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self.session = PythonSession(self.sandbox)

    @tool
    async def execute_python(self, code: str) -> dict[str, Any]:
        """Execute Python code. Variables stay from one call to the next. Print what you want to see.

        Args:
            code: The Python code to execute.
        """
        return await self.session.run(code, self.config.max_execution_time)

    def tools(self) -> list[dict[str, Any]]:
        """The tool, with the packages that code can import."""
        packages = ", ".join(installed())
        there = f"You can use the standard library{f' and {packages}' if packages else ' only'}."
        return [{**tool, "description": f"{tool['description']} {there}"} for tool in super().tools()]

    async def verify(self, task: Task, response: Response) -> Verdict:
        answer = _boxed(response)
        right = answer is not None and same_answer(task.expected_result, answer)
        return Verdict(float(right), extracted_answer=answer, accuracy=right)

    async def fork(self) -> Self:
        """A second session with the same files, which runs all earlier code again before its first call."""
        twin = self.copied("sandbox", "session")
        if isinstance(self.sandbox, LazySandbox):
            twin.sandbox = await self.sandbox.fork()
        twin.session = self.session.copied(twin.sandbox)
        return twin


def _boxed(response: Response) -> str | None:
    """The last box of the last message that has one with something in it."""
    for item in reversed(response.output):
        if item.get("type", "message") == "message" and item.get("role", "assistant") == "assistant":
            answer = (last_boxed(_EMPTY_BOX.sub("", texts_of(item))) or "").strip()
            if answer:
                return answer
    return None
