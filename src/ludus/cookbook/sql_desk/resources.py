"""A question about a database. The model tries queries with a tool and hands in one query as its answer.

The query is judged on a second database with other rows, so a query that only holds the right number earns nothing.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing

import ludus
from ludus import Resources, Response, tool
from ludus.graders.code_blocks import last_block

READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


class SqlDesk(Resources):
    """One small database for each task. Nothing is written to it, so there is nothing to free."""

    class Task(ludus.Task):
        databases: tuple[str, str]  # SQL scripts: the database that the model sees, and the second one
        expected_query: str

    async def open(self, task: Task) -> None:
        self.database = task.databases[0]

    @tool
    def run_query(self, sql: str) -> list[tuple[object, ...]] | str:
        """Run one SELECT statement, and see the first 20 rows of its result."""
        try:
            return select(self.database, sql)[:20]
        except (sqlite3.Error, ValueError) as error:  # the model's mistake, which it reads and can mend
            return f"This query does not run: {error}"

    def verify(self, task: Task, response: Response) -> float:
        query = block.code if (block := last_block(response.output_text)) else ""
        return float(all(same_result(database, query, task.expected_query) for database in task.databases))


def same_result(database: str, query: str, expected: str) -> bool:
    """Whether two queries have the same result. The order counts if the expected query has an ORDER BY."""
    wanted = select(database, expected)
    try:
        result = select(database, query)
    except (sqlite3.Error, ValueError):  # the model's mistake: reward 0, not a failure
        return False
    return result == wanted or ("order by" not in expected.lower() and Counter(result) == Counter(wanted))


def select(script: str, query: str) -> list[tuple[object, ...]]:
    """The result of a query that a model wrote: it may read and do nothing else, for a million steps at most."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(script)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
        database.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY)
        database.set_progress_handler(lambda: True, 1_000_000)  # True stops the query
        return database.execute(query).fetchmany(1000)
