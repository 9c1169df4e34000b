"""One rollout for its page: read from the journal by offset, with long texts and long trajectories cut to pieces.

A record may hold megabytes of text, a hundred thousand items and token ids. The page gets the first items and asks for
more; a text that is too long is cut and says so. The raw line stays available as it is.
"""

from __future__ import annotations

import heapq
import sqlite3
from typing import Any

from ludus.errors import Failure, UserError
from ludus.http.messages import Refusal
from ludus.outcome import UNREWARDED
from ludus.record import FAILURE, Row, read_timings, task_row
from ludus.store.parsing import parse
from ludus.view.facts import items_of
from ludus.view.index import RunIndex
from ludus.view.listing import neighbours
from ludus.view.rollout_threads import restored_counts, thread_items, threads_of

#: How many items of a trajectory one reply holds, and how many characters of one text.
PAGE = 200
MAX_TEXT = 200_000

#: How deep JSON is shown, how many entries of a list or an object, and how many related rollouts.
MAX_DEPTH = 40
MAX_ENTRIES = 5000
MAX_RELATED = 400

#: How many steps of a rollout are drawn on its line of time: the longest ones.
MAX_STEPS = 1000

#: An image or a sound as data may be longer than a text: cut, it would be neither.
MAX_MEDIA = 8_000_000

_TOKEN_FIELDS = ("prompt_ids", "generated_ids", "logprobs")


def rollout_payload(index: RunIndex, rollout: int, query: str, sort: str) -> dict[str, Any]:
    """Everything that the page of one rollout shows first."""
    facts, row = read_row(index, rollout)
    with index.reading() as database:
        note = database.execute("SELECT note, tags FROM notes WHERE key = ?", (facts["key"],)).fetchone()
        around = neighbours(database, query, sort, rollout)
        related = _related(database, facts)
    response = _object(row.get("response"))
    output = items_of(response.get("output"))
    asked = _object(row.get("responses_create_params"))
    timings, steps = read_timings(row)
    return {
        "id": rollout,
        "run_name": index.run.name,
        "facts": {name: facts[name] for name in facts.keys() if name not in ("key", "task")},  # noqa: SIM118
        "place": {"file": index.journals[facts["file"]].name, "line": facts["number"], "bytes": facts["length"]},
        "note": note["note"] if note is not None else "",
        "tags": note["tags"].split() if note is not None else [],
        "around": around,
        "related": related,
        "prompt": clipped(_prompt(asked)[:PAGE]),
        "tools": clipped(items_of(response.get("tools")) or items_of(asked.get("tools"))),
        "items": clipped(output[:PAGE]),
        "items_total": len(output),
        "calls": [_call(call) for call in items_of(row.get("model_calls"))[:MAX_ENTRIES]],
        "verdict": clipped(_verdict(row)),
        "failure": clipped({name: row[name] for name in FAILURE if name in row})
        if facts["outcome"] in UNREWARDED
        else None,
        "task": clipped(_task_fields(row)),
        "timings": _object(timings),
        "steps": _longest(steps),
        "steps_total": len(steps),
        "usage": clipped(_object(row.get("usage")) or _object(response.get("usage"))),
        "threads": clipped(threads_of(row)),
        "restored": restored_counts(row),
        "tool_errors": clipped(items_of(row.get("tool_errors"))),
        "response": clipped({key: value for key, value in response.items() if key not in ("output", "tools", "usage")}),
    }


def items_page(index: RunIndex, rollout: int, skip: int, thread: str = "") -> dict[str, Any]:
    """The next items of a trajectory, or of a thread beside the main one."""
    _, row = read_row(index, rollout)
    calls = list[Row]()
    if thread:
        output, calls = thread_items(row, thread)
    else:
        output = items_of(_object(row.get("response")).get("output"))
    skip, most = max(skip, 0), PAGE if not thread else MAX_ENTRIES
    shown = {"items": clipped(output[skip : skip + most]), "skip": skip, "total": len(output)}
    return {**shown, "calls": [_call(call) for call in calls[:MAX_ENTRIES]]} if thread else shown


def read_row(index: RunIndex, rollout: int) -> tuple[sqlite3.Row, Row]:
    """The figures and the record of a rollout."""
    line = index.line(rollout)
    if line is None:
        raise Refusal(404, f"the run has no rollout {rollout}")
    try:
        return line[0], parse(line[1])
    except Failure as error:
        raise UserError("the journal changed since it was indexed", "Load the page again") from error


def clipped(value: Any, depth: int = MAX_DEPTH) -> Any:
    """The value with long texts cut. A cut text is `{"cut": TEXT, "length": N}`."""
    if isinstance(value, str):
        if len(value) <= MAX_TEXT or (value.startswith(("data:image/", "data:audio/")) and len(value) <= MAX_MEDIA):
            return value
        return {"cut": value[:MAX_TEXT], "length": len(value)}
    if isinstance(value, (dict, list)) and depth <= 0:
        return "…"
    if isinstance(value, dict):
        names = list(value)[:MAX_ENTRIES]
        return {name: value[name] if _is_sound(value, name) else clipped(value[name], depth - 1) for name in names}
    if isinstance(value, list):
        return [clipped(entry, depth - 1) for entry in value[:MAX_ENTRIES]]
    return value


def _is_sound(value: Row, name: str) -> bool:
    return name == "data" and "format" in value and isinstance(value[name], str) and len(value[name]) <= MAX_MEDIA


def _prompt(asked: Row) -> list[Row]:
    text = asked.get("input")
    prompt = [{"role": "user", "content": text}] if isinstance(text, str) else items_of(text)
    if isinstance(asked.get("instructions"), str):
        prompt.insert(0, {"role": "system", "content": asked["instructions"]})
    return prompt


def _verdict(row: Row) -> dict[str, Any]:
    named = row.get("verdict_fields")
    values = (
        {name: row[name] for name in named if isinstance(name, str) and name in row} if isinstance(named, list) else {}
    )
    fields = ("reward", "reward_components", "turn_rewards", "mask", "receipt", "stop_reason", "rollout_seed")
    return {**{name: row[name] for name in fields if name in row}, "values": values}


def _task_fields(row: Row) -> Row:
    return {
        name: value for name, value in task_row(row).items() if name not in ("responses_create_params", "agent_ref")
    }


def _call(call: Row) -> Row:
    """A model call without its token ids, which the trainer's page asks for."""
    shown = {name: value for name, value in call.items() if name not in (*_TOKEN_FIELDS, "tools")}
    for name in _TOKEN_FIELDS[:2]:
        if isinstance(call.get(name), list):
            shown[name.replace("_ids", "_tokens")] = len(call[name])
    cut: Row = clipped(shown)
    return cut


def _longest(steps: list[tuple[str, float, float]]) -> list[tuple[int, str, float, float]]:
    """The longest steps in the order of the rollout, each with its number from 0."""
    numbered = [(number, *step) for number, step in enumerate(steps)]
    return sorted(heapq.nlargest(MAX_STEPS, numbered, key=lambda step: step[3]))


def _related(database: sqlite3.Connection, facts: sqlite3.Row) -> dict[str, Any]:
    """The other attempts at the same task, and the tree of branches that this rollout belongs to."""
    columns = "id, rollout_id, repeat, attempt, final, outcome, reward, parent, branch_turn"
    same = database.execute(
        f"SELECT {columns} FROM rollouts WHERE task = ? ORDER BY repeat, attempt, id LIMIT ?",
        (facts["task"], MAX_RELATED),
    ).fetchall()
    root = facts["parent"] or facts["rollout_id"]
    tree = database.execute(
        f"SELECT {columns} FROM rollouts WHERE parent = ? OR (rollout_id = ? AND final) ORDER BY parent NOTNULL, "
        "branch_turn, id LIMIT ?",
        (root, root, MAX_RELATED),
    ).fetchall()
    branches = [dict(row) for row in tree]
    return {
        "repeats": [dict(row) for row in same],
        "branches": branches if any(row["parent"] for row in branches) else [],
        "root": root if facts["parent"] else None,
    }


def _object(value: Any) -> Row:
    return value if isinstance(value, dict) else {}
