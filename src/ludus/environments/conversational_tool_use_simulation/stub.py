"""The default customer of `environment.yaml`, played without a model.

It states its reason for contact, and then answers "Please continue." every time.
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
