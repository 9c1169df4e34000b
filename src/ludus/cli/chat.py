"""`ludus chat`: take part in a rollout by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ludus.cli.commands import Argument, Exit, Option
from ludus.runtime.option_limits import MAX_INT64

if TYPE_CHECKING:
    from ludus.cli.keyboard import Keyboard
    from ludus.environment import Environment
    from ludus.model import Model

INTERRUPTED = 130

Row = dict[str, Any]


def chat(
    environment: Annotated[str, Argument(metavar="ENV", help="Name or folder of an environment.")],
    model: Annotated[
        str | None, Option("--model", "-m", help="As in ludus collect; without it you play the model.")
    ] = None,
    row: Annotated[int, Option("--row", min=1, help="The row to play, counted from 1.")] = 1,
    input: Annotated[
        Path | None, Option("--input", "-i", help="Rows, as for ludus collect; default: example rows.")
    ] = None,
    dataset: Annotated[str | None, Option("--dataset", "-d", help="Which dataset to use.")] = None,
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="PART.KEY=VALUE", help="A setting of resources, agent, model, limits or data."),
    ] = None,
    seed: Annotated[int, Option(min=-MAX_INT64, max=MAX_INT64, help="The seed of the rollout.")] = 0,
) -> None:
    """Play one rollout by hand and see its verdict.

    Without --model you take the model's turns: call tools, then answer, or make moves in a game. With --model you watch
    the model and can send it more messages. A text of several lines: end a line with a backslash, open a block with
    ``` and close it, or type /paste, the lines, and /end. /help lists all commands.

    Example: ludus chat example_session_state_mgmt --row 2
    """
    from ludus.cli.keyboard import Keyboard
    from ludus.data.rows import Rows
    from ludus.environment import Environment
    from ludus.errors import UserError
    from ludus.models import open_model
    from ludus.runtime.settings import parse_assignments

    settings = parse_assignments(set_ or [])
    model_settings = {key[6:]: settings.pop(key) for key in list(settings) if key.startswith("model.")}
    if model is None and model_settings:
        raise UserError(f"--set model.{next(iter(model_settings))} needs a model", "Name one with --model")
    if input is not None and dataset is not None:
        raise UserError("--input and --dataset cannot be used together", "Leave one of them out")
    if str(input) in ("-", "/dev/stdin"):
        raise UserError("ludus chat reads your turns from standard input, not rows", "Name a file: --input FILE")
    loaded = Environment.load(environment)
    loaded.configure(settings)
    if model is None and getattr(loaded.agent.config, "user", "") is None:
        raise UserError("no model plays the user (agent.user is null)", "Name a model: --set agent.user=SPEC")
    chosen, _ = Rows(input or loaded.rows(dataset), loaded.task, seed=seed, fill=loaded.with_prompt).nth(row)
    opened = open_model(model, model_settings) if model is not None else None
    with Keyboard() as keyboard:
        code = _play(loaded, chosen, opened, seed, keyboard)
    raise Exit(code)


def _play(environment: Environment, row: Row, model: Model | None, seed: int, keyboard: Keyboard) -> int:
    """Play the rollout and print its verdict. The exit code is 1 if the rollout failed."""
    import asyncio

    from ludus.agents.person import seat_person
    from ludus.cli.chat_rollout import ChatScreen
    from ludus.cli.screen import show_verdict, stdout_console
    from ludus.collection.forgotten_tools import forgotten_tools
    from ludus.collection.single import play_one

    screen = ChatScreen(stdout_console(), keyboard, row, as_model=model is None)
    tools = row["responses_create_params"].get("tools") or ()
    for warning in forgotten_tools(environment, [str(tool.get("name")) for tool in tools]):
        screen.say(f"warning: {warning}")
    if environment.resources.by_group:
        screen.say("This environment judges all answers to a task together: your answer is a group of one.")
    model = seat_person(environment, screen, model)
    try:
        rollout = asyncio.run(play_one(environment, row, model, seed))
    except (KeyboardInterrupt, asyncio.CancelledError):
        screen.say("left without a verdict; the session is closed")
        return 0 if screen.left else INTERRUPTED
    show_verdict(screen.console, rollout.to_row())
    return 1 if rollout.error is not None else 0
