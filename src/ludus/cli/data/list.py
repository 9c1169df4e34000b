"""`ludus data list`: datasets on the Hugging Face hub, or the files of one."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def list_(
    what: Annotated[
        str | None, typer.Argument(metavar="[OWNER | OWNER/NAME]", help="Whose datasets, or whose files, to list.")
    ] = None,
    search: Annotated[str | None, typer.Option("--search", "-s", help="Only datasets with this word.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many datasets to list.")] = 50,
    json_: Annotated[bool, typer.Option("--json", help="Print the list as JSON and nothing else.")] = False,
) -> None:
    """List datasets on the Hugging Face hub, or the files of one dataset.

    Example: ludus data list nvidia --search Nemotron-RL

    The files of a dataset: ludus data list openai/gsm8k
    """
    from ludus.cli.screen import prints_to_stderr, safe_json
    from ludus.data.transfer import list_datasets, list_files
    from ludus.errors import UserError

    if what is None and search is None:
        raise UserError("neither an owner nor a word to search for is given", "Example: ludus data list nvidia")
    found: Any
    with prints_to_stderr(json_):
        if what is not None and "/" in what:
            found = list_files(what)
        else:
            owner = what.removeprefix("hf:") if what is not None else None
            found = [each.as_json() for each in list_datasets(owner, search, limit)]
    if json_:
        print(safe_json(found))
    elif isinstance(found, dict):
        _show(f"{found['dataset']} at {found['revision']}", ["file"], [[each] for each in found["files"]])
    else:
        names = ("name", "private", "downloads", "changed")
        lines = [[str(each[name]) for name in names] for each in found]
        _show("datasets", list(names), lines)


def _show(title: str, columns: list[str], lines: list[list[str]]) -> None:
    from rich.table import Table

    from ludus.cli.screen import one_line, stdout_console, text

    table = Table(title=text(one_line(title)), title_justify="left")
    for name in columns:
        table.add_column(name, overflow="fold")
    for line in lines:
        table.add_row(*(text(one_line(cell)) for cell in line))
    stdout_console().print(table)
