"""An answer of 65,536 tokens with log probabilities (1.4 MB as JSON), and a model that returns it."""

import random
from typing import Any

from ludus.model import Request
from ludus.response import Response, message
from ludus.tokens import Tokens

_random = random.Random(0)
PROMPT = [_random.randrange(1000, 100_000) for _ in range(1000)]
WRITTEN = [_random.randrange(1000, 100_000) for _ in range(65_536)]
LOGPROBS = [round(-_random.random(), 6) for _ in WRITTEN]
TEXT = message("word " * 60_000)


def model(request: Request) -> Response:
    """The answer as a Ludus model returns it."""
    return Response.of(TEXT, model="large", tokens=Tokens(PROMPT, WRITTEN, LOGPROBS))


def response() -> dict[str, Any]:
    """The same answer as a server sends it."""
    found = model(Request("x")).data
    last = {"prompt_token_ids": PROMPT, "generation_token_ids": WRITTEN, "generation_log_probs": LOGPROBS}
    return {**found, "output": [{**TEXT, **last}]}
