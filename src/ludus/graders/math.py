r"""Whether a mathematical answer equals the expected one, decided by `math-verify` in a child process.

The library finds the answer in a text (a box, "the answer is", the last number), reads LaTeX and plain expressions, and
compares numbers, sets, intervals, matrices, equations and formulas. What a model wrote can keep it busy for ever
(`\boxed{9^{9^{9}}}`), so it runs in the shared process pool with a budget of processor time: whether an answer is
accepted does not depend on how busy the machine is.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from ludus.errors import missing_extra
from ludus.runtime.processes import OutOfTime, in_process


class MathResult(NamedTuple):
    """What the library made of an answer.

    `extracted` is the answer as it was understood, None where none was found; `readable` says whether the expected
    answer could be understood at all, and `finished` whether the budget was enough to tell.
    """

    equal: bool
    extracted: str | None = None
    readable: bool = True
    finished: bool = True


def require_math() -> None:
    """Say at once, and not in the first verdict, that the library is not there."""
    if find_spec("math_verify") is None:
        raise missing_extra("math-verify", "math")


async def check_math(expected: str, text: str, *, seconds: float = 10.0, compat: bool = False) -> MathResult:
    r"""Compare the answer in a text with the expected one.

    await check_math(r"\frac{1}{2}", r"So it is \boxed{0.5}.")   # MathResult(equal=True, extracted='1/2')

    `compat` accepts and rejects exactly what the library does; else what it is known to get wrong is put right (see
    `math_child.py`). An answer on which `seconds` of processor time are spent in vain is not equal, and not finished.
    """
    from ludus.graders.math_child import compare

    try:
        found = await in_process(compare, expected, text, compat, cpu_seconds=seconds, timeout=max(60.0, 6 * seconds))
    except OutOfTime:
        return MathResult(equal=False, finished=False)
    return MathResult(*found)
