"""A question about a database. The model tries queries with a tool and hands in one query as its answer.

The query is judged on a second database with other rows, so a query that only holds the right number earns nothing.
Queries run in a child process: one comparison of texts can keep SQLite busy for minutes, and nothing else stops it.
"""

from __future__ import annotations

import sqlite3
from collections import Counter

import ludus
from ludus import Resources, Response, tool
from ludus.graders.code_blocks import last_block
from ludus.runtime.processes import OutOfTime

READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}


class SqlDesk(Resources):
    """One small database for each task. Nothing is written to it, so there is nothing to free."""

    class Task(ludus.Task):
        databases: tuple[str, str]  # SQL scripts: the database that the model sees, and the second one
        expected_query: str

    async def open(self, task: Task) -> None:
        self.database = task.databases[0]

    @tool
    async def run_query(self, sql: str) -> list[tuple[object, ...]] | str:
        """Run one SELECT statement, and see the first 20 rows of its result."""
        try:
            return (await self.in_process(select, self.database, sql, cpu_seconds=1))[:20]
        except (sqlite3.Error, ValueError, OutOfTime) as error:  # the model's mistake, which it reads and can mend
            return f"This query does not run: {error}"

    async def verify(self, task: Task, response: Response) -> float:
        query = block.code if (block := last_block(response.output_text)) else ""
        for database in task.databases:
            wanted = await self.in_process(select, database, task.expected_query)
            try:
                result = await self.in_process(select, database, query, cpu_seconds=1)
            except (sqlite3.Error, ValueError, OutOfTime):  # the model's mistake: reward 0, not a failure
                return 0.0
            if result != wanted and ("order by" in task.expected_query.lower() or Counter(result) != Counter(wanted)):
                return 0.0
        return 1.0


def select(script: str, query: str) -> list[tuple[object, ...]]:
    """The result of a query that a model wrote: it may read and do nothing else, for a million steps at most."""
    database = sqlite3.connect(":memory:")
    database.executescript(script)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)
    database.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200)
    database.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY)
    database.set_progress_handler(lambda: True, 1_000_000)  # True stops the query
    return database.execute(query).fetchmany(1000)
