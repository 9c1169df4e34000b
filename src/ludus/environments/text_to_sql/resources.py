"""A question about a database, which the model answers with one SQL statement.

The statement runs beside the gold one: on the row's own data and on generated states of its tables, to catch queries
that are right by luck. A judge, if one is set, decides about queries that cannot run on SQLite with the same meaning.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from pydantic import PositiveFloat, PositiveInt

import ludus
from ludus import Failure, Resources, Response, Verdict
from ludus.environments.text_to_sql.execution import Execution, TriedGold, decide_packed, try_gold
from ludus.environments.text_to_sql.extraction import extract_sql
from ludus.environments.text_to_sql.golds import TriedGolds
from ludus.environments.text_to_sql.prompt import TEMPLATE, question, system
from ludus.environments.text_to_sql.sqltext import DIALECTS
from ludus.graders.judge import NAME_A_JUDGE, Judge, JudgeConfig, Rubric, judge_usage, open_judge, require_judge
from ludus.runtime.processes import OutOfTime, in_process, shared_pool


@dataclass
class Shared:
    """What all rollouts share."""

    judge: Judge | None
    rubric: Rubric
    golds: TriedGolds = field(default_factory=TriedGolds)


class TextToSql(Resources):
    """No tools and no state: the verifier reads only the final text."""

    class Task(ludus.Task):
        sql: str
        sql_dialect: str
        sql_prompt: str
        sql_context: str = ""

        @property
        def dialect(self) -> str:
            """The dialect without aliases; "" if it is unknown."""
            return DIALECTS.get(self.sql_dialect.strip().lower(), "")

    class Config(JudgeConfig):
        """Settings of the verifier."""

        judge_equal_label: str = "[[A=B]]"
        judge_not_equal_label: str = "[[A!=B]]"

        #: Your own system message and prompt for the judge. `Rubric` lists the fields that the prompt may use.
        judge_system_message: str | None = None
        judge_prompt_template: str | None = None

        #: If the judge finds the queries equal, ask again with the two swapped.
        check_twice_swap: bool = True
        reward_if_swap_fails: float = 0.0

        #: On how many generated states of the database both queries run, besides the row's own data.
        states: PositiveInt = 8

        #: Whether an answer may have more columns than the gold result.
        extra_columns: bool = False

        #: CPU time limit of one comparison.
        execution_seconds: PositiveFloat = 20.0

    config: Config
    shared: Shared

    @classmethod
    @asynccontextmanager
    async def share(cls, config: Config) -> AsyncIterator[Shared]:
        labels = {"equal": config.judge_equal_label, "not_equal": config.judge_not_equal_label}
        message = config.judge_system_message or system(**labels)
        template = config.judge_prompt_template or TEMPLATE
        rubric = Rubric(template, system=message, guarded=not config.compat, **labels)
        async with shared_pool(), open_judge(config) as judge:
            yield Shared(judge, rubric)

    async def open(self, task: Task) -> None:
        """Refuse a row that nothing can decide, before the model is asked."""
        if not task.dialect:
            names = ", ".join(sorted(DIALECTS))
            raise Failure("bad_row", f"sql_dialect {task.sql_dialect!r:.40} is not one of {names}")
        if not task.sql.strip():
            raise Failure("bad_row", "sql is empty")
        if self.shared.judge is None:
            reason = "with compat only a judge decides" if self.config.compat else (await self._gold(task)).reason
            if reason:
                self._require_judge(reason)

    async def verify(self, task: Task, response: Response) -> Verdict:
        sql = extract_sql(response.output_text, compat=self.config.compat)
        values: dict[str, Any] = {"extracted_sql": sql, "decided_by": None, "execution_reason": None, "states": 0}
        values |= {"failure_reason": None, "judge_passed": None, "judge_evaluations": []}
        if sql is None:
            return Verdict(0.0, **values | {"failure_reason": "no_sql_extracted"})
        if not self.config.compat:
            execution = await self._execute(task, sql)
            values |= {"execution_reason": execution.reason or None, "states": execution.states}
            if execution.equal is not None:
                return Verdict(float(execution.equal), **values | {"decided_by": "execution"})
            if self.shared.judge is None:  # the row can be decided by execution, so the answer is to blame
                return Verdict(0.0, **values | {"failure_reason": "not_executable"})
        reward, records = await self._judged(task, sql, values["execution_reason"] or "")
        values |= {"decided_by": "judge", "judge_passed": reward == 1.0, "judge_evaluations": records}
        return Verdict(reward, judge_usage=judge_usage(records), **values)

    async def _judged(self, task: Task, sql: str, reason: str) -> tuple[float, list[dict[str, Any]]]:
        """The judge's reward; both orders must agree if `check_twice_swap` is set."""
        judge, rubric = self._require_judge(reason), self.shared.rubric
        asked = question(task.dialect, task.sql_context, task.sql_prompt)
        first = await judge.compare(rubric, asked, task.sql, sql)
        if not first.equal or not self.config.check_twice_swap:
            return float(first.equal), first.records
        second = await judge.compare(rubric, asked, task.sql, sql, swapped=True)
        return (1.0 if second.equal else self.config.reward_if_swap_fails), first.records + second.records

    async def _execute(self, task: Task, sql: str) -> Execution:
        """Both queries in a child process. The gold query alone took half of the CPU time at most, so a pair that
        takes all of it does so because of the candidate."""
        gold, seconds = await self._gold(task), self.config.execution_seconds
        if gold.reason:
            return Execution(None, gold.reason)
        args = (sql, gold.packed, task.dialect, self.config.extra_columns)
        try:
            return await in_process(decide_packed, *args, cpu_seconds=seconds, timeout=max(60.0, 6 * seconds))
        except OutOfTime:
            return Execution(False, f"the query takes more than {seconds:g} s of CPU time")

    async def _gold(self, task: Task) -> TriedGold:
        key = (task.sql, task.dialect, task.sql_context)
        return await self.shared.golds.get(key, lambda: self._try_gold(task))

    async def _try_gold(self, task: Task) -> TriedGold:
        config, seconds = self.config, self.config.execution_seconds / 2
        args = (task.sql, task.dialect, task.sql_context, config.states, config.extra_columns)
        try:
            return await in_process(try_gold, *args, cpu_seconds=seconds, timeout=max(60.0, 12 * seconds))
        except OutOfTime:
            return TriedGold(f"the gold query takes more than {seconds:g} s of CPU time")

    def _require_judge(self, reason: str) -> Judge:
        """The judge. Without one, a `Failure` of kind `no_judge` that says why it is needed."""
        if self.shared.judge is None:
            hint = f"Name a judge with: {NAME_A_JUDGE}"
            raise Failure("no_judge", f"this cannot be decided by execution: {reason}. {hint}")
        return require_judge(self.shared.judge)
