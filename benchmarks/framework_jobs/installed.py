"""The frameworks of the comparison, and a virtual environment for each under `.venv-frameworks`."""

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2] / ".venv-frameworks"


PLAYED = ("single", "tool", "ten", "errors", "kill")


@dataclass(frozen=True)
class Framework:
    """How a framework is installed, and which jobs it plays."""

    title: str
    distribution: str
    packages: tuple[str, ...] = ()
    python: str | None = None  #: a command that makes the environment; None: this Python
    any_python: bool = False  #: install although the newest release asks for a newer Python
    jobs: tuple[str, ...] = PLAYED
    made_by: str = ""  #: the framework whose environment this one uses


FRAMEWORKS = {
    "ludus": Framework("Ludus", "ludus-gym", jobs=(*PLAYED, "harness")),
    "verifiers": Framework("verifiers", "verifiers", ("verifiers",)),
    "inspect": Framework("Inspect", "inspect-ai", ("inspect-ai", "openai")),
    "nemo_gym": Framework("NeMo Gym", "nemo-gym", ("nemo-gym",), "python3.13", any_python=True),
    "openenv": Framework("OpenEnv", "openenv", ("openenv", "openai"), jobs=("single", "tool", "ten", "errors")),
    "harbor": Framework(
        "Harbor", "harbor", ("harbor", "mini-swe-agent", "mcp"), "python3.13", jobs=(*PLAYED, "harness")
    ),
    "program": Framework("mini-swe-agent alone", "mini-swe-agent", jobs=("harness",), made_by="harbor"),
}


def python_of(name: str) -> Path | None:
    """The Python that runs a framework, installed first if need be; None with one line that says why not."""
    framework = FRAMEWORKS[name]
    if framework.made_by:
        return python_of(framework.made_by)
    if not framework.packages:
        return Path(sys.executable)
    folder = ROOT / name
    python = folder / "bin" / "python"
    if (folder / "installed").exists():
        return python
    base = shutil.which(framework.python) if framework.python else sys.executable
    if base is None:
        print(f"{framework.title}: left out: it needs {framework.python} on the PATH")
        return None
    print(f"{framework.title}: installing {' '.join(framework.packages)} into {folder}", flush=True)
    subprocess.run([base, "-m", "venv", str(folder)], check=True)
    try:
        _install(python, framework)
    except subprocess.CalledProcessError as error:
        print(f"{framework.title}: left out: {' '.join(error.cmd)}: {error.stderr.strip().splitlines()[-1]}")
        return None
    (folder / "installed").touch()
    return python


def _install(python: Path, framework: Framework) -> None:
    """Install the newest release; where its Python is too old for it, without that check."""
    packages = list(framework.packages)
    if framework.any_python:
        _run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-requires-python", *packages])
        code = f"import importlib.metadata as m; print(*m.requires({framework.distribution!r}), sep='\\n')"
        needed = _run([str(python), "-c", code]).splitlines()
        packages = [requirement for requirement in needed if "extra ==" not in requirement]
    uv = Path(sys.executable).with_name("uv")
    if uv.exists():
        words = [str(uv), "pip", "install", "--quiet", "--native-tls", "--compile-bytecode", "--python", str(python)]
    else:
        words = [str(python), "-m", "pip", "install", "--quiet"]
    _run([*words, *packages])


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def version_of(name: str, python: Path) -> str:
    """The installed version of a framework."""
    return _run(
        [str(python), "-c", f"import importlib.metadata as m; print(m.version({FRAMEWORKS[name].distribution!r}))"]
    ).strip()
