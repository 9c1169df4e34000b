"""`ludus envs`: list the environments without running their code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ludus.cli.commands import Option

if TYPE_CHECKING:
    from rich.console import Console

    from ludus.dataset import Dataset

#: Terminals with fewer columns get a few lines per environment instead of a table.
TABLE_WIDTH = 150


def envs(
    json_: Annotated[bool, Option("--json", help="Print the list as JSON.")] = False,
    nemo_gym: Annotated[
        str, Option(metavar="CHECKOUT", help="List the resources servers of a checkout of NeMo Gym instead.")
    ] = "",
) -> None:
    """List environments by domain. Each line says what the environment needs.

    With --nemo-gym, list the resources servers of a checkout: what each needs, and whether it runs here. None of their
    code is run.

    Example: ludus envs --json

    Example: ludus envs --nemo-gym ~/Gym
    """
    if nemo_gym:
        from ludus.cli.needs import list_environments

        list_environments("nemo-gym", nemo_gym, json_)
        return
    from ludus.cli.screen import safe_json, stdout_console
    from ludus.folder import folders

    environments = [_described(name, folder) for name, folder in sorted(folders().items())]
    if json_:
        print(safe_json(environments))
        return
    environments.sort(key=_domain)  # a stable sort: by name within a domain
    console = stdout_console()
    if console.width >= TABLE_WIDTH:
        _table(console, environments)
    else:
        _lines(console, environments)


def _described(name: str, folder: Path) -> dict[str, Any]:
    """The content of `environment.yaml`, or the error in it."""
    from ludus.errors import UserError
    from ludus.folder import read_file

    try:
        file = read_file(folder)
    except UserError as error:
        return {"name": name, "path": str(folder), "error": str(error)}
    datasets = [_dataset(dataset, folder) for dataset in file.datasets]
    about = {"domain": file.domain, "description": file.description, "value": file.value}
    argument = {"argument": file.argument} if file.argument else {}
    needs = {"needs": file.needs} if file.needs else {}
    return {"name": name, **argument, **about, **needs, "path": str(folder), "datasets": datasets}


def _dataset(dataset: Dataset, folder: Path) -> dict[str, Any]:
    from ludus.dataset import count_rows

    if dataset.path is None:
        return {"name": dataset.name, "generated": True, "licence": dataset.licence}
    if dataset.on_hub:
        return {"name": dataset.name, "hub": str(dataset.path), "licence": dataset.licence}
    path = folder / dataset.path
    return {"name": dataset.name, "rows": count_rows(path), "licence": dataset.licence, "path": str(path)}


def _table(console: Console, environments: list[dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from ludus.cli.screen import text

    table = Table(box=SIMPLE_HEAD, show_edge=False, expand=True)
    table.add_column("environment", style="bold", overflow="fold", max_width=48)
    table.add_column("domain")
    table.add_column("description", ratio=1)
    table.add_column("data", no_wrap=True)
    table.add_column("licence", max_width=20)
    for place, environment in enumerate(environments):
        if place and _domain(environments[place - 1]) != _domain(environment):
            table.add_section()
        if "error" in environment:
            table.add_row(text(environment["name"]), "", text(f"broken: {environment['error']}", "red"))
        else:
            data, licences = _data(environment)
            description = text("\n".join(filter(None, (environment["description"], _needs(environment)))))
            table.add_row(
                text(_typed_name(environment)), text(environment["domain"]), description, text(data), text(licences)
            )
    console.print(table)


def _lines(console: Console, environments: list[dict[str, Any]]) -> None:
    from ludus.cli.screen import emit, show_block, text

    for environment in environments:
        title = text(_typed_name(environment), "bold")
        if "error" in environment:
            emit(console, title)
            show_block(console, text(f"broken: {environment['error']}", "red"))
            continue
        emit(console, title.append_text(text(f"  {environment['domain']}", "cyan")))
        if environment["description"]:
            show_block(console, text(environment["description"]))
        if needs := _needs(environment):
            show_block(console, text(needs))
        data, licences = _data(environment)
        show_block(console, text(", ".join(part for part in (data.replace("\n", ", "), licences) if part), "dim"))


def _domain(environment: dict[str, Any]) -> str:
    """The domain; empty for an environment whose file cannot be read."""
    return str(environment.get("domain", ""))


def _needs(environment: dict[str, Any]) -> str:
    """What to install first, with the commands; nothing if the environment needs no package or program of others."""
    needs = environment.get("needs", {})
    return f"needs {', '.join(f'{name} ({command})' for name, command in needs.items())}" if needs else ""


def _typed_name(environment: dict[str, Any]) -> str:
    """The name as typed: `gymnasium[:ID]` if the environment takes an argument."""
    return (
        f"{environment['name']}[:{environment['argument'].upper()}]"
        if environment.get("argument")
        else str(environment["name"])
    )


def _data(environment: dict[str, Any]) -> tuple[str, str]:
    """The datasets with their row counts, and their licences."""
    datasets = environment["datasets"]
    return "\n".join(f"{dataset['name']}: {_size(dataset)}" for dataset in datasets) or "none", ", ".join(
        sorted({d["licence"] for d in datasets})
    )


def _size(dataset: dict[str, Any]) -> str:
    if "hub" in dataset:
        return "on the hub"
    if dataset.get("generated"):
        return "generated"
    return "missing" if dataset["rows"] is None else f"{dataset['rows']:,} row{'' if dataset['rows'] == 1 else 's'}"
