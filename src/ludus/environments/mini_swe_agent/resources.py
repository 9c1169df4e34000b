"""Repair of repositories: a shell in a sandbox per task, and hidden tests on a clean checkout."""

from __future__ import annotations

from typing import Any

from pydantic import PositiveFloat, model_validator

import ludus
from ludus import Response, Verdict, tool
from ludus.environments.mini_swe_agent.prompt import prompt
from ludus.graders.commands import run_command
from ludus.graders.repository import (
    FOLDER,
    TEST_SPEC,
    CheckoutProvider,
    Grade,
    Preparation,
    RepositoryTests,
    Tree,
    TreeTooLarge,
    grade_change,
    make_patch,
    read_tree,
    with_change,
)
from ludus.graders.repository.rows import TestNames, base_tree, hidden_tests, preparation_of
from ludus.sandbox.resources import LazySandbox, SandboxConfig, SandboxResources

#: The record keeps this much of a patch.
KEPT = 50_000


class RepositoryRepair(SandboxResources):
    """One repository with one bug. The working tree that the model leaves is the answer."""

    class Task(ludus.Task):
        """A row with the field names of SWE-bench. `files` holds the repository, if no image does."""

        problem_statement: str
        instance_id: str = ""
        files: dict[str, str]
        test_patch: str
        FAIL_TO_PASS: TestNames
        PASS_TO_PASS: TestNames = []
        #: compare expected values outside the sandbox (see the README)
        hide_expected: bool = False
        setup_script: str = ""
        setup_hosts: list[str] = []

        @model_validator(mode="before")
        @classmethod
        def _with_prompt(cls, row: Any) -> Any:
            """Ask for a repair where a row has an empty input."""
            if isinstance(row, dict) and isinstance(row.get("problem_statement"), str):
                params = row.get("responses_create_params")
                if isinstance(params, dict) and params.get("input") == []:
                    asked = {**params, "input": prompt(row["problem_statement"], f"~/{FOLDER}")}
                    return {**row, "responses_create_params": asked}
            return row

    class Config(SandboxConfig):
        """Settings of the environment."""

        #: seconds for one command of the model
        step_timeout: PositiveFloat = 60.0
        #: seconds for all tests of a task
        eval_timeout: PositiveFloat = 120.0
        #: hosts that a row's set-up script may reach, if the row asks for them
        allowed_hosts: list[str] = []

    config: Config
    sandbox_spec = TEST_SPEC

    async def open(self, task: Task) -> None:
        """Read the row. The sandbox opens with the first command."""
        self.base: Tree = base_tree(task.files)
        self.tests: RepositoryTests = hidden_tests(
            self.base, task.test_patch, task.FAIL_TO_PASS, task.PASS_TO_PASS, task.hide_expected
        )
        self.preparation: Preparation = preparation_of(task.setup_script, task.setup_hosts, self.config.allowed_hosts)
        self.used = False
        self.sandbox = LazySandbox(CheckoutProvider(self.shared, self.base), self.sandbox.spec)
        await self.preparation.run(self.sandbox)

    @tool
    async def bash(self, command: str) -> dict[str, Any]:
        """Run a shell command in the repository's folder. Each call starts a new shell; files stay.

        Args:
            command: The command, for example `ls -la && cat setup.py`.
        """
        self.used = True
        return await run_command(self.sandbox, command, folder=FOLDER, seconds=self.config.step_timeout)

    async def verify(self, task: Task, response: Response) -> Verdict:
        """Apply the change to a clean checkout, restore the tests, and run them."""
        try:
            changed = await read_tree(self.sandbox, FOLDER) if self.used else self.base
        except TreeTooLarge as error:
            return Verdict(0.0, resolved=False, patch="", problem=f"the working tree is too large: {error}")
        return await self.judge_tree(changed)

    async def judge_tree(self, changed: Tree) -> Verdict:
        """The verdict on a working tree."""
        counted = with_change(self.base, changed)
        patch = make_patch(self.base, counted)
        if not patch:
            return Verdict(0.0, resolved=False, patch="", problem="nothing was changed")
        grade = await grade_change(
            self.shared,
            self.base,
            counted,
            self.tests,
            spec=self.config.sandbox.applied_to(TEST_SPEC),
            seconds=self.config.eval_timeout,
            preparation=self.preparation,
        )
        return verdict(grade, patch)


def verdict(grade: Grade, patch: str) -> Verdict:
    """1 if every test passes, else 0, with the tests as SWE-bench reports them."""
    status = {
        name: {
            "success": [test for test, ok in tests.items() if ok],
            "failure": [t for t, ok in tests.items() if not ok],
        }
        for name, tests in (("FAIL_TO_PASS", grade.fail_to_pass), ("PASS_TO_PASS", grade.pass_to_pass))
    }
    problem = next(iter(grade.why.values()), None)
    return Verdict(
        float(grade.resolved), resolved=grade.resolved, patch=patch[:KEPT], tests_status=status, problem=problem
    )
