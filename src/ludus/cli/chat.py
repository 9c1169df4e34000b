"""`ludus chat`: take part in a rollout by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ludus.cli.bounds import LARGEST

if TYPE_CHECKING:
    from ludus.cli.keyboard import Keyboard
    from ludus.collection.rows import Rows
    from ludus.environment import Environment
    from ludus.model import Model
    from ludus.rollout import Rollout

INTERRUPTED = 130
A_WEEK = 7 * 24 * 3600.0

Row = dict[str, Any]


def chat(
    environment: Annotated[str, typer.Argument(metavar="ENV", help="Name or folder of an environment.")],
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Who answers; without it you do. As in ludus collect.")
    ] = None,
    row: Annotated[int, typer.Option("--row", min=1, help="Which row to play, counted from 1.")] = 1,
    input: Annotated[Path | None, typer.Option("--input", "-i", help="Rows as JSONL; default: its examples.")] = None,
    dataset: Annotated[str | None, typer.Option("--dataset", "-d", help="Which of its datasets to use.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PART.KEY=VALUE", help="A setting of resources, agent, model, limits or data."),
    ] = None,
    seed: Annotated[int, typer.Option(min=-LARGEST, max=LARGEST, help="Where the rollout's seed is derived from.")] = 0,
) -> None:
    """Play one rollout by hand and see its verdict.

    Without --model you play the model's part: call tools, then answer, or move in a game. With it you watch a model and
    may go on talking.

    Example: ludus chat example_session_state_mgmt --row 2
    """
    from ludus.cli.keyboard import Keyboard
    from ludus.collection.rows import Rows
    from ludus.environment import Environment
    from ludus.errors import UserError
    from ludus.models import open_model
    from ludus.runtime.settings import parse_assignments

    settings = parse_assignments(set_ or [])
    model_settings = {key[6:]: settings.pop(key) for key in list(settings) if key.startswith("model.")}
    if model is None and model_settings:
        raise UserError(f"--set model.{next(iter(model_settings))} needs a model", "Name one with --model")
    if input is not None and dataset is not None:
        raise UserError("both an input and a dataset were named", "Leave one of --input and --dataset out")
    if str(input) in ("-", "/dev/stdin"):
        raise UserError("standard input is what you type here, and holds no rows", "Name a file: --input FILE")
    loaded = Environment.load(environment)
    loaded.configure(settings)
    if model is None and getattr(loaded.agent.config, "user", "") is None:
        raise UserError("nobody plays the user", "Name a model: --set agent.user=SPEC")
    chosen = _nth_row(Rows(input or loaded.rows(dataset), loaded.task, seed=seed), row)
    opened = open_model(model, model_settings) if model is not None else None
    with Keyboard() as keyboard:
        code = _play(loaded, chosen, opened, seed, keyboard)
    raise typer.Exit(code)


def _nth_row(rows: Rows, number: int) -> Row:
    from ludus.errors import UserError

    count = 0
    for count, (_, row, _) in enumerate(rows, start=1):
        if count == number:
            return row
    if count == 0:
        raise UserError(f"{rows.name} holds no rows", "Name others with --input FILE")
    raise UserError(f"{rows.name} has no row {number}", f"Choose --row from 1 to {count}")


def _play(environment: Environment, row: Row, model: Model | None, seed: int, keyboard: Keyboard) -> int:
    """Play the rollout and show its end; the exit code says whether there was a verdict."""
    import asyncio

    from ludus.cli.conversation import Conversation, PersonModel, PersonPlays, PersonTalks, WatchedModel
    from ludus.cli.screen import screen, show_verdict

    conversation = Conversation(screen(), keyboard, row, plays=model is None)
    if environment.resources.by_group:
        conversation.say("The answers to a task are judged together here: yours will be a group of one.")
    # A person may think for as long as it takes; everything else keeps its deadline.
    patience: dict[str, Any] = {"rollout": A_WEEK}
    if model is None:
        model, patience["model"] = PersonModel(conversation), A_WEEK
        environment.agent = PersonPlays(environment.agent, conversation)
    else:
        model = WatchedModel(model, conversation)
        environment.agent = PersonTalks(environment.agent, conversation)
    environment.limits = environment.limits.model_copy(update=patience)
    try:
        rollout = asyncio.run(_one_rollout(environment, row, model, seed))
    except (KeyboardInterrupt, asyncio.CancelledError):
        conversation.say("left without a verdict; the session is closed")
        return 0 if conversation.left else INTERRUPTED
    show_verdict(conversation.console, rollout.to_row())
    return 1 if rollout.error is not None else 0


async def _one_rollout(environment: Environment, row: Row, model: Model, seed: int) -> Rollout:
    """A collection of one task, which opens and closes everything as every collection does."""
    from ludus.collection.collector import Collector, Plan
    from ludus.collection.rows import Rows

    played: list[Rollout] = []

    async def keep(rollout: Rollout) -> None:
        played.append(rollout)

    rows = Rows([row], environment.task)
    collector = Collector(Plan(rows, lambda _: environment, model, concurrency=1, seed=seed), sink=keep)
    collector.progress.total = 1
    await collector.run()
    return played[0]
