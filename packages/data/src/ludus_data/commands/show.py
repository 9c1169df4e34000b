"""`ludus data show`: read rows in the terminal."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ludus.cli.commands import Argument, Option
from ludus_data.commands.progress import print_columns

if TYPE_CHECKING:
    from ludus.record import Row

_PREVIEW = 80


def show(
    file: Annotated[Path, Argument(metavar="FILE", help="A file of rows; - is standard input.")],
    number: Annotated[
        int | None, Argument(metavar="N", min=1, help="The row with this number; default: list them.")
    ] = None,
    limit: Annotated[int, Option("--limit", min=1, help="How many rows to list.")] = 20,
    json_: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Read rows in the terminal. Without N they are listed; with N a row has its prompt, tools and fields.

    Exit code: 0 done, 2 a mistake in the command or a line that is no row.

    Example: ludus data show train.jsonl 3
    """
    from ludus.cli.screen import safe_json, stdout_console
    from ludus.errors import UserError
    from ludus_data.inputs import Inputs

    rows = Inputs([file]).rows()
    if number is None:
        _list([row for _, row in islice(rows, limit)], as_json=json_)
        return
    count = 0
    for count, (_, row) in enumerate(rows, start=1):
        if count == number:
            if json_:
                print(safe_json(row))
            else:
                _show_row(stdout_console(), row)
            return
    raise UserError(f"{file} has no row {number}", f"Choose a number from 1 to {count}")


def _list(rows: list[Row], *, as_json: bool) -> None:
    from ludus.cli.screen import safe_json

    if as_json:
        print(safe_json(rows))
        return
    lines = [[str(number), _environment(row), _preview(row)] for number, row in enumerate(rows, start=1)]
    print_columns("rows", ["row", "environment", "prompt"], lines)


def _environment(row: Row) -> str:
    reference = row.get("agent_ref")
    return str(reference.get("name") or "-") if isinstance(reference, dict) else "-"


def _preview(row: Row) -> str:
    """The end of the prompt, which says more than its instructions."""
    from ludus.cli.screen import one_line
    from ludus_data.row_text import prompt_text

    text = one_line(prompt_text(row)[-4 * _PREVIEW :])
    return text if len(text) <= _PREVIEW else f"... {text[-_PREVIEW:]}"


def _show_row(console: Any, row: Row) -> None:
    from ludus.cli.screen import emit, pretty, show_block, show_item, show_pairs, text

    params = row.get("responses_create_params")
    params = params if isinstance(params, dict) else {}
    if isinstance(params.get("instructions"), str):
        show_item(console, {"role": "system", "content": params["instructions"]})
    prompt = params.get("input")
    items = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            show_item(console, item)
        else:
            show_block(console, text(pretty(item)))
    tools = params.get("tools")
    if isinstance(tools, list) and tools:
        names = [str(tool.get("name") or tool.get("type")) if isinstance(tool, dict) else "?" for tool in tools]
        emit(console, text("tools", "bold"))
        show_block(console, text(", ".join(names)))
    hidden = ("input", "tools", "instructions")
    show_pairs(console, "request", {name: value for name, value in params.items() if name not in hidden})
    show_pairs(console, "fields", {name: value for name, value in row.items() if name != "responses_create_params"})
