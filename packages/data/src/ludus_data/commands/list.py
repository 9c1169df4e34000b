"""`ludus data list`: datasets on the Hugging Face hub, or the files of one."""

from __future__ import annotations

from typing import Annotated, Any

from ludus.cli.commands import Argument, Option
from ludus_data.commands.progress import print_columns


def list_(
    what: Annotated[
        str | None, Argument(metavar="[OWNER | OWNER/NAME]", help="Whose datasets, or whose files, to list.")
    ] = None,
    search: Annotated[str | None, Option("--search", "-s", help="Only datasets with this word.")] = None,
    limit: Annotated[int, Option(min=1, max=10_000, help="How many datasets to list.")] = 50,
    json_: Annotated[bool, Option("--json", help="Print the list as JSON and nothing else.")] = False,
) -> None:
    """List datasets on the Hugging Face hub. With a name: the files of that dataset.

    Example: ludus data list nvidia --search Nemotron-RL

    The files of a dataset: ludus data list openai/gsm8k
    """
    from ludus.cli.screen import prints_to_stderr, safe_json
    from ludus.errors import UserError
    from ludus_data.transfer import list_datasets, list_files

    if what is None and search is None:
        raise UserError("name an owner, or a word with --search", "Example: ludus data list nvidia")
    listing: Any
    with prints_to_stderr(json_):
        if what is not None and "/" in what:
            listing = list_files(what)
        else:
            owner = what.removeprefix("hf:") if what is not None else None
            listing = [dataset.as_json() for dataset in list_datasets(owner, search, limit)]
    if json_:
        print(safe_json(listing))
    elif isinstance(listing, dict):
        print_columns(f"{listing['dataset']} at {listing['revision']}", ["file"], [[file] for file in listing["files"]])
    else:
        names = ("name", "private", "downloads", "changed")
        lines = [[str(dataset[name]) for name in names] for dataset in listing]
        print_columns("datasets", list(names), lines or [["none", "", "", ""]])
