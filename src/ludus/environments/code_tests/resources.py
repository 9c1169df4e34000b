"""A function to write, judged by hidden unit tests.

The tests run in a sandbox, in a process that the model's program cannot read, trace or write to. The program runs
beside it in another process and answers calls with plain data. A row whose own solution does not pass this way is
refused before the model is asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any, NamedTuple

from pydantic import PositiveFloat, model_validator
from pydantic_core import PydanticCustomError

import ludus
from ludus import Failure, Response, Verdict
from ludus.environments.code_tests.checking import row_problem
from ludus.environments.code_tests.judging import HiddenTests, Outcome, run_tests
from ludus.environments.code_tests.mapping import is_signature, mapped
from ludus.graders.code_blocks import last_block
from ludus.sandbox import Sandbox, SandboxProvider, SandboxSpec
from ludus.sandbox.resources import SandboxConfig, SandboxResources
from ludus.task import digest

#: Packages that programs and tests may use, if they are installed.
PACKAGES = ("numpy", "scipy", "pandas")

_PRELOAD = (
    "ctypes",
    "datetime",
    "decimal",
    "fractions",
    "resource",
    "subprocess",
    "types",
    "unittest",
    "unittest.mock",
)

#: How many rows are remembered as judgeable.
_MOST_CHECKED = 100_000


@cache
def _packages() -> tuple[str, ...]:
    return tuple(name for name in PACKAGES if find_spec(name) is not None)


@cache
def _spec() -> SandboxSpec:
    return SandboxSpec(
        packages=_packages(), preload=_PRELOAD, env={"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    )


class CheckedRow(NamedTuple):
    """What running a row's own solution showed: why it does not pass, and whether it changes its arguments."""

    problem: str | None = None
    changes: bool = False


class CheckedRows(SandboxProvider):
    """The provider of sandboxes, and which rows were found to be judgeable."""

    def __init__(self, provider: SandboxProvider) -> None:
        self.provider, self.name, self.isolates = provider, provider.name, provider.isolates
        self.claims = provider.claims
        self.rows: dict[str, CheckedRow] = {}

    async def open(self, spec: SandboxSpec) -> Sandbox:
        """A sandbox."""
        return await self.provider.open(spec)

    async def fork(self, sandbox: Sandbox) -> Sandbox:
        """A second sandbox with the same files."""
        return await self.provider.fork(sandbox)


class CodeTests(SandboxResources):
    """No tools: the verifier runs the tests on the program of the final text."""

    class Task(ludus.Task):
        entry_point: str = ""
        test: str = ""
        test_list: list[str] = []
        context: str = ""
        solution: str | None = None

        @model_validator(mode="before")
        @classmethod
        def _map(cls, row: Any) -> Any:
            if not isinstance(row, dict):
                return row
            fields = mapped(row)
            if "responses_create_params" not in fields and is_signature(fields.get("prompt")):
                cause = "prompt is only the head of a function and does not say what the function should do"
                raise PydanticCustomError("prompt", f"{cause}: add a docstring, or responses_create_params")
            return fields

        @model_validator(mode="after")
        def _can_be_judged(self) -> Any:
            asserts = tuple(self.test_list)
            problem = row_problem(self.entry_point, self.test, asserts, self.context, self.solution, _packages())
            if problem is not None:
                raise PydanticCustomError("row", "{problem}", {"problem": problem})
            return self

        def hidden(self, changes: bool) -> HiddenTests:
            """The tests."""
            return HiddenTests((self.entry_point,), self.test, tuple(self.test_list), self.context, changes)

    class Config(SandboxConfig):
        """Settings of the verifier."""

        #: CPU time of all tests of a program.
        tests_timeout_secs: PositiveFloat = 30.0

    config: Config
    shared: CheckedRows
    sandbox_spec = _spec()

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Any) -> AsyncIterator[Any]:
        async with super().share(config) as provider:
            yield CheckedRows(provider)

    async def open(self, task: Task) -> None:
        if (problem := (await self._checked(task)).problem) is not None:
            raise Failure("bad_row", f"the row's own solution does not pass its tests here: {problem}")

    async def verify(self, task: Task, response: Response) -> Verdict:
        block = last_block(response.output_text)
        values: dict[str, Any] = {"extracted_model_code": block.code if block else None, "test_results": None}
        if block is None:
            return Verdict(0.0, **values, first_failure=None)
        changes = (await self._checked(task)).changes
        outcome = await self._run(task.hidden(changes), block.code, self.sandbox)
        if task.solution is None and "cannot_judge" in outcome.results.values():
            raise Failure("cannot_judge", _cause(outcome))
        failure = outcome.first_failure
        return Verdict(float(outcome.passed), **(values | {"test_results": outcome.results}), first_failure=failure)

    async def _checked(self, task: Task) -> CheckedRow:
        """What the row's own solution shows, if it has one. That is remembered."""
        if task.solution is None:
            return CheckedRow()
        known, key = self.shared.rows, digest(task.model_dump(exclude={"responses_create_params"}))
        if key not in known:
            if len(known) >= _MOST_CHECKED:
                known.clear()
            known[key] = await self._check(task, task.solution)
        return known[key]

    async def _check(self, task: Task, solution: str) -> CheckedRow:
        """Try the tests without changes of arguments first: a program could change what it is compared with."""
        for changes in (False, True):
            async with await self.shared.open(self.sandbox.spec) as sandbox:
                outcome = await self._run(task.hidden(changes), solution, sandbox)
            if outcome.passed:
                return CheckedRow(changes=changes)
        return CheckedRow(problem=_cause(outcome))

    async def _run(self, tests: HiddenTests, code: str, sandbox: Sandbox) -> Outcome:
        return await run_tests(sandbox, tests, code, self.config.tests_timeout_secs)


def _cause(outcome: Outcome) -> str:
    failure = outcome.first_failure or {}
    return f"{failure.get('test') or 'tests'}: {failure.get('cause')}"
