"""An answer in a format and shape that were asked for: only whether it fits the schema counts, not what it says.

The answer is the whole text of the model, or in `tool_call` mode the arguments of its one function call, which nobody
runs.
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

#: Processor time for a check. Only a schema with patterns or references of the worst kind takes so long.
SECONDS = 5.0


class StructuredOutputs(Resources):
    """No tools and no state: the answer is judged as it is, in a child process if that could take long."""

    class Task(ludus.Task):
        schema_str: str
        schema_type: Format = "json"
        response_mode: Literal["text", "tool_call"] = "text"
        tool_name: str | None = None
        tool_payload_key: str | None = None

    class Config(ResourcesConfig):
        """Settings of the verifier."""

        #: Read the texts of an XML document as the numbers and booleans that the schema asks for.
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
            return await self._checked("payload", task.schema_str, arguments, task.tool_payload_key)
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
        said: dict[str, Any] = {} if error_type and error_message is None else {"error_message": error_message}
        return Verdict(float(error_type is None), mask=mask, error_type=error_type, **said)


def _call_problem(task: StructuredOutputs.Task, response: Response) -> str | None:
    """What is wrong with the calls of an answer before anyone looks into their arguments."""
    calls = response.function_calls
    if response.data.get("error"):
        return "api_error"
    if not calls:
        return "missing_tool_call"
    if len(calls) > 1:
        return "multiple_tool_calls"
    if task.tool_name is not None and calls[0].get("name") != task.tool_name:
        return "wrong_tool_name"
    return None
