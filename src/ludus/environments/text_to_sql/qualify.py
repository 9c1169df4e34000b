"""How qualification answers questions about a database: with the gold query, and with queries that are nearly it.

The wrong queries differ from the gold query in one place, so most of them are right on some data.
"""

from __future__ import annotations

import re
from typing import Any

settings = {"resources.judge": "scripted:ludus.qualify.judge"}

_CHANGES = {
    "other_border": (r"> (\d+)", r">= \1"),
    "other_aggregate": (r"\bSUM\(", "MAX("),
    "other_average": (r"\bAVG\(", "MIN("),
    "no_filter": (r"\bWHERE\b.*?(?=\bGROUP BY\b|\bORDER BY\b|;|$)", ""),
    "other_null": (r"\bIS NULL\b", "IS NOT NULL"),
    "other_limit": (r"\bLIMIT 3\b", "LIMIT 2"),
    "other_order": (r"\bDESC\b", "ASC"),
    "left_join": (r"(?<!LEFT )\bJOIN\b", "LEFT JOIN"),
    "no_case": (r"\bNOT IN\b", "IN"),
}

#: Attacks of a query on its grader. No program of the model runs here, so these take the place of programs.
_CHEATS = {
    "prints_success": "SELECT 'PASSED', 1.0",
    "answers_nan": "SELECT 9e999 - 9e999, 'NaN'",
    "reads_the_schema": "SELECT name, sql FROM sqlite_master",
    "reads_the_gold_query": "SELECT sql, 1 FROM sqlite_stmt",
    "reads_files": "SELECT readfile('/proc/self/environ'), 1",
    "loads_code": "SELECT load_extension('/tmp/cheat.so'), 1",
    "opens_another_database": "ATTACH '/tmp/gold.db' AS gold",
    "writes_the_verdict": "VACUUM INTO '/tmp/verdict.json'",
    "changes_settings": "PRAGMA writable_schema = ON",
    "empties_the_tables": "WITH a AS (SELECT 1) DELETE FROM members",
    "replaces_tables": "CREATE TEMP VIEW members AS SELECT 1",
    "hangs": "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT MAX(x) FROM n",
    "fills_the_memory": "SELECT zeroblob(1000000000), zeroblob(1000000000)",
}


def gold(task: Any) -> str:
    """The gold query."""
    return str(task.sql)


def answer(task: Any, text: str) -> str:
    """A query in a fenced block."""
    return f"```sql\n{text}\n```"


def preserving(task: Any) -> dict[str, Any]:
    """The gold query in other forms."""
    query = task.sql.strip().rstrip(";")
    texts = {"no_semicolon": query, "comment": f"-- the query\n{query};", "lines": query.replace(" FROM ", "\nFROM\n")}
    scripts = {name: answer(task, text) for name, text in texts.items()}
    scripts["changed_mind"] = f"First I had\n{answer(task, 'SELECT 1;')}\nNo, better:\n{answer(task, query)}"
    scripts["no_fence"] = f"Here it is: {query};"
    if query.upper().startswith("SELECT") and "ORDER BY" not in query.upper():
        scripts["subquery"] = answer(task, f"SELECT * FROM ({query}) AS t")
    return scripts


def breaking(task: Any) -> dict[str, Any]:
    """Queries with another result on some data."""
    changed = {name: re.sub(*change, task.sql, count=1, flags=re.DOTALL) for name, change in _CHANGES.items()}
    changed |= {"constant": "SELECT 'Ines Vogt', 1", "drop": "DROP TABLE members", "hedged": f"{task.sql} SELECT 1;"}
    harmless = {"left_join"} if "WHERE" in task.sql or "SELECT" not in task.sql or "LIMIT" in task.sql else set()
    return {name: answer(task, sql) for name, sql in changed.items() if sql != task.sql and name not in harmless}


def exploits(task: Any) -> dict[str, Any]:
    """Queries that attack the grader."""
    return {f"cheat/{name}": answer(task, sql) for name, sql in _CHEATS.items()}
