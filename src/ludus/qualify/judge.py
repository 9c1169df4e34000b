"""A judge for qualification without a model, named in settings as `scripted:ludus.qualify.judge`.

It reads the two answers between the marks of the prompt and finds them equal where they are the same text but for case,
blanks and punctuation. Like a real one it first quotes what it was given, so that an answer which holds a verdict gets
that verdict into the reply: whoever lets such an answer through is found out.
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
    """The judge's reply to a prompt that marks its answers as our templates do."""
    prompt = texts_of(request.input[-1])
    answers = {found[1]: found[3] for found in _ANSWERS.finditer(prompt)}
    if set(answers) != {"A", "B"}:
        raise Failure("bad_prompt", "the scripted judge reads prompts with BEGIN ANSWER A and BEGIN ANSWER B only")
    first, second = (_NOISE.sub("", answers[name].casefold()) for name in "AB")
    verdict = EQUAL if first == second and first else NOT_EQUAL
    return f"A says: {answers['A']}\nB says: {answers['B']}\n{verdict}"
