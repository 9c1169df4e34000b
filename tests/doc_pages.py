"""The code blocks of a page of the documentation, and a shell that follows the page from top to bottom.

A page becomes one bash script that runs in an empty folder:

- `bash` blocks are commands. Variables and background processes live until the end of the page.
- `python`, `yaml`, `toml` and `json` blocks whose first line is a comment with a file name are written to that file.
- Other `python` blocks are run as programs. All other blocks are shown and not run.

A comment `<!-- needs: WORD -->` before a block says that the block needs more than the core. With `key` and `vllm` it
runs against a stub of a model server, with a word of `EXTRAS` where that package is installed, with `bubblewrap` where
that sandbox works, and with `harness` where Pi is installed, too. Blocks with any other word are not run, but their
`ludus` commands are parsed and the names that their Python imports from `ludus` are looked up.
"""

from __future__ import annotations

import ast
import importlib
import os
import random
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import forked
import pytest

from ludus.agents.harness.declaration import read_declaration
from ludus.agents.harness.installing import installation
from ludus.cli import command_line
from ludus.sandbox.choice import find

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"

#: The sections of the site that hold written pages.
TUTORIALS = ("environment-tutorials", "training-tutorials", "moving", "contribute")
GUIDES = (
    "about",
    "check",
    "collect",
    "get-started",
    "look",
    "model-server",
    "resources-server",
    "agent-server",
    "data",
    "infrastructure",
    "reference",
    "troubleshooting",
)

#: Pages that the build of the site writes: they may be absent, and are not followed.
GENERATED = frozenset(
    {"reference/cli.md", "reference/configuration.md", "reference/python.md", "troubleshooting/errors.md"}
)

#: What a block may need and the stub of a model server can give.
STUBBED = frozenset({"key", "vllm"})

#: What a block may need, and the package that must be installed to run it.
EXTRAS = {"local": "xllamacpp", "data": "pyarrow", "servers": "fastapi"}

_BLOCK = re.compile(r"^(?:<!-- needs: (?P<needs>\w+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S)
_FILE_NAME = re.compile(r"# ([\w./-]+\.\w+)\n")
_PORT = re.compile(r'(?<=127\.0\.0\.1:)\d{4,5}|(?<=port )\d{4,5}|(?<="port": )\d{4,5}')
_SERVERS = 8  # ports in a row that a page's servers may count up through


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    needs: str | None = None
    line: int = 0

    @property
    def file(self) -> str | None:
        """The name of the file that the block is written to."""
        found = _FILE_NAME.match(self.text) if self.language in ("python", "yaml", "toml", "json") else None
        return found and found[1]

    @property
    def runs(self) -> bool:
        """Whether the test follows the block."""
        if self.needs in ("bubblewrap", "harness"):
            there = self.needs == "bubblewrap" or installation(read_declaration("pi")) is not None
            return there and find("bubblewrap").problem is None
        return self.needs is None or self.needs in STUBBED or self.needs in EXTRAS


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page, in order."""
    return [
        Block(found["language"], found["text"], found["needs"], text.count("\n", 0, found.start()) + 1)
        for found in _BLOCK.finditer(text)
    ]


def name(page: Path) -> str:
    """The name of a page in the report of a test."""
    return page.relative_to(DOCS).as_posix()


def pages(*sections: str) -> list[Path]:
    """The written pages of these sections."""
    found = [page for section in sections for page in sorted((DOCS / section).glob("*.md"))]
    return [page for page in found if name(page) not in GENERATED]


def pages_to_follow(*sections: str) -> list[Path]:
    """The pages of these sections with anything to run."""
    return [page for page in pages(*sections) if any(_acts(block) for block in blocks(page.read_text("utf-8")))]


def _acts(block: Block) -> bool:
    return block.runs and block.language in ("bash", "python")


def code(text: str, language: str) -> list[str]:
    """The texts of a page's blocks in one language."""
    return [block.text for block in blocks(text) if block.language == language]


def follow(page: Path, folder: Path, model_address: str) -> None:
    """Run the page in the folder; AssertionError with the page's line and the output if a block fails."""
    text = page.read_text(encoding="utf-8")
    programs = _programs(folder.parent / f"{folder.name}-programs")
    script = _script(_with_ports(blocks(text), model_address), programs)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "COLUMNS": "120",
        "OPENAI_BASE_URL": f"http://{model_address}/v1",
        "OPENAI_API_KEY": "stub",
        "AZURE_OPENAI_ENDPOINT": f"http://{model_address}",
        "AZURE_OPENAI_API_KEY": "stub",
    }
    log = folder.parent / f"{folder.name}.log"
    with log.open("wb") as output:
        done = subprocess.run(
            ["bash", "-c", script], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    said = log.read_text(encoding="utf-8", errors="replace")
    assert done.returncode == 0, f"{page} stopped after these lines:\n{said[-6000:]}"


def follow_or_skip(page: Path, folder: Path, model_address: str) -> None:
    """Follow the page in a new folder inside `folder`. Skips the test if a package that the page needs is missing."""
    needed = (EXTRAS.get(block.needs or "") for block in blocks(page.read_text(encoding="utf-8")))
    for package in filter(None, needed):
        pytest.importorskip(package, reason=f"the page needs {package}")
    work = folder / "work"
    work.mkdir()
    follow(page, work, model_address)


def check(block: Block) -> None:
    """Parse what cannot be run here: the `ludus` commands of a bash block, the imports of a Python block."""
    if block.language == "bash":
        for words in ludus_commands(block.text):
            accepts(words)
    elif block.language == "python":
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ludus":
                module = importlib.import_module(str(node.module))
                for name in node.names:
                    assert hasattr(module, name.name), f"line {block.line}: no {name.name} in {node.module}"


def ludus_commands(text: str) -> list[list[str]]:
    """The words of each `ludus` command in a shell script, without the name `ludus`."""
    joined = text.replace("\\\n", " ")
    found = re.findall(r"^(?:\w+=\S+ )*ludus ([^\n|&>;]*)", joined, re.MULTILINE)
    return [shlex.split(each, comments=True) for each in found]


def accepts(words: list[str]) -> None:
    """Parse the words as the command line does; an exception if an option does not exist."""
    command: Any = command_line()
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    with command.make_context("ludus", words) as context:
        assert not context.args


def _programs(folder: Path) -> Path:
    """A folder with the commands `ludus` and `gym` of this checkout."""
    folder.mkdir()
    forked.write_program(folder / "ludus")
    forked.write_program(folder / "gym", "ludus_nemo_gym.gym:main")
    return folder


def _script(page: list[Block], programs: Path) -> str:
    lines = ["set -eu -o pipefail", "trap 'code=$?; set +e; kill $(jobs -p) 2> /dev/null; wait; exit $code' EXIT"]
    for number, block in enumerate(block for block in page if block.runs):
        if block.file is not None:
            made = programs / f"{number}.file"
            made.write_text(block.text, encoding="utf-8")
            lines.append(f"cp {made} {shlex.quote(block.file)}")  # a reader makes the folder, as the page says
        elif block.language == "python":
            made = programs / f"{number}.py"
            made.write_text(block.text, encoding="utf-8")
            lines += [f"echo '== line {block.line}'", f"PYTHONPATH=$PWD:${{PYTHONPATH:-}} python {made}"]
        elif block.language == "bash":
            lines += [f"echo '== line {block.line}'", block.text]
    return "\n".join(lines)


def _with_ports(page: list[Block], model_address: str) -> list[Block]:
    """The blocks with free ports in place of their own, so that pages can be followed side by side.

    The ports from 8000 to 8009 are those of model servers: the stub's stands for all of them.
    """
    taken: dict[int, int] = {}
    for port in sorted({int(port) for block in page for port in _PORT.findall(block.text)}):
        before = next((known for known in taken if known > 8009 and port - known < _SERVERS), None)
        if port in range(8000, 8010):
            taken[port] = int(model_address.partition(":")[2])
        else:
            taken[port] = taken[before] + port - before if before else next(_free_ports())

    return [replace(block, text=_PORT.sub(lambda port: str(taken[int(port[0])]), block.text)) for block in page]


def _free_ports() -> Iterator[int]:
    """Ports below those that the system gives away, each with free ones behind it."""
    while True:
        first = random.randrange(15000, 30000)
        try:
            for port in range(first, first + _SERVERS):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        yield first
