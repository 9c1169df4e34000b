"""Lists of rollouts that match a query, a page at a time, and the neighbours of one."""

from __future__ import annotations

import sqlite3
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus.view.query import FROM, Query, parse_query

#: The most rollouts on one page of a list.
MAX_PAGE = 500

_SORTS = {
    "order": "r.id",
    "reward": "r.reward",
    "tokens": "r.output_tokens",
    "turns": "r.turns",
    "seconds": "r.t_total",
    "errors": "r.tool_errors",
    "task": "r.task",
}
_COLUMNS = (
    "r.id, r.rollout_id, r.repeat, r.attempt, r.final, r.outcome, r.reward, r.passed, r.stop_reason, r.mask, r.stage, "
    "r.kind, r.cause, r.turns, r.input_tokens, r.output_tokens, r.tool_calls, r.tool_errors, r.t_total AS seconds, "
    "r.about, r.task, t.task_id, t.environment, n.note, n.tags"
)


def rollouts_page(database: sqlite3.Connection, query: str, sort: str, skip: int, limit: int) -> dict[str, Any]:
    """One page of the rollouts that match a query, with their number."""
    matched, order = parse_query(query), _order(sort)
    total = count(database, matched)
    rows = database.execute(
        f"SELECT {_COLUMNS} FROM {FROM} WHERE {matched.where} ORDER BY {order} LIMIT ? OFFSET ?",
        (*matched.parameters, min(max(limit, 1), MAX_PAGE), max(skip, 0)),
    )
    return {"total": total, "skip": skip, "rollouts": [listed(row) for row in rows]}


def neighbours(database: sqlite3.Connection, query: str, sort: str, rollout: int) -> dict[str, Any]:
    """The rollouts before and after one in a list, its place and the length of the list."""
    matched, order = parse_query(query), _order(sort)
    total, own = count(database, matched), (*matched.parameters, rollout)
    if order == "r.id":  # the usual list: no need to rank all of it
        some = f"FROM {matched.tables} WHERE {matched.where} AND r.id"
        before = database.execute(f"SELECT r.id {some} < ? ORDER BY r.id DESC LIMIT 1", own).fetchone()
        after = database.execute(f"SELECT r.id {some} > ? ORDER BY r.id LIMIT 1", own).fetchone()
        place = database.execute(f"SELECT count(*) {some} <= ?", own).fetchone()[0]
        return {"previous": before and before[0], "next": after and after[0], "place": place, "total": total}
    inner = "SELECT r.id AS id, row_number() OVER w AS place, lag(r.id) OVER w AS previous, lead(r.id) OVER w AS next"
    ranked = f"{inner} FROM {matched.tables} WHERE {matched.where} WINDOW w AS (ORDER BY {order})"
    row = database.execute(f"SELECT * FROM ({ranked}) WHERE id = ?", own).fetchone()
    if row is None:
        return {"previous": None, "next": None, "place": None, "total": total}
    return {"previous": row["previous"], "next": row["next"], "place": row["place"], "total": total}


def count(database: sqlite3.Connection, query: Query) -> int:
    """How many rollouts match a query."""
    row = database.execute(f"SELECT count(*) FROM {query.tables} WHERE {query.where}", query.parameters).fetchone()
    return int(row[0])


def listed(row: sqlite3.Row) -> dict[str, Any]:
    """A row of a list as JSON."""
    values = dict(row)
    values["tags"] = (values.get("tags") or "").split()
    return values


def _order(sort: str) -> str:
    name = sort.removeprefix("-")
    if name not in _SORTS:
        raise UserError(f"rollouts cannot be sorted by {name!r:.40}", did_you_mean(name, _SORTS))
    if name == "order":
        return "r.id DESC" if sort.startswith("-") else "r.id"
    return f"{_SORTS[name]} {'DESC' if sort.startswith('-') else 'ASC'} NULLS LAST, r.id"
