r"""Whether a mathematical answer equals the expected answer, decided by `math-verify` in a child process.

The library finds the answer in a text (a box, "the answer is", the last number), reads LaTeX and plain expressions, and
compares numbers, sets, intervals, matrices, equations and formulas. Some answers (`\boxed{9^{9^{9}}}`) keep the library
busy for ever, so it runs in the shared process pool with a limit of CPU time. CPU time is not wall-clock time: a busy
machine does not change which answers are accepted.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from ludus.errors import missing_extra
from ludus.runtime.processes import OutOfTime, in_process


class MathResult(NamedTuple):
    """The library's verdict on an answer.

    `extracted` is the answer as the library read it, None if it found none. `readable` is False if the library could
    not read the expected answer, and `finished` is False if the CPU time ran out.
    """

    equal: bool
    extracted: str | None = None
    readable: bool = True
    finished: bool = True


def require_math() -> None:
    """Raise a `UserError` now, rather than in the first verdict, if `math-verify` is not installed."""
    if find_spec("math_verify") is None:
        raise missing_extra("math-verify", "math")


async def check_math(expected: str, text: str, *, seconds: float = 10.0, compat: bool = False) -> MathResult:
    r"""Compare the answer in a text with the expected answer.

    await check_math(r"\frac{1}{2}", r"So it is \boxed{0.5}.")   # MathResult(equal=True, extracted='1/2')

    `compat` gives the library's verdict unchanged; otherwise its known errors are corrected (see `math_child.py`). If
    `seconds` of CPU time are not enough, the result is not equal and not finished.
    """
    from ludus.graders.math_child import compare

    try:
        found = await in_process(compare, expected, text, compat, cpu_seconds=seconds, timeout=max(60.0, 6 * seconds))
    except OutOfTime:
        return MathResult(equal=False, finished=False)
    return MathResult(*found)
