"""A scripted reward model for `ludus qualify`, which needs no real one.

It reads both responses between the markers of the prompt, and the wanted response after "should say:". That response
scores 5, any other 1. Like a real reward model it quotes the responses first, so a verdict inside a response gets into
the reply.
"""

from __future__ import annotations

import functools
import re

import orjson

from ludus.errors import Failure
from ludus.model import Request
from ludus.response import texts_of

_RESPONSES = re.compile(r"^BEGIN RESPONSE ([12]) (\S+)\n(.*?)\n?^END RESPONSE \1 \2$", re.MULTILINE | re.DOTALL)
_WANTED = re.compile(r"^What matters:\n.*should say: (.+)$", re.MULTILINE)
_NOISE = re.compile(r"[\s.,;!?$*\"'{}\\]+")


def respond(request: Request) -> str:
    """The reply to a prompt with the response markers of our templates."""
    prompt = texts_of(request.input[-1])
    responses = {match[1]: match[3] for match in _RESPONSES.finditer(prompt)}
    wanted = _WANTED.search(prompt)
    if set(responses) != {"1", "2"} or wanted is None:
        raise Failure(
            "bad_prompt", "the scripted reward model needs a prompt with two responses and what they should say"
        )
    first, second = (5 if _normalized(responses[name]) == _normalized(wanted[1]) else 1 for name in "12")
    ranking = 3.5 if first == second else 1 if first > second else 6
    verdict = orjson.dumps({"score_1": first, "score_2": second, "ranking": ranking}).decode()
    return f"The first says: {responses['1']}\nThe second says: {responses['2']}\n{verdict}"


@functools.lru_cache(maxsize=64)  # responses of a group meet in many prompts, and some are a megabyte long
def _normalized(text: str) -> str:
    return _NOISE.sub("", text.casefold())
