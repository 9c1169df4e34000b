"""Rollouts in the terminal: a table with a line for each, or one rollout in full.

The file may come from another program: a field that is missing or has another type is shown as absent.
"""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ludus.cli.screen import (
    content_text,
    emit,
    number,
    one_line,
    reward_style,
    show_block,
    show_item,
    show_pairs,
    show_verdict,
    text,
)
from ludus.outcome import UNREWARDED
from ludus.record import is_input

Row = dict[str, Any]

#: Terminals with fewer columns get a table without ids, turns and tokens.
FULL_TABLE_WIDTH = 100
#: Terminals with fewer columns get lines instead of a table.
TABLE_WIDTH = 50

_OUTCOME_STYLES = {"completed": "green", "failed": "red", "masked": "yellow"}
_RECORD = {"rollout_id", "task_id", "repeat", "attempt", "outcome", "reward", "agent_ref", "stop_reason"}
_RECORD |= {"rollout_seed", "response", "usage", "timings", "model_calls", "responses_create_params"}
_RECORD |= {"parent", "branch_turn", "session_seed", "receipt", "task_fields"}
_RECORD |= {"verdict_fields", "reward_components", "turn_rewards", "mask", "stage", "kind", "cause", "where"}
_RECORD |= {"tool_errors", "turn_credit", "step_times"}


def summary(position: int, row: Row) -> Row:
    """The table's values for one rollout."""
    failed = row.get("outcome") in UNREWARDED
    calls = row.get("model_calls")
    usage = _object(row.get("usage")) or _object(_object(row.get("response")).get("usage"))
    return {
        "number": position,
        "rollout_id": row.get("rollout_id"),
        "outcome": row.get("outcome"),
        "reward": row.get("reward"),
        "end": f"{row.get('stage')}: {row.get('kind')}" if failed else row.get("stop_reason"),
        "turns": len(calls) if isinstance(calls, list) else None,
        "input_tokens": usage.get("input_tokens"),
        "output_tokens": usage.get("output_tokens"),
        "about": str(row.get("cause")) if failed else _asked(row),
        "where": row.get("where") if failed else None,
    }


def show_summaries(console: Console, rows: list[Row]) -> None:
    """Print summaries as a table, or as lines on a narrow terminal."""
    if console.width < TABLE_WIDTH:
        _lines(console, rows)
    else:
        _table(console, rows)


def _lines(console: Console, rows: list[Row]) -> None:
    for row in rows:
        line = text(f"{row['number']}  ").append_text(_outcome(row))
        if row["reward"] is not None:
            line.append_text(text(f", reward {number(row['reward'])}"))
        emit(console, line.append_text(text(f", {_or_dash(row['end'])}")))
        if about := _about(row):
            show_block(console, text(about, "dim"))


def _table(console: Console, rows: list[Row]) -> None:
    wide = console.width >= FULL_TABLE_WIDTH
    table = Table(box=SIMPLE_HEAD, show_edge=False, expand=True)
    table.add_column("#", justify="right", no_wrap=True)
    if wide:
        table.add_column("rollout", overflow="fold", max_width=24)
    table.add_column("outcome", no_wrap=True)
    table.add_column("reward", justify="right", no_wrap=True)
    table.add_column("end", overflow="fold", max_width=24 if wide else 16)
    if wide:
        table.add_column("turns", justify="right", no_wrap=True)
        table.add_column("tokens", justify="right", no_wrap=True)
    table.add_column("because" if rows[0]["outcome"] in UNREWARDED else "asked", no_wrap=True, ratio=1)
    for row in rows:
        reward = text(number(row["reward"]), reward_style(row["reward"]))
        cells = [text(row["number"]), _outcome(row), reward, text(_or_dash(row["end"])), text(_about(row))]
        if wide:
            cells.insert(1, text(_or_dash(row["rollout_id"])))
            cells[5:5] = [text(_or_dash(row["turns"])), text(_tokens(row))]
        table.add_row(*cells)
    console.print(table)


def _about(row: Row) -> str:
    """What a rollout was asked, or why it failed. The author's line comes first: a narrow table cuts the end."""
    return one_line(f"{row['where']}: {row['about']}" if row["where"] else row["about"])


def show_rollout(console: Console, row: Row) -> None:
    """Print one rollout in full."""
    from ludus.agents.typed_calls import signature  # imported here: a table of rollouts does not need it

    console.rule(text(row.get("rollout_id") or "rollout", "bold"), align="left", style="dim")
    offered = _object(row.get("response")).get("tools") or _object(row.get("responses_create_params")).get("tools")
    tools = [signature(entry) for entry in _items(offered)]
    if tools:
        emit(console, text(f"tools: {', '.join(tools)}", "dim"))
    for item in prompt_of(row):
        show_item(console, item)
    output = _items(_object(row.get("response")).get("output"))
    turn_rewards = _turn_rewards(row, output)
    for position, item in enumerate(output):
        show_item(console, item)
        if position in turn_rewards:
            emit(console, text(f"reward {number(turn_rewards[position])}", "dim"))
    console.rule(style="dim")
    show_verdict(console, row)
    named = row.get("verdict_fields")
    verdict = set(map(str, named)) if isinstance(named, list) else set()
    fields = {name: value for name, value in row.items() if name not in _RECORD | verdict}
    show_pairs(console, "task", fields)
    timings = {stage: value for stage, value in _object(row.get("timings")).items() if stage != "steps"}
    show_pairs(console, "time", {stage: _duration(value) for stage, value in timings.items()})
    show_pairs(console, "tokens", _object(row.get("usage")) or _object(_object(row.get("response")).get("usage")))
    show_pairs(console, "record", _record(row))


def prompt_of(row: Row) -> list[Row]:
    """The prompt of a row, as items."""
    asked = _object(row.get("responses_create_params"))
    prompt = (
        [{"role": "user", "content": asked["input"]}]
        if isinstance(asked.get("input"), str)
        else _items(asked.get("input"))
    )
    if isinstance(asked.get("instructions"), str):
        prompt.insert(0, {"role": "system", "content": asked["instructions"]})
    return prompt


def _turn_rewards(row: Row, output: list[Row]) -> dict[int, Any]:
    """The rewards of a game's turns by the position of each turn's last item. An empty answer has no item."""
    calls, rewards, ends, at = _items(row.get("model_calls")), row.get("turn_rewards"), {}, 0
    if not isinstance(rewards, list) or len(rewards) != len(calls):
        return {}
    for call, reward in zip(calls, rewards, strict=True):
        size = call.get("items")
        if not isinstance(size, int):
            return {}
        while at < len(output) and is_input(output[at]):
            at += 1
        at += size
        if size:
            ends[at - 1] = reward
    return ends


def _record(row: Row) -> Row:
    environment, model = _object(row.get("agent_ref")).get("name"), _object(row.get("response")).get("model")
    known = {"environment": environment, "model": model, "task id": row.get("task_id")}
    known |= {"repeat": row.get("repeat"), "attempt": row.get("attempt"), "seed": row.get("rollout_seed")}
    return {name: value for name, value in known.items() if value is not None}


def _asked(row: Row) -> str:
    """The last user message of the prompt; without any, the first message."""
    prompt = prompt_of(row)
    users = [item for item in prompt if item.get("role") == "user"]
    return content_text((users[-1:] or prompt[:1] or [{}])[0].get("content"))


def _tokens(row: Row) -> str:
    if row["input_tokens"] is None and row["output_tokens"] is None:
        return "-"
    return f"{_or_dash(row['input_tokens'])}/{_or_dash(row['output_tokens'])}"


def _duration(seconds: Any) -> str:
    if not isinstance(seconds, (int, float)):
        return "-"
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.2f} ms"


def _outcome(row: Row) -> Text:
    return text(_or_dash(row["outcome"]), _OUTCOME_STYLES.get(str(row["outcome"]), ""))


def _or_dash(value: Any) -> str:
    return "-" if value is None else str(value)


def _object(value: Any) -> Row:
    return value if isinstance(value, dict) else {}


def _items(value: Any) -> list[Row]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
