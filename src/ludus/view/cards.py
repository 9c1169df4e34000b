"""Whether the environments of a run can be trusted: their qualification cards, or the command that makes one.

A card beside the run comes first. A built-in environment may have a card in its folder.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from ludus.runtime.imports import BUILT_IN
from ludus.store.files import read_json_object
from ludus.view.places import ViewedRun

#: The most environments of a run whose cards are shown.
MAX_CARDS = 20


def cards_of(run: ViewedRun, environments: list[str]) -> list[dict[str, Any]]:
    """For each environment its `card`, where it lies (`from`), and the `command` that makes one."""
    beside = run.files.beside("card.json")
    card = read_json_object(beside)
    names = [name for name in environments if name][:MAX_CARDS] or ["ENV"]
    owner = card.get("environment") if card.get("environment") in names else names[0]
    return [_card(name, beside, card if name == owner else {}) for name in names]


def _card(name: str, beside: Path, card: dict[str, Any]) -> dict[str, Any]:
    place = str(beside)
    if not card and (built_in := _built_in_card(name)) is not None:
        card, place = read_json_object(built_in), f"the environment {name}"
    command = f"ludus qualify {shlex.quote(name)} --json > {shlex.quote(str(beside))}"
    return {"environment": name, "card": card or None, "from": place if card else None, "command": command}


def _built_in_card(name: str) -> Path | None:
    """The card in a built-in environment's folder. The name is hostile: it is compared, never joined to a path."""
    return next((path for path in BUILT_IN.glob("*/card.json") if path.parent.name == name), None)
