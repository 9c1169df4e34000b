"""`ludus merge`: join the shards of a collection into one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ludus.cli.commands import Argument, Exit, Option
from ludus.cli.signals import INTERRUPTED, interrupt_on_sigterm

if TYPE_CHECKING:
    from ludus.cli.progress import Display
    from ludus.collection.merging import Merged


def merge(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="The folders of the shards.")],
    output: Annotated[Path, Option("--output", "-o", metavar="FOLDER", help="The folder to make.")],
    partial: Annotated[
        bool, Option("--partial", help="Accept missing shards, and shards that were stopped early.")
    ] = False,
    json_: Annotated[bool, Option("--json", help="Print the summary as JSON and nothing else.")] = False,
) -> None:
    """Join the shards of a collection into one run. Its metrics are those of all rollouts.

    The shards stay as they are. A duplicated line counts once. The folder appears when the run in it is complete.

    Example: ludus merge runs/shard-* --output runs/all
    """
    from ludus.cli.progress import Display
    from ludus.cli.screen import safe_json
    from ludus.collection.merging import merge as merge_runs

    display = Display(quiet=json_)
    interrupt_on_sigterm()
    try:
        merged = merge_runs(runs, output, partial=partial, tick=lambda share: display.show_share("merging", share))
    except KeyboardInterrupt:
        display.close()
        display.say(f"stopped: {output} was not written, and the shards are unchanged")
        raise Exit(INTERRUPTED) from None
    finally:
        display.close()
    if json_:
        print(safe_json(merged.as_json()))
        return
    _show(merged, display)


def _show(merged: Merged, display: Display) -> None:
    from ludus.cli.screen import facts_table, stdout_console

    if merged.missing_shards:
        named = ", ".join(merged.missing_shards[:10]) + (", ..." if len(merged.missing_shards) > 10 else "")
        count = len(merged.missing_shards)
        display.say(f"warning: {count:,} {'shard is' if count == 1 else 'shards are'} missing: {named}")
    if merged.missing_rollouts:
        display.say(f"warning: the shards lack {merged.missing_rollouts:,} of their rollouts")
    facts: list[tuple[str, object]] = list(merged.counts.items())
    left_out = (("duplicated lines left out", merged.duplicates), ("torn lines left out", merged.torn))
    facts += [(name, count) for name, count in left_out if count]
    if merged.mean_reward is not None:
        facts.append(("mean reward", f"{merged.mean_reward:.3f}"))
    stdout_console().print(facts_table(f"{merged.shards:,} shards", [*facts, ("folder", merged.output)]))
