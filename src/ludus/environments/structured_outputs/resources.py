"""An answer in a requested format that must fit a JSON schema. Only the shape counts, not the values.

The answer is the model's whole text, or in `tool_call` mode the arguments of its one function call, which is not run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import ludus
from ludus import Resources, ResourcesConfig, Response, Verdict
from ludus.environments.structured_outputs.checking import Finding, check, is_quick
from ludus.graders.formats import Format
from ludus.runtime.processes import ProcessPool, shared_pool
from ludus.runtime.threads import in_thread

#: CPU time limit of one check. Only a schema with hostile patterns or references takes that long.
SECONDS = 5.0


class StructuredOutputs(Resources):
    """No tools and no state: the verifier checks the answer, in a child process if that could take long."""

    class Task(ludus.Task):
        schema_str: str
        schema_type: Format = "json"
        response_mode: Literal["text", "tool_call"] | None = "text"
        tool_name: str | None = None
        tool_payload_key: str | None = None

    class Config(ResourcesConfig):
        """Settings of the verifier."""

        #: Convert the texts of an XML document to the numbers and booleans that the schema asks for.
        xml_coerce_types: bool = True

    config: Config
    shared: ProcessPool

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[ProcessPool]:
        async with shared_pool() as pool:
            yield pool

    async def verify(self, task: Task, response: Response) -> Verdict:
        if task.response_mode == "tool_call":
            problem = _call_problem(task, response)
            if problem is not None:
                return Verdict(0.0, error_type=problem)
            arguments = str(response.function_calls[0].get("arguments"))
            return await self._checked("payload", task.schema_str, arguments, task.tool_payload_key or None)
        text = response.output_text
        if not text.strip():
            return Verdict(0.0, error_type="empty_response")
        return await self._checked("text", task.schema_str, text, task.schema_type, self.config.xml_coerce_types)

    async def _checked(self, kind: str, schema: str, answer: str, *how: Any) -> Verdict:
        request = (kind, schema, answer, *how, self.config.compat)
        result: tuple[Finding, str | None]
        if is_quick(schema, answer):
            result = await in_thread(check, *request)
        else:
            result = await self.shared.run(check, *request, cpu_seconds=SECONDS)
        (error_type, error_message), row_problem = result
        mask = None if self.config.compat else row_problem
        values: dict[str, Any] = {} if error_type and error_message is None else {"error_message": error_message}
        return Verdict(float(error_type is None), mask=mask, error_type=error_type, **values)


def _call_problem(task: StructuredOutputs.Task, response: Response) -> str | None:
    """The error type if there is not exactly one call of the right tool; the arguments are checked later."""
    calls = response.function_calls
    if response.data.get("error"):
        return "api_error"
    if not calls:
        return "missing_tool_call"
    if len(calls) > 1:
        return "multiple_tool_calls"
    if task.tool_name and calls[0].get("name") != task.tool_name:
        return "wrong_tool_name"
    return None
