"""Repositories inside images, as SWE-bench and SWE-Gym publish them: a git checkout in `/testbed`.

The model's change is a diff that git makes in the model's sandbox. It is applied to a clean checkout in a fresh sandbox
of the same image, without its changes of protected files, and the row's test patch goes on top.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.errors import Failure
from ludus.graders.repository.grading import Grade, RepositoryTests
from ludus.graders.repository.patches import PatchError, paths_of
from ludus.graders.repository.trees import is_protected
from ludus.sandbox.protocol import ExecResult, Sandbox, SandboxError, SandboxProvider, SandboxSpec

FOLDER = "/testbed"

#: The largest diff that is judged.
MOST_BYTES = 4 << 20

_ACTIVATE = "if [ -f /opt/miniconda3/bin/activate ]; then . /opt/miniconda3/bin/activate testbed; fi; "
_FILE = re.compile(r"^diff --git a/(.+?) b/(.+)$", re.MULTILINE)
_DJANGO = re.compile(r"\w+ \([\w.]+\)")
_LOG = re.compile(r"(.+?)(?: \.\.\.)? (ok|OK|FAIL|ERROR|F|E|s|skipped\b.*)")
_COMMIT = re.compile(r"[0-9a-f]{7,64}|HEAD")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/-]{0,254}")

#: A plugin for pytest, old versions too. It removes its own file before the first test is imported.
_PLUGIN = """
import os
_secret, _out = "{secret}", os.dup(1)
try:
    os.unlink(__file__)
except OSError:
    pass
_phases = {{}}
def pytest_runtest_logreport(report):
    _phases.setdefault(report.nodeid, []).append("xfail" if hasattr(report, "wasxfail") else report.outcome)
    if report.when == "teardown":
        passed = _phases.pop(report.nodeid) == ["passed"] * 3
        os.write(_out, ("\\n%s %s %s\\n" % (_secret, "passed" if passed else "failed", report.nodeid)).encode())
"""


def image_name(row: Mapping[str, Any]) -> str | None:
    """The image that a row names, or that SWE-bench or SWE-Gym built for its instance."""
    if named := row.get("image_name") or row.get("image"):
        return str(named)
    instance, subset = str(row.get("instance_id") or ""), str(row.get("subset") or "")
    if "__" not in instance:
        return None
    if subset in ("verified", "lite", "full") or "environment_setup_commit" in row:  # SWE-Gym has no such field
        return f"swebench/sweb.eval.x86_64.{instance.replace('__', '_1776_')}:latest".lower()
    return f"xingyaoww/sweb.eval.x86_64.{instance.replace('__', '_s_')}:latest".lower()


def checked_name(image: str, provider: str) -> str:
    """The image that a row names. Raises `bad_row` if the provider takes no images, and for a path, which could be any
    folder of this machine."""
    if provider in ("bubblewrap", "process"):
        hint = "leave resources.sandbox.provider out, or set it to oci"
        raise Failure("bad_row", f"the task is in the image {image:.120}, and {provider} takes none: {hint}")
    if not _NAME.fullmatch(image) or ".." in image or "//" in image or Path(image).exists():
        hint = "name it with --set resources.sandbox.image=PATH"
        raise Failure("bad_row", f"a row may name an image, but no file or folder of yours: {image!r:.120}; {hint}")
    return image


async def open_image(sandbox: Sandbox, image: str, base_commit: str = "HEAD") -> None:
    """Open a sandbox of an image before the model is asked, and look for the repository and its commit in it."""
    if not _COMMIT.fullmatch(base_commit):
        raise Failure("bad_row", f"base_commit is not a commit: {base_commit!r:.80}")
    try:
        ended = await sandbox.exec(["test", "-e", f"{FOLDER}/.git"])
    except SandboxError as error:
        hint = f"get it with: docker pull {image}"
        raise SandboxError(f"the task's image {image} cannot be used: {error.cause}; {hint}") from error
    if not ended.ok:
        raise Failure("bad_row", f"the image {image} has no git repository in {FOLDER}")
    ended = await sandbox.exec(shell(f"git rev-parse --verify --quiet {base_commit}^{{commit}}"), cwd=FOLDER)
    if not ended.ok:
        words = _last(ended) or ended.why
        raise Failure("bad_row", f"the repository of the image {image} has no commit {base_commit}: {words}")


def shell(command: str) -> list[str]:
    """A command for the shell of an image, with the image's environment of Python."""
    return ["bash", "-c", f"{_ACTIVATE}{command}"]


async def made_patch(sandbox: Sandbox, base_commit: str) -> str | None:
    """The diff from the base commit to the working tree, with new files; None if git fails, for example because a
    program removed the repository."""
    script = (
        f"git add -A && git -c core.fileMode=false diff --cached --no-color --no-ext-diff {base_commit} > /tmp/.diff"
    )
    ended = await sandbox.exec(shell(script), cwd=FOLDER, timeout=120)
    diff = await sandbox.read_if_there("/tmp/.diff", MOST_BYTES) if ended.ok else None
    return None if diff is None else diff.decode(errors="surrogateescape")


def without_protected(patch: str) -> str:
    """A diff without its changes of tests, settings of test tools and Python's start-up files."""
    starts = [match.start() for match in _FILE.finditer(patch)]
    sections = []
    for start, end in zip(starts, [*starts[1:], len(patch)], strict=False):
        section = patch[start:end]
        match = _FILE.match(section)
        if match is not None and not is_protected(match[1].strip('"')) and not is_protected(match[2].strip('"')):
            sections.append(section)
    return "".join(sections)


async def grade_patch(
    provider: SandboxProvider, spec: SandboxSpec, patch: str, test_patch: str, tests: RepositoryTests, seconds: float
) -> Grade:
    """Apply a diff to a clean checkout of the image, restore the tests, and run them."""
    listed = [*tests.fail_to_pass, *tests.pass_to_pass]
    try:
        own = _own_runner(listed, test_patch)
    except PatchError as error:
        raise Failure("bad_row", f"test_patch cannot be read: {error}") from error
    async with await provider.open(spec) as sandbox:
        if (problem := await _applied(sandbox, patch)) is not None:
            return Grade.of(tests, dict.fromkeys(listed, f"the patch does not apply: {problem}"))
        if (problem := await _applied(sandbox, test_patch)) is not None:
            raise Failure("bad_row", f"test_patch does not fit the image: {problem}")
        if own is not None:
            ended = await sandbox.exec(shell(f"{own} 2>&1"), cwd=FOLDER, timeout=seconds)
            passed, ran = _logged(ended)
        else:
            name, secret = f"p{secrets.token_hex(8)}", secrets.token_hex(16)
            await sandbox.write(f"/tmp/{name}/{name}.py", _PLUGIN.format(secret=secret).encode())
            files = shlex.join(dict.fromkeys(test.partition("::")[0] for test in listed))
            script = f"PYTHONPATH=/tmp/{name}:$PYTHONPATH python -m pytest -q -p no:cacheprovider -p {name} {files}"
            ended = await sandbox.exec(shell(script), cwd=FOLDER, timeout=seconds)
            passed, ran = _reported(ended, secret)
    if own is None and not ran:
        await _require_pytest(provider, spec)
    why = {
        test: "it failed" if test in ran else f"it did not run: {ended.why}" for test in listed if test not in passed
    }
    return Grade.of(tests, why)


async def _require_pytest(provider: SandboxProvider, spec: SandboxSpec) -> None:
    """Raise a failure if even the clean image cannot run pytest: then the change is not to blame."""
    async with await provider.open(spec) as clean:
        ended = await clean.exec(shell("python -m pytest --version"), cwd=FOLDER, timeout=120)
    if not ended.ok:
        raise Failure("bad_row", f"the image {spec.image} cannot run pytest: {_last(ended) or ended.why}")


def _own_runner(listed: list[str], test_patch: str) -> str | None:
    """The command of a repository that does not use pytest (Django, SymPy), known by the form of its tests' names."""
    if any("::" in test for test in listed):
        return None
    files = sorted(path for path in paths_of(test_patch) if path.endswith(".py"))
    if any(_DJANGO.fullmatch(test) for test in listed):
        labels = [path.removeprefix("tests/").removesuffix(".py").replace("/", ".") for path in files]
        return f"./tests/runtests.py --verbosity 2 --settings=test_sqlite --parallel 1 {shlex.join(labels)}"
    return f"PYTHONWARNINGS=ignore bin/test -C --verbose {shlex.join(files)}"


def _logged(ended: ExecResult) -> tuple[set[str], set[str]]:
    """The tests that passed, and all that ran, in the log of Django's or SymPy's runner."""
    passed, failed = set[str](), set[str]()
    for line in ended.stdout.decode(errors="replace").split("\n"):
        if match := _LOG.fullmatch(line.strip()):
            (passed if match[2] in ("ok", "OK") else failed).add(match[1])
    return passed - failed, passed | failed


def _reported(ended: ExecResult, secret: str) -> tuple[set[str], set[str]]:
    """The tests that passed, and all that ran. SWE-bench cuts names at the first space, so both forms count."""
    passed, failed = set[str](), set[str]()
    for line in ended.stdout.decode(errors="replace").split("\n"):
        mark, _, rest = line.partition(" ")
        outcome, _, test = rest.partition(" ")
        if mark == secret and test:
            (passed if outcome == "passed" else failed).update({test, test.partition(" ")[0]})
    return passed - failed, passed | failed


async def _applied(sandbox: Sandbox, patch: str) -> str | None:
    """Apply a diff. Returns why it cannot be applied, or None."""
    await sandbox.write("/tmp/.patch", patch.encode(errors="surrogateescape"))
    ended = await sandbox.exec(shell("git apply --whitespace=nowarn /tmp/.patch"), cwd=FOLDER, timeout=120)
    return None if ended.ok else _last(ended) or ended.why


def _last(ended: ExecResult) -> str:
    return " ".join(ended.stderr.decode(errors="replace").split())[-200:]
