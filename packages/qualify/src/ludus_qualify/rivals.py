"""Qualification of environments that judge groups: each answer is judged in a group with the same rival answers.

`rivals(task)` in the folder's `qualify.py` returns the rivals. Without it each answer is judged alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ludus.environment import Environment
from ludus.outcome import Verdict
from ludus.resources import Resources
from ludus.response import Response, message
from ludus.runtime.threads import awaited
from ludus_qualify.checks import Check
from ludus_qualify.oracle import Oracle


def among_rivals(environment: Environment, oracle: Oracle) -> Environment:
    """The environment, with a `verify` that judges one answer in a group with its rivals."""
    base = environment.resources
    if not base.by_group:
        return environment

    async def verify(self: Resources, task: Any, response: Response) -> Verdict:
        rivals = [Response.of(message(text)) for text in oracle.rivals(task)]
        verdicts = await awaited(base.verify_group, self, task, [response, *rivals])
        return Verdict.of(verdicts[0], base.verify_group)

    members = {"verify": verify, "verify_group": Resources.verify_group, "__module__": base.__module__}
    return replace(environment, resources=type(base.__name__, (base,), members))


def rivals_check(environment: Environment, oracle: Oracle) -> list[Check]:
    """For environments that judge groups: whether answers were judged alone or among rivals."""
    if not environment.resources.by_group:
        return []
    if not oracle.has_rivals:
        reason = "each answer was judged alone: write rivals(task) in the folder's qualify.py"
        return [Check("rivals", "skipped", reason, "answers in a group (write rivals(task))")]
    return [Check("rivals", "ok", "each answer was judged in a group with the answers of rivals(task)")]
