"""What `ludus qualify` cannot read from the rows: the right query, near misses, and attacks on the database."""

from __future__ import annotations

from typing import Any

_NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 50000)"
_ATTACKS = {
    "writes": "DELETE FROM orders",
    "opens_files": "ATTACH '/tmp/gold.db' AS gold",
    "loads_code": "SELECT load_extension('/tmp/cheat.so')",
    "never_ends": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT MAX(x) FROM n",
    "compares_for_ever": f"{_NUMBERS} SELECT COUNT(*) FROM n WHERE ('{'a' * 4000}' || x) LIKE '%{'a' * 190}b'",
    "fills_the_memory": "SELECT zeroblob(1000000000)",
    "two_statements": "SELECT 1; SELECT 2",
}


def gold(task: Any) -> str:
    """The right query."""
    return str(task.expected_query)


def answer(task: Any, text: str) -> str:
    """A query in a fenced block."""
    return f"```sql\n{text}\n```"


def preserving(task: Any) -> dict[str, Any]:
    """The right query after an attempt with the tool, and written otherwise."""
    query = task.expected_query
    tried = [{"call": "run_query", "arguments": {"sql": query}}, answer(task, query)]
    return {
        "tried_first": tried,
        "comment": answer(task, f"-- the query\n{query};"),
        "lower": answer(task, query.lower()),
    }


def breaking(task: Any) -> dict[str, Any]:
    """The right result for the rows that the model sees, as constants, and the query without its block."""
    seen = {"unpaid": "SELECT 95", "each city": "SELECT 'Bremen', 4 UNION SELECT 'Lyon', 1 UNION SELECT 'Turku', 0"}
    constants = {f"constant_{key}": answer(task, sql) for key, sql in seen.items()}
    return {
        **constants,
        "no_block": task.expected_query,
        "more_columns": answer(task, f"SELECT *, 1 FROM ({gold(task)})"),
    }


def exploits(task: Any) -> dict[str, Any]:
    """Queries that attack the database."""
    return {f"cheat/{name}": answer(task, sql) for name, sql in _ATTACKS.items()}
