"""Running a program's tests in a sandbox, from outside: what goes in, and what the results say."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ludus.sandbox import Sandbox

_OURS = re.compile(r"^from (?:ludus|__future__)[^\n]*\n", re.MULTILINE)


@dataclass(frozen=True)
class HiddenTests:
    """The tests of a row. `names` are the functions under test; the first is the entry point."""

    names: tuple[str, ...]
    test: str = ""
    asserts: tuple[str, ...] = ()
    context: str = ""  #: code that stands before the program, and whose names the tests may use
    changes: bool = False  #: whether the tests see the program's changes to lists, sets and dicts that they passed


@dataclass(frozen=True)
class Outcome:
    """What the tests said: a result and a cause for each test that ran, and whether all have run."""

    results: dict[str, str]
    causes: dict[str, str]
    ended: bool
    problem: str | None = None  #: why the tests did not end

    @property
    def passed(self) -> bool:
        """Whether there are tests, all have run, and each has passed."""
        return self.ended and bool(self.results) and set(self.results.values()) == {"passed"}

    @property
    def first_failure(self) -> dict[str, Any] | None:
        """The first test that did not pass, and why."""
        for name, result in self.results.items():
            if result != "passed":
                return {"test": name, "result": result, "cause": self.causes[name]}
        if self.passed:
            return None
        return {"test": None, "result": "error", "cause": self.problem or "no test has run"}


async def run_tests(sandbox: Sandbox, tests: HiddenTests, code: str, seconds: float) -> Outcome:
    """Run a program's tests. The limit is CPU time of the tests and of the program, each."""
    asked = {
        "sources": [*filter(None, [tests.context]), code],
        "context": tests.context,
        "names": tests.names,
        "test": tests.test,
        "asserts": tests.asserts,
        "changes": tests.changes,
        "cpu": max(1, math.ceil(seconds)),
    }
    result = await sandbox.python(_tester(), stdin=json.dumps(asked).encode(), timeout=3 * seconds + 2)
    results, causes, ended = dict[str, str](), dict[str, str](), False
    for line in result.stdout.splitlines():
        try:
            name, outcome, cause = json.loads(line)
        except ValueError:  # cut off
            break
        ended = name == "end"
        if not ended and results.get(name, "passed") == "passed":  # of a test with parts, the first failure counts
            results[name], causes[name] = outcome, cause
    return Outcome(results, causes, ended and result.ok, None if result.ok else result.why)


@cache
def _tester() -> str:
    candidate = _text("crossing") + _text("candidate")
    return f"{candidate}{_text('foreign')}{_text('tester')}\nmain({candidate!r})\n"


def _text(name: str) -> str:
    """A module's text without its imports of our own modules."""
    text = Path(__file__).with_name("inside").joinpath(f"{name}.py").read_text(encoding="utf-8")
    return _OURS.sub("", text)
