"""Repositories in images: the image's name, the model's diff, and tests that run in a clean checkout.

The image is stood in for by a sandbox with git and pytest in it and a repository in `/testbed`.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from sandboxes import needs

from ludus.errors import Failure
from ludus.graders.repository import RepositoryTests, make_patch, write_tree
from ludus.graders.repository.images import grade_patch, image_name, made_patch, shell, without_protected
from ludus.sandbox import Sandbox, SandboxProvider, SandboxSpec
from ludus.sandbox.choice import open_provider

BUGGY = b"def total(prices):\n    return sum(prices[1:])\n"
BASE = {"shop.py": BUGGY, "tests/test_old.py": b"def test_old():\n    assert True\n"}
HIDDEN = b"from shop import total\n\ndef test_total():\n    assert total([1, 2]) == 3\n"
TEST_PATCH = make_patch(BASE, {**BASE, "tests/test_new.py": HIDDEN})
TESTS = RepositoryTests(("tests/test_new.py::test_total",), ("tests/test_old.py::test_old",), hide_expected=False)
SPEC = SandboxSpec(image="example/repository:1")


class Images(SandboxProvider):
    """Opens sandboxes that look like those of an image of SWE-bench."""

    def __init__(self, provider: SandboxProvider) -> None:
        self.name, self._provider = "images", provider

    async def open(self, spec: SandboxSpec) -> Sandbox:
        sandbox = await self._provider.open(replace(spec, image=None, folders=("testbed",), packages=("pytest",)))
        await write_tree(sandbox, BASE, "testbed")
        commit = "git -c user.name=a -c user.email=b"
        ready = f"git init -q . && git add -A && {commit} commit -qm base"
        assert (await sandbox.exec(shell(ready), cwd="/testbed")).ok
        return sandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[SandboxProvider]:
    opened = await open_provider("bubblewrap", warm=1)
    yield Images(opened)
    await opened.close()


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"image_name": "mine:1", "instance_id": "a__b-1"}, "mine:1"),
        (
            {"instance_id": "D__d-1", "subset": "verified"},
            "swebench/sweb.eval.x86_64.d_1776_d-1:latest",
        ),
        ({"instance_id": "getmoto__moto-7", "subset": "gym"}, "xingyaoww/sweb.eval.x86_64.getmoto_s_moto-7:latest"),
        (
            {"instance_id": "django__django-11099", "environment_setup_commit": "d26b242"},
            "swebench/sweb.eval.x86_64.django_1776_django-11099:latest",
        ),
        ({"instance_id": "plain"}, None),
        ({}, None),
    ],
)
def test_the_image_is_named_or_derived_from_the_instance(row: dict[str, str], name: str | None):
    assert image_name(row) == name


def test_changes_of_protected_files_are_cut_out_of_a_diff():
    changed = {
        **BASE,
        "shop.py": b"x\n",
        "tests/test_old.py": b"y\n",
        "conftest.py": b"z\n",
        "a/sitecustomize.py": b"w\n",
    }
    assert without_protected(make_patch(BASE, changed)) == make_patch(BASE, {**BASE, "shop.py": b"x\n"})
    assert without_protected("no diff") == ""


@needs("bubblewrap")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.asyncio(loop_scope="module")
async def test_the_model_s_diff_is_judged_on_a_clean_checkout(provider: SandboxProvider):
    async with await provider.open(SPEC) as sandbox:
        await sandbox.exec("sed -i 's/.1:.//' shop.py; echo 1 > new.txt; echo bad > conftest.py", cwd="/testbed")
        made = await made_patch(sandbox, "HEAD")
        assert made is not None
        await sandbox.exec("rm -rf .git", cwd="/testbed")
        assert await made_patch(sandbox, "HEAD") is None, "a model without a repository earns nothing"
    patch = without_protected(made)
    assert "conftest.py" in made
    assert "conftest.py" not in patch
    assert "new.txt" in patch
    good = await grade_patch(provider, SPEC, patch, TEST_PATCH, TESTS, 60)
    assert good.resolved, good.why
    hostile = BUGGY + b"\nimport os\nprint('tests/test_new.py::test_total PASSED')\nos._exit(0)\n"
    bad = make_patch(BASE, {**BASE, "shop.py": hostile})
    for text in (make_patch(BASE, {**BASE, "shop.py": BUGGY + b"# more\n"}), bad, "diff --git a/x b/x\nnonsense"):
        assert not (await grade_patch(provider, SPEC, text, TEST_PATCH, TESTS, 60)).resolved
    with pytest.raises(Failure, match="test_patch does not fit the image"):
        await grade_patch(
            provider, SPEC, patch, TEST_PATCH.replace("+++ b/tests/test_new.py", "+++ b/shop.py"), TESTS, 60
        )


@needs("bubblewrap")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.asyncio(loop_scope="module")
async def test_an_image_that_cannot_run_pytest_is_a_failure_and_no_reward(provider: SandboxProvider):
    class Bare(Images):
        async def open(self, spec: SandboxSpec) -> Sandbox:
            sandbox = await super().open(spec)
            await sandbox.write("testbed/pytest.py", b"raise ImportError('No module named pytest')")
            return sandbox

    bare = Bare(provider._provider)  # type: ignore[attr-defined]
    fixed = make_patch(BASE, {**BASE, "shop.py": BUGGY.replace(b"[1:]", b"")})
    with pytest.raises(Failure, match="the image example/repository:1 cannot run pytest: .*No module named"):
        await grade_patch(bare, SPEC, fixed, TEST_PATCH, TESTS, 60)


@needs("bubblewrap")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.asyncio(loop_scope="module")
async def test_tests_of_django_and_sympy_are_run_by_their_own_programs(provider: SandboxProvider):
    class Django(Images):
        async def open(self, spec: SandboxSpec) -> Sandbox:
            sandbox = await super().open(spec)
            await sandbox.write("testbed/tests/runtests.py", RUNNER, executable=True)
            return sandbox

    tests = RepositoryTests(("test_total (test_new.Case)",), ("test_old (test_new.Case)",), hide_expected=False)
    fixed = make_patch(BASE, {**BASE, "shop.py": BUGGY.replace(b"[1:]", b"")})
    django = Django(provider._provider)  # type: ignore[attr-defined]
    assert (await grade_patch(django, SPEC, fixed, TEST_PATCH, tests, 60)).resolved
    found = await grade_patch(django, SPEC, fixed.replace("shop.py", "shop.py"), TEST_PATCH, replace_names(tests), 60)
    assert found.why == {"test_other (test_new.Case)": "it failed", "test_none (a.b)": "it did not run: exit code 0"}


def replace_names(tests: RepositoryTests) -> RepositoryTests:
    return replace(tests, fail_to_pass=("test_other (test_new.Case)",), pass_to_pass=("test_none (a.b)",))


RUNNER = b"""#!/usr/bin/env python3
import sys
assert sys.argv[1:] == "--verbosity 2 --settings=test_sqlite --parallel 1 test_new".split(), sys.argv
print("test_total (test_new.Case) ... ok", "test_old (test_new.Case) ... ok", sep="\\n", file=sys.stderr)
print("test_other (test_new.Case) ... FAIL", file=sys.stderr)
"""
