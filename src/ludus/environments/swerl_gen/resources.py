"""Repairs in one answer: search/replace blocks are applied to a clean checkout, and hidden tests decide."""

from __future__ import annotations

import ast
import json
import random
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, PositiveFloat

import ludus
from ludus import Failure, Response, Verdict
from ludus.environments.swerl_gen.edits import BadAnswer, applied, edits_of, script_of
from ludus.graders.repository import (
    FOLDER,
    TEST_SPEC,
    CheckoutProvider,
    PatchError,
    RepositoryTests,
    SetUp,
    Tree,
    apply_patch,
    grade_change,
    make_patch,
    with_change,
)
from ludus.graders.repository.rows import TestNames, base_tree, hidden_tests, preparation_of
from ludus.response import is_message, texts_of
from ludus.sandbox.resources import SandboxConfig, SandboxResources

#: The exit codes of a script that reproduces a bug: where the bug is, and where it is not.
BUG_IS_THERE, BUG_IS_GONE = 2, 0

#: How often a script runs on the code with the bug, and how often on the code without it.
RUNS = 3

#: The record keeps this much of a patch.
KEPT = 50_000


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


class Instance(BaseModel):
    """The repository task of a row, with the field names of SWE-Gym. `files` holds the repository, if no image does."""

    model_config = ConfigDict(extra="allow")

    instance_id: str = ""
    files: dict[str, str] | None = None
    patch: str = ""
    test_patch: str = ""
    FAIL_TO_PASS: TestNames = []
    PASS_TO_PASS: TestNames = []
    hide_expected: bool = False
    apart: bool = False
    setup_hosts: list[str] = []


class Metadata(BaseModel):
    """The files that the model was shown, and the path of the image."""

    model_config = ConfigDict(extra="allow")

    relevant_file_contents: Annotated[dict[str, str], BeforeValidator(_parsed)] = {}
    remove_repo_name: bool = False
    image: str = ""


class SearchReplace(SandboxResources):
    """One answer, without tools."""

    class Task(ludus.Task):
        """A row of the reference's form."""

        instance: Instance
        metadata: Metadata = Metadata()
        mode: Literal["eval", "repro-gen"] = "eval"

    class Config(SandboxConfig):
        """Settings of the environment."""

        #: seconds for all tests, or for one run of a script
        sandbox_timeout: PositiveFloat = 120.0
        #: accept an answer without the tags around it
        relaxed_formatting: bool = False
        #: hosts that a row's set-up script may reach, if the row asks for them
        allowed_hosts: list[str] = []

    config: Config
    sandbox_spec = TEST_SPEC

    async def open(self, task: Task) -> None:
        """Read the row: one that cannot be judged fails before the model is asked."""
        instance = task.instance
        self.base: Tree = self._base(task)
        self.preparation: SetUp = self._preparation(task)
        if task.mode == "repro-gen":
            self.fixed: Tree = _fixed(self.base, instance.patch)
            return
        names = instance.FAIL_TO_PASS, instance.PASS_TO_PASS
        set_up = bool(self.preparation.script)
        self.tests: RepositoryTests = hidden_tests(
            self.base, instance.test_patch, *names, instance.hide_expected, apart=instance.apart, set_up=set_up
        )

    async def verify(self, task: Task, response: Response) -> Verdict:
        """Judge a repair, or a script that reproduces the bug."""
        text = "\n".join(texts_of(item) for item in response.output if is_message(item))
        try:
            if task.mode == "repro-gen":
                return await self._reproduced(script_of(text))
            return await self._repaired(task, text)
        except BadAnswer as problem:
            return Verdict(0.0, resolved=False, patch="", problem=str(problem))

    def _base(self, task: Task) -> Tree:
        if task.instance.files is None:
            image = task.metadata.image or "none"
            cause = f"the row has no files of its repository, and the image {image:.120} cannot be used"
            raise Failure("bad_row", f"{cause}: add instance.files (path to text)")
        return base_tree(task.instance.files)

    async def _repaired(self, task: Task, text: str) -> Verdict:
        """1 if all tests pass, 0.2 if some that failed before pass and nothing broke, else 0."""
        base, shown = self.base, task.metadata.relevant_file_contents
        files = applied(shown, edits_of(text, relaxed=self.config.relaxed_formatting))
        edited = {path: data.encode(errors="replace") for path, data in files.items() if data != shown[path]}
        if task.metadata.remove_repo_name:
            edited = {path.partition("/")[2]: data for path, data in edited.items()}
        counted = with_change(base, {**base, **edited})
        patch = make_patch(base, counted)
        if not patch:
            raise BadAnswer("nothing was changed")
        grade = await grade_change(
            self.shared,
            base,
            counted,
            self.tests,
            spec=self.config.sandbox.applied_to(TEST_SPEC),
            seconds=self.config.sandbox_timeout,
            preparation=self.preparation,
        )
        reward = 1.0 if grade.resolved else 0.2 if grade.partly else 0.0
        problem = next(iter(grade.why.values()), None)
        passed = [name for name, ok in {**grade.fail_to_pass, **grade.pass_to_pass}.items() if ok]
        return Verdict(reward, resolved=grade.resolved, patch=patch[:KEPT], tests_passed=passed, problem=problem)

    async def _reproduced(self, script: str) -> Verdict:
        """1 if the script tells the repository before the fix from the one after it, in any layout of the code."""
        for tree, wanted in runs_in_secret_order(self.base, self.fixed, layouts=not self.config.compat):
            code = await self._exit_code(tree, script)
            if code != wanted:
                where = "with the bug" if wanted == BUG_IS_THERE else "without the bug"
                return Verdict(0.0, resolved=False, patch="", problem=f"exit code {code} {where}, not {wanted}")
        return Verdict(1.0, resolved=True, patch="", problem=None)

    async def _exit_code(self, tree: Tree, script: str) -> int | None:
        clean = CheckoutProvider(self.shared, tree)
        async with await clean.open(self.config.sandbox.applied_to(TEST_SPEC)) as sandbox:
            await self.preparation.run(sandbox)
            await sandbox.write("reproduce.py", script.encode(errors="replace"))
            command = ["python3", "../reproduce.py"]
            env = {"PYTHONPATH": ".:src"}
            ended = await sandbox.exec(command, timeout=self.config.sandbox_timeout, cwd=FOLDER, env=env)
        return ended.exit_code

    def _preparation(self, task: Task) -> SetUp:
        script = str((task.instance.model_extra or {}).get("setup_script") or "")
        return preparation_of(script, task.instance.setup_hosts, self.config.allowed_hosts)


def _fixed(base: Tree, patch: str) -> Tree:
    """The repository after the row's fix."""
    try:
        fixed = apply_patch(base, patch)
    except PatchError as error:
        raise Failure("bad_row", f"patch does not fit the row's files: {error}") from error
    if fixed == base:
        raise Failure("bad_row", f"patch changes nothing, so no script could tell the bug from its fix: {patch!r:.80}")
    return fixed


def runs_in_secret_order(base: Tree, fixed: Tree, *, layouts: bool) -> list[tuple[Tree, int]]:
    """The trees on which a script runs, with the exit codes that it must have.

    A script cannot infer the tree from the clock or from the number of its runs: it guesses 1 of 20 orders.
    """
    runs = [(tree, code) for tree, code in ((base, BUG_IS_THERE), (fixed, BUG_IS_GONE)) for _ in range(RUNS)]
    if layouts:
        runs[0], runs[-1] = (_rewritten(base), BUG_IS_THERE), (_rewritten(fixed), BUG_IS_GONE)
    random.SystemRandom().shuffle(runs)
    return runs


def _rewritten(tree: Tree) -> Tree:
    """The same programs in another layout, against scripts that only compare texts."""
    result = dict(tree)
    for path, data in tree.items():
        if path.endswith(".py"):
            try:
                result[path] = f"# {len(data)}\n{ast.unparse(ast.parse(data))}\n".encode()
            except (SyntaxError, ValueError, RecursionError):
                continue
    return result
