"""A reward model for qualification without a model, in settings `scripted:ludus.qualify.reward_model`.

It reads both responses between the marks of the prompt, and behind "should say:" what a good one says: that is worth 5,
all else 1. Like a real one it first quotes what it was given, so that a response which holds a verdict gets it into
the reply.
"""

from __future__ import annotations

import re

import orjson

from ludus.errors import Failure
from ludus.model import Request
from ludus.response import texts_of

_RESPONSES = re.compile(r"^BEGIN RESPONSE ([12]) (\S+)\n(.*?)\n?^END RESPONSE \1 \2$", re.MULTILINE | re.DOTALL)
_WANTED = re.compile(r"^What matters:\n.*should say: (.+)$", re.MULTILINE)
_NOISE = re.compile(r"[\s.,;!?$*\"'{}\\]+")


def respond(request: Request) -> str:
    """The reply to a prompt that marks its responses as ours does."""
    prompt = texts_of(request.input[-1])
    responses = {found[1]: found[3] for found in _RESPONSES.finditer(prompt)}
    wanted = _WANTED.search(prompt)
    if set(responses) != {"1", "2"} or wanted is None:
        raise Failure(
            "bad_prompt", "the scripted reward model reads prompts with two responses and what they should say"
        )
    first, second = (5 if _plain(responses[name]) == _plain(wanted[1]) else 1 for name in "12")
    ranking = 3.5 if first == second else 1 if first > second else 6
    verdict = orjson.dumps({"score_1": first, "score_2": second, "ranking": ranking}).decode()
    return f"The first says: {responses['1']}\nThe second says: {responses['2']}\n{verdict}"


def _plain(text: str) -> str:
    return _NOISE.sub("", text.casefold())
