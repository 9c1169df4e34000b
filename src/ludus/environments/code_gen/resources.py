"""A programming task, which the model answers with a program in a fenced block.

The program runs in a sandbox, once for each test, and is judged by its output, or by the return value of its function.
The expected outputs stay outside: a program cannot find them, whatever it reads.
"""

from __future__ import annotations

import json
from time import perf_counter
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat

import ludus
from ludus import Failure, Response, Verdict
from ludus.environments.code_gen.outputs import first_difference, same_output
from ludus.environments.code_gen.reading import UnitTests, format_violated
from ludus.graders.code_blocks import last_block
from ludus.graders.outputs import same_value, shortened
from ludus.graders.programs import LANGUAGES, SPEC, PythonFunction, Submission, require, returned
from ludus.sandbox.resources import SandboxConfig, SandboxResources

#: What `test_results` says about a test.
Result = Literal["passed", "wrong", "time_limit", "error"]


class Metadata(BaseModel):
    """The fields of a row that the verifier reads."""

    model_config = ConfigDict(extra="allow")

    unit_tests: UnitTests
    difficulty: str | None = None
    language: str = "python"


class CodeGen(SandboxResources):
    """No tools: the verifier runs the program of the final text."""

    class Task(ludus.Task):
        verifier_metadata: Metadata

    class Config(SandboxConfig):
        """Settings of the verifier."""

        #: CPU time of one test.
        unit_test_timeout_secs: PositiveFloat = 10.0

        #: The reward of an answer with thinking tags in the wrong place, whatever its program does.
        reasoning_format_penalty: float = 0.0

        #: Settings of the reference, which are read and not used: the sandboxes bound what runs at once.
        num_processes: int | None = None
        debug: bool = False

    config: Config
    sandbox_spec = SPEC

    async def open(self, task: Task) -> None:
        metadata = task.verifier_metadata
        if metadata.language not in LANGUAGES:
            known = ", ".join(LANGUAGES)
            raise Failure("bad_row", f"verifier_metadata.language {metadata.language!r:.40} is none of {known}")
        if problem := metadata.unit_tests.problem(metadata.language):
            raise Failure("bad_row", f"verifier_metadata.unit_tests: {problem}")
        if metadata.language != "python":
            await require(self.sandbox, LANGUAGES[metadata.language])

    async def verify(self, task: Task, response: Response) -> Verdict:
        text, metadata = response.output_text, task.verifier_metadata
        block = last_block(text)
        values: dict[str, Any] = {
            "extracted_model_code": block.code if block else None,
            "test_results": None,
            "first_failure": None,
            "unit_tests_time_taken": None,
            "reasoning_format_violation_rate": 0.0,
            "difficulty": metadata.difficulty,
        }
        if block is None:
            return Verdict(0.0, **values)
        began = perf_counter()
        results, failure = await self._judge(self._program(metadata, block.code), metadata.unit_tests)
        values |= {"test_results": results, "first_failure": failure, "unit_tests_time_taken": perf_counter() - began}
        if format_violated(block.around, response):
            values["reasoning_format_violation_rate"] = 1.0
            return Verdict(self.config.reasoning_format_penalty, **values)
        return Verdict(float(failure is None), **values)

    def _program(self, metadata: Metadata, code: str) -> Submission:
        seconds = self.config.unit_test_timeout_secs
        if metadata.unit_tests.fn_name is not None:
            return PythonFunction(code, seconds, metadata.unit_tests.fn_name)
        return LANGUAGES[metadata.language](code, seconds)

    async def _judge(self, program: Submission, tests: UnitTests) -> tuple[list[Result], dict[str, Any] | None]:
        """The result of each test up to the first that fails, and the details of that one."""
        if (problem := await program.prepare(self.sandbox)) is not None:
            return ["error"], {"test": 0, "result": "error", "cause": problem}
        results: list[Result] = []
        for number, (stdin, expected) in enumerate(zip(tests.inputs, tests.outputs, strict=True)):
            result, told = await self._run(program, tests, stdin, expected)
            results.append(result)
            if result != "passed":
                known = {"test": number, "input": shortened(stdin), "expected": shortened(expected)}
                return results, {**known, "result": result, "cause": told}
        return results, None

    async def _run(self, program: Submission, tests: UnitTests, test_input: str, expected: str) -> tuple[Result, str]:
        """The result of one test and, if it failed, why."""
        stdin = test_input if tests.fn_name is None else json.dumps(tests.arguments(test_input))
        ended = await program.run(self.sandbox, stdin)
        if (problem := program.problem(ended)) is not None:
            return ("time_limit" if program.too_slow(ended) else "error"), problem
        if tests.fn_name is None:
            passed = same_output(expected, ended.text)
            return ("passed", "") if passed else ("wrong", first_difference(expected, ended.text))
        value = returned(ended)
        if "value" in value and same_value(json.loads(expected), value["value"]):
            return "passed", ""
        return "wrong", f"it returned {shortened(str(value.get('value', value.get('not_json'))))}"
