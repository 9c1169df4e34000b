r"""Whether a mathematical answer equals the expected answer, decided by `math-verify` in a child process.

The library finds the answer in a text (a box, "the answer is", the last number), reads LaTeX and plain expressions, and
compares numbers, sets, intervals, matrices, equations and formulas. Answers too large to compute (`9^{9^{9}}`) are
refused by their structure, and values are compared before formulas. An answer can still hang the library, so it runs
in the shared process pool with a limit of CPU time. CPU time is not wall-clock time: a busy machine does not
change which answers are accepted. An answer that runs out of CPU time gets no verdict, neither right nor wrong.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from ludus.errors import Failure, missing_extra
from ludus.runtime.processes import OutOfTime, in_process


class MathResult(NamedTuple):
    """The verdict on an answer.

    `equal` is None if there is none; then `failure` says why. `extracted` is the answer as the library read it, None if
    it found none. `readable` is False if the library could not read the expected answer. `refused` says why an answer
    was called wrong by its structure, without computing it.
    """

    equal: bool | None
    extracted: str | None = None
    readable: bool = True
    refused: str | None = None
    failure: Failure | None = None


def require_math() -> None:
    """Raise a `UserError` now, rather than in the first verdict, if `math-verify` is not installed."""
    if find_spec("math_verify") is None:
        raise missing_extra("math-verify", "math")


async def check_math(expected: str, text: str, *, seconds: float = 10.0, compat: bool = False) -> MathResult:
    r"""Compare the answer in a text with the expected answer.

    await check_math(r"\frac{1}{2}", r"So it is \boxed{0.5}.")   # MathResult(equal=True, extracted='1/2')

    `compat` gives the library's verdict unchanged; otherwise its known errors are corrected (see `math_child.py`). If
    `seconds` of CPU time are not enough, the result has a failure of kind `timeout` and no verdict.
    """
    from ludus.graders.math_child import compare

    try:
        comparison = await in_process(compare, expected, text, compat, cpu_seconds=seconds, timeout=_wall(seconds))
    except OutOfTime:
        cause = f"comparing the answer with the expected answer took more than {seconds:g} s of CPU time"
        return MathResult(None, failure=Failure("timeout", cause))
    if comparison.equal is None:
        return MathResult(None, failure=Failure("undecided", comparison.reason or ""))
    return MathResult(comparison.equal, comparison.extracted, comparison.readable, comparison.reason)


async def is_readable(expected: str, *, seconds: float = 10.0) -> bool:
    """Whether an expected answer can be compared with anything: `\\text{}` and `$$` cannot."""
    from ludus.graders.math_child import readable

    try:
        return await in_process(readable, expected, cpu_seconds=seconds, timeout=_wall(seconds))
    except OutOfTime:
        return False


def _wall(seconds: float) -> float:
    """The wall-clock limit of a call with a limit of CPU time, generous for a busy machine."""
    return max(60.0, 6 * seconds)
