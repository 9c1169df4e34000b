"""Runs for people without the viewer: one self-contained page, or a folder of files for any web server.

Both are the viewer's page, with the server's answers inside or beside it. They hold the chosen rollouts and all charts.
Only the viewer's own script can run: the page's content security policy names its digest.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ludus.errors import UserError
from ludus.runtime.encoding import encode
from ludus.store.drafts import write_whole
from ludus.view.app import STATIC
from ludus.view.experiment import experiment_payload
from ludus.view.listing import rollouts_page
from ludus.view.live import LiveRuns, runs_payload
from ludus.view.live_run import LiveRun
from ludus.view.one import items_page, rollout_payload
from ludus.view.tokenizer import Tokenizer
from ludus.view.trainer import trainer_payload
from ludus.view.written import written_payload

#: How many rollouts of each run a page holds, and how many one list of the page.
MAX_EXPORTED = 200
MAX_PUBLISHED = 20_000
PAGE = 100

#: The largest page that browsers open without trouble.
MAX_BYTES = 100_000_000

_TITLE = b"<title>ludus view</title>"
_ROOM = "Make room or name another place"

Answers = Iterator[tuple[str, Any]]


def export_page(runs: LiveRuns, to: Path, query: str, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Write one page with all charts and the rollouts that match a query, at most `MAX_EXPORTED` of each run."""
    _check_replaceable(to)
    answers = dict(_answers(runs, query, MAX_EXPORTED, tokenizer))
    data = encode(answers).replace(b"<", b"\\u003c")  # so that no text can close the script element
    if len(data) > MAX_BYTES:
        raise UserError(f"the page would hold {len(data) >> 20} MB", "Choose fewer rollouts with --query")
    script, style = (STATIC / "app.js").read_bytes(), (STATIC / "app.css").read_bytes()
    if b"</script" in script or b"</style" in style:
        raise UserError("the built page cannot be put into one file", "Build it again: make web")
    policy = (
        f"default-src 'none'; script-src {_hashed(script)}; style-src {_hashed(style)}; img-src data:; "
        "media-src data:; base-uri 'none'; form-action 'none'"
    )
    page = b"".join(
        (
            _head(policy),
            b"<style>" + style + b"</style></head><body><div id=app></div>",
            b'<script type="application/json" id="ludus-data">' + data + b"</script>",
            b'<script type="module">' + script + b"</script></body></html>\n",
        )
    )
    write_whole(to, page, _ROOM)
    return {"file": str(to), "bytes": len(page), "rollouts": sum("/api/rollout?" in name for name in answers)}


def publish(runs: LiveRuns, to: Path, query: str, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Write a static site: the page, and a file for each answer."""
    if to.exists() and any(to.iterdir()) and not (to / "ludus-view.txt").exists():
        raise UserError(f"{to} holds other files", "Name an empty folder, or one that ludus view --publish wrote")
    allowed = "script-src 'self'; style-src 'self'; img-src 'self' data:; media-src data:; connect-src 'self'"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'"
    head = _head(policy) + b'<meta name="ludus-data" content="data/"><link rel="stylesheet" href="app.css"></head>'
    body = b'<body><div id="app"></div><script type="module" src="app.js"></script></body></html>\n'
    count = size = 0
    for name, answer in _answers(runs, query, MAX_PUBLISHED, tokenizer):
        data = encode(answer)
        write_whole(to / "data" / published_name(name), data, _ROOM)
        count, size = count + ("/api/rollout?" in name), size + len(data)
    for name in ("app.js", "app.css"):
        write_whole(to / name, (STATIC / name).read_bytes(), _ROOM)
    write_whole(to / "ludus-view.txt", b"Written by ludus view --publish, which may replace every file here.\n", _ROOM)
    write_whole(to / "index.html", head + body, _ROOM)
    return {"folder": str(to), "bytes": size, "rollouts": count}


def published_name(address: str) -> str:
    """The file that holds an answer. The page computes the same name."""
    return re.sub(r"[^\w-]", "_", address.removeprefix("/api/"), flags=re.ASCII) + ".json"


def _answers(runs: LiveRuns, query: str, most: int, tokenizer: Tokenizer | None) -> Answers:
    listed = list(runs.runs.values())
    for run in listed:
        run.headline(runs.prices)
        run.curve()
    folders = runs_payload(runs)
    yield "/api/runs", folders
    for at in ["", *(folder["at"] for folder in folders["folders"])] if len(listed) > 1 else []:
        for figure in ("", *experiment_payload(runs, at, "")["figures"]):
            parameters = {name: value for name, value in (("at", at), ("figure", figure)) if value}
            yield _address("experiment", **parameters), experiment_payload(runs, at, figure)
    for run in listed:
        yield _address("run", run=run.run.key), run.overview(runs.prices)
        yield from _rollouts(run, query, most, tokenizer)


def _rollouts(run: LiveRun, query: str, most: int, tokenizer: Tokenizer | None) -> Answers:
    key, chosen = run.run.key, list[dict[str, Any]]()
    with run.index.reading() as database:
        while len(chosen) < most:
            page = rollouts_page(database, query, "order", len(chosen), PAGE)["rollouts"]
            chosen += page
            if len(page) < PAGE:
                break
        progress = run.index.progress(database)
    chosen = chosen[:most]
    for skip in range(0, max(len(chosen), 1), PAGE):
        listed = {"total": len(chosen), "skip": skip, "rollouts": chosen[skip : skip + PAGE], "index": progress}
        yield _address("rollouts", run=key, limit=PAGE, skip=skip, sort="order"), listed
    for place, entry in enumerate(chosen):
        payload = rollout_payload(run.index, entry["id"], "", "order")
        payload["around"] = {
            "previous": chosen[place - 1]["id"] if place else None,
            "next": chosen[place + 1]["id"] if place + 1 < len(chosen) else None,
            "place": place + 1,
            "total": len(chosen),
        }
        inside = {entry["id"] for entry in chosen}
        for name in ("repeats", "branches"):
            payload["related"][name] = [entry for entry in payload["related"][name] if entry["id"] in inside]
        yield _address("rollout", run=key, id=entry["id"], sort="order"), payload
        for thread in payload["threads"]:
            parameters = {"run": key, "id": entry["id"], "skip": 0, "thread": thread["name"]}
            yield _address("items", **parameters), items_page(run.index, entry["id"], 0, thread["name"])
        if payload["facts"]["has_tokens"]:
            yield _address("tokens", run=key, id=entry["id"]), trainer_payload(run.index, entry["id"], tokenizer)
            yield _address("written", run=key, id=entry["id"]), written_payload(run.index, entry["id"], tokenizer)
            for thread in payload["threads"]:
                written = written_payload(run.index, entry["id"], tokenizer, thread["name"])
                yield _address("written", run=key, id=entry["id"], thread=thread["name"]), written


def _address(path: str, **parameters: Any) -> str:
    """The address by which the page asks for an answer."""
    listed = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in sorted(parameters.items()))
    return f"/api/{path}?{listed}" if listed else f"/api/{path}"


def _check_replaceable(page: Path) -> None:
    """Refuse to replace anything but a page of ours: the name may be that of a journal."""
    try:
        with page.open("rb") as file:
            ours = _TITLE in file.read(2000)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"cannot write {page}: {error.strerror}", _ROOM) from error
    if not ours:
        raise UserError(f"{page} exists already, and ludus view did not write it", "Name another file")


def _head(policy: str) -> bytes:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
    ).encode() + _TITLE


def _hashed(content: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"
