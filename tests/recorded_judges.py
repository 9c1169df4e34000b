"""A judge with recorded replies, for tests that compare verdicts with recorded ones."""

from __future__ import annotations

from typing import Any

from ludus.errors import Failure
from ludus.graders.judge import Judge
from ludus.model import Request
from ludus.models.scripted import ScriptedModel
from ludus.response import Response


def recorded_judge(replies: list[dict[str, Any]]) -> Judge:
    """A judge that gives recorded replies in order. `{"http_status": 500}` is a request that failed."""
    remaining = iter(replies)

    def answer(request: Request) -> Response:
        reply = next(remaining, None)
        if reply is None:
            raise Failure("bad_response", f"the judge was asked more often than the {len(replies)} recorded replies")
        if "http_status" in reply:
            raise Failure(f"http_{reply['http_status']}", "the recorded request failed")
        return Response(reply)

    return Judge(ScriptedModel(answer, "recorded"))
