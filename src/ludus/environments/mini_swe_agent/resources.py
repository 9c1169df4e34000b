"""Repair of repositories: a shell in a sandbox per task, and hidden tests on a clean checkout."""

from __future__ import annotations

from typing import Any

from pydantic import PositiveFloat, model_validator

import ludus
from ludus import Failure, Response, Verdict, tool
from ludus.environments.mini_swe_agent.prompt import program_prompt, prompt
from ludus.graders.commands import Commands
from ludus.graders.repository import (
    FOLDER,
    TEST_SPEC,
    CheckoutProvider,
    Grade,
    RepositoryTests,
    SetUp,
    Tree,
    TreeTooLarge,
    grade_change,
    images,
    make_patch,
    read_tree,
    with_change,
)
from ludus.graders.repository.rows import TestNames, base_tree, check_tests, hidden_tests, preparation_of
from ludus.sandbox import SandboxLimits, SandboxSpec
from ludus.sandbox.resources import LazySandbox, SandboxConfig, SandboxResources

#: The record keeps this much of a patch.
KEPT = 50_000


class RepositoryRepair(SandboxResources):
    """One repository with one bug. The working tree that the model leaves is the answer."""

    class Task(ludus.Task):
        """A row with the field names of SWE-bench. `files` holds the repository, if no image does."""

        problem_statement: str
        instance_id: str = ""
        files: dict[str, str] | None = None
        base_commit: str = "HEAD"
        test_patch: str
        FAIL_TO_PASS: TestNames
        PASS_TO_PASS: TestNames = []
        #: compare expected values outside the sandbox (see the README)
        hide_expected: bool = False
        #: run the code in another process than its tests (see the README)
        apart: bool = False
        setup_script: str = ""
        setup_hosts: list[str] = []

        @model_validator(mode="before")
        @classmethod
        def _with_prompt(cls, row: Any) -> Any:
            """Write the prompt of a row without an input. Published rows have none."""
            if isinstance(row, dict) and isinstance(row.get("problem_statement"), str):
                params = row.get("responses_create_params", {})
                if isinstance(params, dict) and params.get("input", []) == []:
                    folder = f"~/{FOLDER}" if row.get("files") is not None else images.FOLDER
                    asked = {**params, "input": prompt(row["problem_statement"], folder)}
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
    images_from_rows = True

    async def open(self, task: Task) -> None:
        """Read the row. The sandbox opens with the first command."""
        self.preparation: SetUp = preparation_of(task.setup_script, task.setup_hosts, self.config.allowed_hosts)
        self.commands = Commands()
        self.image = image_of(task, self.config) if task.files is None else None
        self.workdir = FOLDER if self.image is None else images.FOLDER
        names = task.FAIL_TO_PASS, task.PASS_TO_PASS
        if self.image is None:
            self.config.sandbox.check_packages(self.sandbox.spec)
            self.base: Tree = base_tree(task.files or {})
            set_up = bool(task.setup_script)
            self.tests: RepositoryTests = hidden_tests(
                self.base, task.test_patch, *names, task.hide_expected, apart=task.apart, set_up=set_up
            )
            self.sandbox = LazySandbox(CheckoutProvider(self.shared, self.base), self.sandbox.spec)
        else:
            check_tests(task.test_patch, task.FAIL_TO_PASS)
            if not task.test_patch.strip():
                raise Failure("bad_row", "test_patch is empty: git cannot apply it to the image")
            self.tests = RepositoryTests(tuple(names[0]), tuple(names[1]), hide_expected=False)
            self.sandbox = LazySandbox(self.shared, image_spec(self.config, self.image))
            await images.open_image(self.sandbox, self.sandbox.spec.image or self.image, task.base_commit)
        await self.preparation.run(self.sandbox)

    @tool
    async def bash(self, command: str) -> dict[str, Any]:
        """Run a shell command in the repository's folder. Each call starts a new shell; files stay.

        Args:
            command: The command, for example `ls -la && cat setup.py`.
        """
        written = command if self.image is None else images.shell(command)[-1]
        return await self.commands.run(self.sandbox, written, folder=self.workdir, seconds=self.config.step_timeout)

    def program_prompt(self, task: Task, prompt: str) -> str:
        """The problem, without advice for our own tool."""
        return program_prompt(task.problem_statement) if "<problem>" in prompt else prompt

    async def verify(self, task: Task, response: Response) -> Verdict:
        """Apply the change to a clean checkout, restore the tests, and run them."""
        if self.image is not None:
            return await self._judge_image(task, self.image)
        try:
            changed = await read_tree(self.sandbox, FOLDER) if self.sandbox.is_open else self.base
        except TreeTooLarge as error:
            return _nothing(f"the working tree cannot be read: {error}")
        return await self.judge_tree(changed)

    async def _judge_image(self, task: Task, image: str) -> Verdict:
        """The verdict on the change in a sandbox of an image."""
        diff = await images.made_patch(self.sandbox, task.base_commit)
        if diff is None:
            return _nothing("git cannot tell what was changed, or the change is too large")
        patch = images.without_protected(diff)
        if not patch:
            return _nothing("nothing was changed")
        spec, seconds = image_spec(self.config, image), self.config.eval_timeout
        grade = await images.grade_patch(self.shared, spec, patch, task.test_patch, self.tests, seconds)
        return verdict(grade, patch)

    async def judge_tree(self, changed: Tree) -> Verdict:
        """The verdict on a working tree."""
        counted = with_change(self.base, changed)
        patch = make_patch(self.base, counted)
        if not patch:
            return _nothing("nothing was changed")
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


def image_of(task: RepositoryRepair.Task, config: RepositoryRepair.Config) -> str:
    """The image of a row without files. Raises `bad_row` if there is none, or if the provider takes no images."""
    image = images.image_name({**(task.model_extra or {}), "instance_id": task.instance_id})
    if image is None:
        raise Failure("bad_row", "the row has neither files nor image_name, and its instance_id names no image")
    return images.checked_name(image, config.sandbox.provider)


def image_spec(config: RepositoryRepair.Config, image: str) -> SandboxSpec:
    """The sandbox of an image. Real repositories need more room than ours."""
    limits = SandboxLimits(memory_mb=8192, processes=512, disk_mb=8192, files=200_000, open_files=4096)
    return config.sandbox.applied_to(SandboxSpec(image=image, limits=limits))


def _nothing(problem: str) -> Verdict:
    return Verdict(0.0, resolved=False, patch="", problem=problem)


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
