"""What providers say that cannot work here, and about settings that they do not know."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

log = logging.getLogger("nemo_gym.sandbox")

#: What a user can do where a provider is missing.
INSTEAD = "let Ludus's sandboxes take its place: {ludus: {}}"


def missing_program(provider: str, program: str) -> str:
    """What to say if a program is not installed."""
    return f"sandbox provider {provider} needs {program}, which is not installed. Install it, or {INSTEAD}"


def warn_unknown(provider: str, settings: Mapping[str, Any]) -> None:
    """Settings that a provider does not know have no effect."""
    if settings:
        log.warning("sandbox provider %s: settings without effect: %s", provider, ", ".join(sorted(settings)))
