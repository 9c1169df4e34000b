"""The verdict on a change of a repository, made from reports of its tests.

The change is applied to a clean checkout in a fresh sandbox, which the model has never touched. Files that decide how
tests run come from the checkout (`is_protected`), and the hidden tests are written last. Without a report, a test
has not passed: a program that ends early, hangs, skips or prints anything it likes earns nothing.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from ludus.graders.repository.checkout import FOLDER, CheckoutProvider, SetUp
from ludus.graders.repository.hidden import HiddenTests
from ludus.graders.repository.reported import value_of
from ludus.graders.repository.settings import pytest_settings
from ludus.graders.repository.trees import Tree, is_protected, with_change, write_tree
from ludus.runtime.threads import in_thread
from ludus.sandbox.protocol import ExecResult, Program, SandboxError, SandboxProvider, SandboxSpec

#: The sandbox that tests run in. pytest is imported before any file of the repository.
TEST_SPEC = SandboxSpec(packages=("pytest",), preload=("pytest", "unittest.mock", "doctest"))


#: Bytes of all reports of one run, and how many are read on the event loop.
_REPORTS, _LARGE = 8 << 20, 1 << 16

#: Words of code that looks into frames, traces or memory.
_FRAME_WORDS = (
    b"_getframe",
    b"currentframe",
    b"inspect.stack",
    b"settrace",
    b"setprofile",
    b"gc.get_",
    b"ctypes",
    b"tb_frame",
)


@dataclass(frozen=True)
class RepositoryTests:
    """The hidden tests of a task: their files, and which of them must pass."""

    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: whether expected values are taken out of the tests and compared outside, see `hidden.py`
    hide_expected: bool = True
    #: whether the code under test runs in a process of its own, see `apart.py`
    apart: bool = False


@dataclass(frozen=True)
class Grade:
    """Which tests passed after a change, and why the others did not."""

    fail_to_pass: dict[str, bool]
    pass_to_pass: dict[str, bool]
    why: dict[str, str] = field(default_factory=dict)  #: by test, for those that did not pass

    @property
    def resolved(self) -> bool:
        """Whether every test passed, and there was one that failed before."""
        return bool(self.fail_to_pass) and all(self.fail_to_pass.values()) and all(self.pass_to_pass.values())

    @property
    def partly(self) -> bool:
        """Whether some tests that failed before pass now, and nothing broke."""
        return any(self.fail_to_pass.values()) and all(self.pass_to_pass.values())

    @classmethod
    def of(cls, tests: RepositoryTests, why: Mapping[str, str]) -> Grade:
        """The grade where the tests in `why` did not pass, and all others did."""
        listed = (tests.fail_to_pass, tests.pass_to_pass)
        first, second = ({name: name not in why for name in names} for names in listed)
        return cls(first, second, dict(why))


async def grade_change(
    provider: SandboxProvider,
    base: Mapping[str, bytes],
    changed: Mapping[str, bytes],
    tests: RepositoryTests,
    *,
    spec: SandboxSpec = TEST_SPEC,
    seconds: float = 60.0,
    preparation: SetUp | None = None,
) -> Grade:
    """Run the tests on a clean checkout with a change. Raises `SandboxError` if the sandbox fails."""
    names = (_random_name(), _random_name(), _random_name())
    hidden = HiddenTests(_sources(tests) if tests.hide_expected else {}, names)
    rewritten = {path: text.encode() for path, text in hidden.sources.items()}
    checkout: Tree = {**with_change(base, changed), **tests.files, **rewritten}
    listed = [*tests.fail_to_pass, *tests.pass_to_pass]
    secret = secrets.token_hex(16)
    paths = list(dict.fromkeys(name.partition("::")[0] for name in listed))
    request = {
        "secret": secret,
        "module": names[0],
        "folder": FOLDER,
        "tests": paths,
        "settings": pytest_settings({**base, **tests.files}, paths),
        "changed": _suspects(base, checkout, tests),
        "own": [path for path in checkout if path in tests.files or is_protected(path)],
    }
    bench = _Bench(provider, base, spec, seconds, preparation, tests.apart)
    ended = await bench.run(checkout, request)
    judge = in_thread if len(ended.stdout) > _LARGE else _on_the_loop
    reports = await judge(_reports, ended, secret)
    if not _started(reports) and not (ended.out_of_memory and await bench.starts(request)):
        last = " ".join(ended.stderr.decode(errors="replace").split())[-200:]
        raise SandboxError(f"the tests could not be started: {ended.why}: {last}")
    if tests.apart and not any("finished" in report for report in reports):
        return Grade.of(tests, dict.fromkeys(listed, f"the tests did not run to their end: {ended.why}"))
    return Grade.of(tests, await judge(_not_passed, listed, reports, hidden, ended))


async def _on_the_loop(call: Callable[..., Any], *arguments: Any) -> Any:
    return call(*arguments)


@dataclass(frozen=True)
class _Bench:
    """Where tests run: a fresh sandbox for each run."""

    provider: SandboxProvider
    base: Mapping[str, bytes]
    spec: SandboxSpec
    seconds: float
    preparation: SetUp | None
    apart: bool

    async def run(self, checkout: Mapping[str, bytes], request: Mapping[str, Any]) -> ExecResult:
        """Run the tests that a request names on a checkout."""
        prepared = self.preparation is not None and bool(self.preparation.script)
        clean = CheckoutProvider(self.provider, self.base if prepared else checkout)
        async with await clean.open(self.spec) as sandbox:
            if self.preparation is not None and prepared:
                await self.preparation.run(sandbox)
                gone = (path for path in self.base if path not in checkout)
                await sandbox.exec(["rm", "-rf", "--", *gone], cwd=FOLDER)
                await write_tree(sandbox, checkout, FOLDER)
            stdin = json.dumps(request).encode()
            argv = (_apart(),) if self.apart else ()
            return await sandbox.run(Program(argv, _program(), stdin, self.seconds, output_bytes=_REPORTS))

    async def starts(self, request: Mapping[str, Any]) -> bool:
        """Whether the test program starts on the clean checkout, where no code of a model runs."""
        nothing = {**request, "tests": [_random_name()]}
        return _started(_reports(await self.run(self.base, nothing), request["secret"]))


def _suspects(base: Mapping[str, bytes], checkout: Tree, tests: RepositoryTests) -> list[str]:
    """The files that the model changed, except those that looked into frames before: that is their task."""
    changed = (path for path, data in checkout.items() if data != base.get(path) and path not in tests.files)
    return [path for path in changed if not any(word in base.get(path, b"") for word in _FRAME_WORDS)]


def _started(reports: Iterable[Mapping[str, Any]]) -> bool:
    return any("started" in report for report in reports)


def _random_name() -> str:
    return f"_{secrets.token_hex(8)}"


def _sources(tests: RepositoryTests) -> dict[str, str]:
    return {path: data.decode() for path, data in tests.files.items() if path.endswith(".py")}


def _not_passed(
    listed: Iterable[str], reports: list[dict[str, Any]], hidden: HiddenTests, ended: ExecResult
) -> dict[str, str]:
    """The tests that did not pass, with the reason."""
    tampered = next((report["tampered"] for report in reports if "tampered" in report), None)
    if tampered is not None:
        name = tampered if isinstance(tampered, str) else "?"
        return dict.fromkeys(listed, f"the test tools were changed: {name:.100}")
    outcomes: dict[str, list[bool]] = defaultdict(list)
    values: dict[str, dict[int, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for report in reports:
        test = report.get("test")
        if not isinstance(test, str):
            continue
        if isinstance(report.get("check"), int):
            values[test][report["check"]].append(value_of(report.get("value")))
        elif "passed" in report:
            outcomes[test].append(report["passed"] is True)
    why = {}
    for test in listed:
        if test not in outcomes:
            why[test] = f"it did not run to its end: {ended.why}"
        elif outcomes[test] != [True]:
            why[test] = "it failed"
        elif (missed := hidden.missed(test, values[test])) is not None:
            why[test] = missed
    return why


def _reports(ended: ExecResult, secret: str) -> list[dict[str, Any]]:
    """The reports that carry the secret. Everything else in the channel is ignored."""
    reports = []
    for line in ended.stdout.split(b"\n"):
        if line.startswith(f"{secret} ".encode()):
            try:
                report = json.loads(line[len(secret) + 1 :])
            except (ValueError, RecursionError):
                continue
            if isinstance(report, dict):
                reports.append(report)
    return reports


@cache
def _program() -> str:
    return Path(__file__).with_name("inside.py").read_text(encoding="utf-8")


@cache
def _apart() -> str:
    """The text of `crossing.py` and `apart.py` as one program."""
    texts = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("crossing.py", "apart.py")]
    lines = (line for text in texts for line in text.splitlines(keepends=True))
    own = ("from __future__ ", "from ludus.")
    return "from __future__ import annotations\n" + "".join(line for line in lines if not line.startswith(own))
