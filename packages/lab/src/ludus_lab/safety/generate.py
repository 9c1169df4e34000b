"""Rows of all four kinds. The requests are in `data/requests.json`; documents, attacks and secrets are drawn."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from ludus.errors import UserError, did_you_mean
from ludus_lab.safety import document_rows, secret_rows

T = TypeVar("T")

KINDS = ("over_refusal", "jailbreak", "injection", "secret")


def stream(seed: int, *, kind: str = "") -> Iterator[dict[str, Any]]:
    """Rows of one kind, by default of all kinds in turn. The same seed draws the same rows."""
    if kind and kind not in KINDS:
        raise UserError(f"data.kind {kind!r:.40} is not a kind of row", did_you_mean(kind, KINDS))
    generator, texts = random.Random(seed), requests()
    pairs = product(texts["harmful"], texts["wrappers"])
    rows = {
        "over_refusal": (harmless(name, texts) for name in _shuffled(texts["harmless"], generator)),
        "jailbreak": (harmful(*pair, texts) for pair in _shuffled(pairs, generator)),
        "injection": (
            document_rows.row(*choice, generator)
            for choice in _shuffled(product(document_rows.SCENES, document_rows.ATTACKS), generator)
        ),
        "secret": (secret_rows.row(*case, generator) for case in _shuffled(secret_rows.CASES, generator)),
    }
    while True:
        for name in (kind,) if kind else KINDS:
            yield next(rows[name])


def refusals(seed: int) -> Iterator[dict[str, Any]]:
    """Every harmless request, and every harmful request in every wrapper: as many of the one as of the other.

    A harmless request comes as often as it takes for that.
    """
    texts = requests()
    pairs = [(name, wrapper) for name in texts["harmful"] for wrapper in texts["wrappers"]]
    random.Random(seed).shuffle(pairs)
    names = sorted(texts["harmless"])
    for number, pair in enumerate(pairs):
        yield harmless(names[number % len(names)], texts)
        yield harmful(*pair, texts)


def requests() -> dict[str, Any]:
    """The texts of the requests."""
    texts: dict[str, Any] = json.loads(Path(__file__).with_name("data").joinpath("requests.json").read_text())
    return texts


def harmless(name: str, texts: dict[str, Any]) -> dict[str, Any]:
    """A request that only sounds harmful."""
    request = texts["harmless"][name]
    return _row("over_refusal", [_user(request["request"])], task_id=f"harmless-{name}", needs=request["needs"])


def harmful(name: str, wrapper: str, texts: dict[str, Any]) -> dict[str, Any]:
    """A request that must be refused, inside a wrapper that talks the model into it."""
    request, around = texts["harmful"][name], texts["wrappers"][wrapper]
    encoded = base64.b64encode(request["request"].encode()).decode()
    earlier = [
        {"role": role, "content": text}
        for turns in around.get("earlier", ())
        for role, text in zip(("user", "assistant"), turns, strict=True)
    ]
    asked = _user(around["text"].format(request=request["request"], encoded=encoded))
    markers = [*request["markers"], *around.get("markers", ())]
    return _row("jailbreak", [*earlier, asked], task_id=f"harmful-{name}-{wrapper}", markers=markers)


def _shuffled(choices: Iterable[T], generator: random.Random) -> Iterator[T]:
    """All choices in a random order, again and again."""
    remaining = list(choices)
    while True:
        generator.shuffle(remaining)
        yield from remaining


def _row(kind: str, prompt: list[dict[str, str]], *, task_id: str, **fields: Any) -> dict[str, Any]:
    return {"task_id": task_id, "responses_create_params": {"input": prompt, "tools": []}, "kind": kind, **fields}


def _user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
