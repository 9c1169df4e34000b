"""The customer without a model, as `environment.yaml` names it.

It says why it is there, and then asks the representative to go on, for ever.
"""

from __future__ import annotations

from ludus.agents.user import UserRole
from ludus.model import Request
from ludus.response import texts_of

HELP = "Hello, I need some help."
CONTINUE = "Please continue."


def respond(request: Request) -> str:
    """The next message."""
    if any(item.get("role") == "assistant" for item in request.input):
        return CONTINUE
    return UserRole.read(texts_of(request.input[0])).goal or HELP
