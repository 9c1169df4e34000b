"""A scripted judge, so that qualification needs no model. Settings name it `scripted:ludus.qualify.judge`.

It reads the two answers between the markers of the prompt. They are equal if they differ only in case, spaces and
punctuation. Like a real judge it quotes the answers first, so a verdict inside an unguarded answer gets into the reply.
"""

from __future__ import annotations

import re

from ludus.errors import Failure
from ludus.model import Request
from ludus.response import texts_of

_ANSWERS = re.compile(r"^BEGIN ANSWER ([AB]) (\S+)\n(.*?)\n?^END ANSWER \1 \2$", re.MULTILINE | re.DOTALL)
_NOISE = re.compile(r"[\s.,;!?$*\"'{}\\]+|text|boxed")
EQUAL, NOT_EQUAL = "[[A=B]]", "[[A!=B]]"


def respond(request: Request) -> str:
    """The judge's reply to a prompt with the answer markers of our templates."""
    prompt = texts_of(request.input[-1])
    answers = {match[1]: match[3] for match in _ANSWERS.finditer(prompt)}
    if set(answers) != {"A", "B"}:
        raise Failure("bad_prompt", "the scripted judge needs a prompt with BEGIN ANSWER A and BEGIN ANSWER B")
    first, second = (_NOISE.sub("", answers[name].casefold()) for name in "AB")
    verdict = EQUAL if first == second and first else NOT_EQUAL
    return f"A says: {answers['A']}\nB says: {answers['B']}\n{verdict}"
