"""`ludus compare`: is one collection better than another, and how certain is that?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ludus.cli.commands import Argument, Option

if TYPE_CHECKING:
    from ludus.compare.comparison import Comparison
    from ludus.compare.scores import Scores


def compare(
    a: Annotated[Path, Argument(metavar="A", help="A collection's folder, or a file of rollouts.")],
    b: Annotated[Path, Argument(metavar="B", help="Another collection of the same tasks.")],
    pass_: Annotated[
        float | None,
        Option("--pass", metavar="REWARD", help="The lowest reward that is a pass; default: as in the runs."),
    ] = None,
    json_: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Compare the rewards of two collections, task by task.

    Example: ludus compare runs/before runs/after
    """
    from ludus.cli.screen import safe_json, say
    from ludus.compare.comparison import compare as compare_scores
    from ludus.compare.scores import Scores, warnings_about
    from ludus.errors import UserError

    scores = Scores.read(a, pass_), Scores.read(b, pass_)
    comparison = compare_scores(*scores)
    if comparison is None:
        raise UserError(f"no task has a reward in both {a} and {b}", "Collect both from the same rows")
    sides = {name: _side(*pair) for name, pair in (("a", scores), ("b", scores[::-1]))}
    warnings = warnings_about(*scores)
    lost = max(side["tasks_without_reward"] for side in sides.values())
    if lost * 100 > comparison.tasks:
        warnings.append(
            f"up to {lost:,} tasks are left out because A or B has no reward for them; they may be the hard ones"
        )
    rewards = {"a": scores[0].reward, "b": scores[1].reward}
    if json_:
        print(safe_json(_as_json(comparison, {"a": str(a), "b": str(b)}, sides, rewards, warnings)))
        return
    for warning in warnings:
        say(f"warning: {' '.join(warning.split())}")
    _show(comparison, (a, b), sides, rewards)


def _side(own: Scores, other: Scores) -> dict[str, int]:
    """The counts of one collection."""
    tasks = own.tasks
    return {
        "scored": own.scored,
        "failed": own.failed,
        "masked": own.masked,
        "tasks": len(tasks),
        "tasks_only_here": sum(1 for name in tasks if name not in other.tasks),
        "tasks_without_reward": sum(1 for name, task in tasks.items() if name in other.tasks and not task.count),
    }


def _mean(reward: dict[str, Any]) -> str:
    """The mean of all rewards of a collection, and its interval."""
    from ludus.compare.comparison import say

    if reward["mean"] is None:
        return "-"
    spread = f" ({say(reward['ci95'][0])} to {say(reward['ci95'][1])})" if reward["ci95"] else ""
    return f"{say(reward['mean'])}{spread}"


def _as_json(
    comparison: Comparison,
    paths: dict[str, str],
    sides: dict[str, dict[str, int]],
    rewards: dict[str, dict[str, Any]],
    warnings: list[str],
) -> dict[str, Any]:
    means = {
        "a": {"mean_reward": comparison.mean_a, "pass_rate": comparison.pass_rate_a},
        "b": {"mean_reward": comparison.mean_b, "pass_rate": comparison.pass_rate_b},
    }
    return {
        **{name: {"path": paths[name], **sides[name], "reward": rewards[name], **means[name]} for name in ("a", "b")},
        "tasks": comparison.tasks,
        "pass_reward": comparison.pass_reward,
        "difference": comparison.difference,
        "ci95": list(comparison.interval) if comparison.interval is not None else None,
        "mcnemar": comparison.mcnemar,
        "detectable": comparison.detectable,
        "warnings": warnings,
        "sentence": comparison.sentence(),
    }


def _show(
    comparison: Comparison,
    paths: tuple[Path, Path],
    sides: dict[str, dict[str, int]],
    rewards: dict[str, dict[str, Any]],
) -> None:
    from rich.table import Table

    from ludus.cli.screen import emit, stdout_console, text
    from ludus.collection.table import pass_mark
    from ludus.compare.comparison import say

    console = stdout_console()
    table = Table(title=f"{comparison.tasks:,} tasks with a reward in both", title_justify="left")
    table.add_column("")
    for name, path in zip("AB", paths, strict=True):
        table.add_column(text(f"{name}: {path}"), justify="right", overflow="fold")
    for name in sides["a"]:
        table.add_row(name.replace("_", " "), *(f"{side[name]:,}" for side in sides.values()))
    table.add_row("mean of all rewards", *map(_mean, rewards.values()))
    table.add_row("mean reward", say(comparison.mean_a), say(comparison.mean_b))
    table.add_row(
        f"pass rate ({pass_mark(comparison.pass_reward)})", say(comparison.pass_rate_a), say(comparison.pass_rate_b)
    )
    console.print(table)
    interval = comparison.interval
    spread = f" (95 % {say(interval[0])} to {say(interval[1])})" if interval is not None else ""
    emit(console, text(f"B minus A: {say(comparison.difference)}{spread}"))
    if (test := comparison.mcnemar) is not None:
        counts = f"{test['only_b']:,} tasks pass only in B, {test['only_a']:,} only in A"
        emit(console, text(f"McNemar's exact test: p = {test['p']:.3g} ({counts}, by majority)"))
    if comparison.detectable is not None:
        emit(console, text(f"smallest detectable difference with 80 % power: {say(comparison.detectable)}"))
    emit(console, text(comparison.sentence(), "bold"))
