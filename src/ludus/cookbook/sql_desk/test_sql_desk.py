"""Queries earn the reward on both databases, or nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ludus
from ludus import Rollout, ScriptedModel

FOLDER = Path(__file__).parent


def play(*turns: Any) -> Rollout:
    """One rollout of the first row with these model turns."""
    return ludus.collect(FOLDER, model=ScriptedModel(list(turns)), limit=1).rollouts[0]


def answer(query: str) -> str:
    return f"```sql\n{query}\n```"


def test_the_right_query_earns_1_after_a_try_with_the_tool():
    query = "SELECT SUM(amount) FROM orders WHERE paid = 0"
    rollout = play({"call": "run_query", "arguments": {"sql": query}}, answer(query))
    assert rollout.response.output[1]["output"] == "[[95]]"
    assert rollout.reward == 1.0


def test_the_right_number_without_its_query_earns_0():
    assert play(answer("SELECT 95")).reward == 0.0


def test_a_query_can_neither_write_nor_open_files_nor_run_for_ever():
    endless = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT MAX(x) FROM n"
    for query in ("DELETE FROM orders", "ATTACH '/tmp/other.db' AS other", endless):
        rollout = play({"call": "run_query", "arguments": {"sql": query}}, answer(query))
        assert any(word in rollout.response.output[1]["output"] for word in ("not authorized", "interrupted"))
        assert rollout.reward == 0.0
        assert rollout.tool_errors == []  # the model's mistake, not one of the tool


def test_comparisons_that_keep_sqlite_busy_for_minutes_earn_0_and_stay_in_the_group():
    numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 50000)"
    text = f"('{'a' * 4000}' || x)"
    like = f"SELECT COUNT(*) FROM n WHERE {text} LIKE '%{'a' * 190}b'"
    long_like = f"SELECT COUNT(*) FROM n WHERE {text} LIKE '%{'a' * 2000}b'"
    instr = f"SELECT COUNT(*) FROM n WHERE INSTR({text}, '{'a' * 2000}b')"
    for query in (like, long_like, instr):
        rollout = play({"call": "run_query", "arguments": {"sql": f"{numbers} {query}"}}, answer(f"{numbers} {query}"))
        assert "This query does not run" in rollout.response.output[1]["output"]
        assert rollout.reward == 0.0


def test_a_broken_expected_query_fails_the_rollout_and_invents_no_reward():
    row = {"responses_create_params": {"input": "?"}, "databases": ["", ""], "expected_query": "SELECT x FROM nowhere"}
    (rollout,) = ludus.collect(FOLDER, model=ScriptedModel([answer("SELECT 1")]), input=[row]).failures()
    assert rollout.reward is None
    assert rollout.error is not None
    assert rollout.error.stage == "verify"
