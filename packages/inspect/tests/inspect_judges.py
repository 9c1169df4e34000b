"""A judge that is a function, for `scripted:inspect_judges:judge`."""

from __future__ import annotations

from ludus.errors import Failure
from ludus.model import Request
from ludus.response import texts_of


def judge(request: Request) -> str:
    """The verdict of a judge, or what a user says."""
    text = texts_of(request.input[-1])
    if "judge_dead" in text:
        raise Failure("http_500", "the judge is down")
    if "judges_itself" in text:
        return "I"
    return "please help" if "with_user" in text else "C"
