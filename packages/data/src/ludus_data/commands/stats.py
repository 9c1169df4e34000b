"""`ludus data stats`: what a dataset holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from ludus.cli.commands import Argument, Option
from ludus_data.commands.progress import print_columns, print_values, reading


def stats(
    files: Annotated[
        list[Path], Argument(metavar="FILE...", help="Files of rows or rollouts, or folders of collections.")
    ],
    tokenizer: Annotated[
        str | None, Option(metavar="NAME", help="Count tokens: a folder or a name for transformers.")
    ] = None,
    json_: Annotated[bool, Option("--json", help="Print the statistics as JSON and nothing else.")] = False,
) -> None:
    """Show lengths and fields of rows. For rollouts: rewards, and how difficult the tasks are.

    Quantiles are exact within 5 %. Tokens are those of the prompt's text, without a chat template.

    Exit code: 0 done, 2 a mistake in the command.

    Example: ludus data stats train.jsonl --tokenizer ./my-model
    """
    from ludus.cli.screen import safe_json
    from ludus_data.stats import stats as stats_of

    with reading("reading", quiet=json_) as tick:
        statistics = stats_of(files, tokenizer, tick)
    if json_:
        print(safe_json(statistics))
    else:
        _show(statistics)


def _show(statistics: dict[str, Any]) -> None:
    size = f"{statistics['bytes'] / 1e6:,.1f} MB"
    environments = {f"rows of {name}": count for name, count in statistics["environments"].items()}
    print_values("dataset", {"rows": statistics["rows"], "size": size, **environments})
    quantiles = ["count", "mean", "p50", "p95", "max"]
    lengths = [[name, *_cells(stats, quantiles)] for name, stats in statistics["prompt"].items() if stats["count"]]
    print_columns("length of the prompt", ["in", *quantiles], lengths)
    print_columns(
        "fields", ["field", "rows", "empty", "types", "distinct", "range or length"], _fields(statistics["fields"])
    )
    rollouts = statistics.get("rollouts")
    if rollouts is not None:
        reward = rollouts["reward"]
        values: dict[str, object] = dict(rollouts["outcomes"])
        if reward["count"]:
            values["mean reward"] = f"{reward['mean']:.3f} ({reward['min']:g} to {reward['max']:g})"
        print_values("rollouts", values)
        tasks = [[name, f"{count:,}"] for name, count in rollouts["mean_reward_of_tasks"].items()]
        print_columns("difficulty", ["mean reward of a task", "tasks"], tasks)


def _fields(fields: dict[str, Any]) -> list[list[str]]:
    lines = []
    for name, stats in fields.items():
        numbers, lengths = stats.get("number"), stats.get("length")
        distinct = (
            f"{stats['distinct']:,}{'' if stats['distinct_is_exact'] else ' or more'}" if "distinct" in stats else "-"
        )
        size = f"{numbers['min']:g} to {numbers['max']:g}" if numbers else ""
        size = size or (f"{lengths['p50']:,} long, up to {lengths['max']:,}" if lengths else "-")
        lines.append(
            [name, f"{stats['rows']:,}", f"{stats['empty']:,}", ", ".join(stats["types"]) or "-", distinct, size]
        )
    return lines


def _cells(values: dict[str, float], names: list[str]) -> list[str]:
    return [f"{values[name]:,}" for name in names]
