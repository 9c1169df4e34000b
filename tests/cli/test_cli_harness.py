"""`ludus harness`: what is installed, installing once, and the check of a real program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from harness_runs import needs_harness

from ludus.agents.harness.checking import PROMPT, checked_environment
from ludus.agents.harness.declaration import declared
from ludus.testing import needs_sandbox

DECLARATION = """
name: mine
install: {npm: mine, version: 1.0.0}
dialect: chat
command: [mine]
files: {"{home}/url": "{url}", "{home}/key": "{key}"}
"""

#: Stands for npm: notes each installation, and takes so long that two would overlap.
NPM = """#!/bin/sh
echo "$*" >> "$INSTALLATIONS"
[ -z "$BREAKS" ] || { [ "$BREAKS" = 1 ] && BREAKS="npm error no such package"; echo "$BREAKS" >&2; exit 1; }
while [ "$(wc -l < "$WAITING")" -lt 2 ]; do sleep 0.05; done
mkdir -p "$3/node_modules/.bin"
printf '#!/usr/bin/env node\\n1;\\n' > "$3/node_modules/.bin/mine"
"""


COMMAND = [sys.executable, "-m", "ludus", "harness"]


def prepared(tmp_path: Path, **variables: str) -> dict[str, str]:
    """The variables of a command, which finds a declaration and a program in place of npm in its folder."""
    (tmp_path / "bin").mkdir(exist_ok=True)
    npm = tmp_path / "bin/npm"
    npm.write_text(NPM)
    npm.chmod(0o755)
    (tmp_path / "mine.yaml").write_text(DECLARATION)
    return {
        **os.environ,
        "LUDUS_CACHE": str(tmp_path / "cache"),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "INSTALLATIONS": str(tmp_path / "installations"),
        "WAITING": str(tmp_path / "waiting"),
        **variables,
    }


def said(tmp_path: Path, *arguments: str, **variables: str) -> tuple[int, str, str]:
    environment = prepared(tmp_path, **variables)
    done = forked.run([*COMMAND, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_all_declarations_are_listed(tmp_path: Path) -> None:
    code, output, _ = said(tmp_path, "list", "--json")
    rows: list[dict[str, Any]] = json.loads(output)
    assert code == 0
    assert [row["name"] for row in rows] == list(declared())
    assert not any(row["installed"] for row in rows)


def test_two_installations_at_once_install_once(tmp_path: Path) -> None:
    waiting = tmp_path / "waiting"
    waiting.touch()
    command, pipe, environment = [*COMMAND, "install", "mine.yaml"], subprocess.PIPE, prepared(tmp_path)
    both = [
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True) for _ in range(2)
    ]
    waiting.write_text("1\n2\n")
    outputs = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert all("mine 1.0.0 is installed" in output for output, _ in outputs)
    assert len((tmp_path / "installations").read_text().splitlines()) == 1
    program = (tmp_path / "cache/harness/mine-1.0.0/node_modules/.bin/mine").read_text()
    assert program == "#!/opt/harness/mine-1.0.0/node_modules/node/bin/node\n1;\n", "its own Node"
    assert said(tmp_path, "remove", "mine.yaml")[1] == "mine 1.0.0 is removed\n"
    assert said(tmp_path, "remove", "mine.yaml")[1] == "mine 1.0.0 was not installed\n"


def test_an_installation_that_fails_says_why_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    code, _, errors = said(tmp_path, "install", "mine.yaml", BREAKS="1")
    assert code == 2
    assert "error: mine 1.0.0 cannot be installed: npm says: npm error no such package." in errors
    long = "npm cannot. Because " + "of this, " * 60 + "it failed"
    _, _, errors = said(tmp_path, "install", "mine.yaml", BREAKS=long)
    assert "npm says: npm cannot. Because of this," in " ".join(errors.split()), "the beginning names the cause"
    assert [path.name for path in (tmp_path / "cache/harness").iterdir()] == [".locks"]


@pytest.mark.parametrize(
    ("shim", "cause"),
    [
        (None, "mine 1.0.0 needs Python 3.12: there is no python3.12 on the PATH, and uv could not download it."),
        ("exit 127", "mine 1.0.0 needs Python 3.12: BIN/python3.12 does not start, and uv could not download it."),
        ("echo Python 3.12.9", "mine 1.0.0 cannot be installed: uv says: dns error."),
    ],
)
def test_a_program_whose_python_is_missing_says_which_one_to_install(
    tmp_path: Path, shim: str | None, cause: str
) -> None:
    wanted = 'install: {pip: mine, version: 1.0.0, python: "3.12"}'
    (tmp_path / "other.yaml").write_text(DECLARATION.replace("install: {npm: mine, version: 1.0.0}", wanted))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").write_text("#!/bin/sh\necho 'dns error' >&2; exit 2\n")
    (tmp_path / "bin/uv").chmod(0o755)
    if shim is not None:
        (tmp_path / "bin/python3.12").write_text(f"#!/bin/sh\n{shim}\n")
        (tmp_path / "bin/python3.12").chmod(0o755)
    code, _, errors = said(tmp_path, "install", "other.yaml", PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert code == 2
    assert cause.replace("BIN", str(tmp_path / "bin")) in (told := " ".join(errors.split()))
    assert ("pyenv" in told) == (shim != "echo Python 3.12.9")


def test_checking_what_is_not_installed_says_what_to_type(tmp_path: Path) -> None:
    code, _, errors = said(tmp_path, "check", "pi")
    assert code == 2
    assert "ludus harness install pi" in errors


def checked(tmp_path: Path, script: str) -> dict[str, str]:
    """What the check finds wrong with a program that is a shell script."""
    place = tmp_path / "cache/harness/mine-1.0.0"
    (place / "node_modules/.bin").mkdir(parents=True)
    (place / "node_modules/.bin/mine").write_text(f"#!/bin/sh\n{script}\n")
    (place / "node_modules/.bin/mine").chmod(0o755)
    (place / ".installed").touch()
    code, output, errors = said(tmp_path, "check", "mine.yaml", "--json")
    assert code == 1, errors
    return {question: found["why"] for question, found in json.loads(output)["answers"].items() if not found["passed"]}


@needs_sandbox()
@pytest.mark.parametrize("code", [0, 1])
def test_the_check_shows_what_a_program_said_that_never_called_the_model(tmp_path: Path, code: int) -> None:
    wrong = checked(tmp_path, f"printf '\\033[31mNot logged in\\033[0m: run mine login'; exit {code}")
    assert wrong.pop("calls the model").endswith(": Not logged in: run mine login")
    assert set(wrong.values()) == {"not known without a call"}
    assert "leaves nothing else" in wrong, "nobody looked"


SHELL = (
    'curl -s "$URL/v1/chat/completions" -H "Authorization: Bearer $KEY" -H "Content-Type: application/json" -d "$BODY"'
)


@needs_sandbox()
def test_the_check_shows_which_tools_a_program_offers_and_how_it_ended(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "run_it", "parameters": {"type": "object"}}}
    asked = {"model": "m", "messages": [{"role": "user", "content": PROMPT}], "tools": [tool]}
    given = f"URL=$(cat url) KEY=$(cat key) BODY='{json.dumps(asked)}'; "
    wrong = checked(tmp_path, f"cd /tmp/harness; {given}{SHELL} > answer; echo I break >&2; exit 3")
    assert wrong["runs commands"] == "there is no hello.txt: write `shell: {tool: NAME}`. The program offers: run_it"
    assert "reads the prompt" not in wrong, "it passes the task on as it is"
    assert wrong["ends by itself"] == "the rollout stopped: program_ended: exit code 3: I break"


def test_a_check_of_a_program_that_hangs_ends_within_minutes() -> None:
    assert checked_environment("pi").limits.rollout <= 300


def test_a_misspelt_name_is_asked_about(tmp_path: Path) -> None:
    assert "Did you mean codex?" in said(tmp_path, "install", "codec")[2]


def test_a_version_that_is_a_number_and_a_file_that_is_not_there_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(DECLARATION.replace("1.0.0", "1.20"))
    wrong = "other.yaml.install.version must be text, not 1.2. Put it in quotes"
    assert wrong in " ".join(said(tmp_path, "check", "other.yaml")[2].split())
    mistakes = {
        'command: [mine, "{prmpt}"]': "other.yaml.command: {prmpt} is not filled in. Did you mean prompt?",
        'command: [mine]\nenv: {A: "{api_key}"}': "other.yaml.env: {api_key} is not filled in. Did you mean key?",
        "command: mine -p": "other.yaml.command must be a list, not 'mine -p'",
    }
    for line, wrong in mistakes.items():
        (tmp_path / "other.yaml").write_text(DECLARATION.replace("command: [mine]", line))
        assert wrong in " ".join(said(tmp_path, "check", "other.yaml")[2].split())
    (tmp_path / "other.yaml").write_text(DECLARATION.replace("1.0.0", "latest"))
    assert "other.yaml.install.version: 'latest' is not an exact version" in said(tmp_path, "check", "other.yaml")[2]
    other = """command: [sh, -c, 'awk "{print}" ${prmpt} {a,b}']"""
    (tmp_path / "other.yaml").write_text(DECLARATION.replace("command: [mine]", other))
    assert "is not installed" in said(tmp_path, "check", "other.yaml")[2]
    assert "there is no nothing.yaml here. Check the name of the file" in said(tmp_path, "check", "nothing.yaml")[2]


@needs_sandbox()
@needs_harness("pi")
def test_the_check_finds_a_path_in_place_of_the_prompt_and_a_url_without_v1(tmp_path: Path) -> None:
    good = declared()["pi"].read_text()
    mistakes = {
        "path.yaml": good.replace('"{model}", -p]', '"{model}", -p, "{prompt}"]\nprompt: file'),
        "url.yaml": good.replace("{url}/v1", "{url}"),
    }
    reports = {}
    for name, text in mistakes.items():
        assert text != good
        (tmp_path / name).write_text(text)
        done = forked.run([*COMMAND, "check", str(tmp_path / name), "--json"], capture_output=True, text=True)
        assert done.returncode == 1, done.stderr
        reports[name] = json.loads(done.stdout)["answers"]
    wrong = [question for question, answer in reports["path.yaml"].items() if not answer["passed"]]
    assert wrong == ["reads the prompt"]
    assert "there is no /chat/completions here" in reports["url.yaml"]["calls the model"]["why"]
    assert not reports["url.yaml"]["keeps its history"]["passed"]


@needs_sandbox()
@needs_harness("pi")
def test_the_check_finds_a_dialect_that_the_program_does_not_speak(tmp_path: Path) -> None:
    text = declared()["pi"].read_text()
    assert "dialect: chat\n" in text
    (tmp_path / "dialect.yaml").write_text(text.replace("dialect: chat\n", "dialect: responses\n"))
    done = forked.run([*COMMAND, "check", str(tmp_path / "dialect.yaml")], capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    (wrong,) = [" ".join(line.split()) for line in done.stdout.splitlines() if " NO " in line]
    assert wrong == "speaks its dialect NO the program called chat, not responses: write `dialect: chat`"


@needs_sandbox()
@needs_harness("pi")
def test_the_check_of_a_real_program_shows_its_calls() -> None:
    report = json.loads(forked.run([*COMMAND, "check", "pi", "--json"], capture_output=True, text=True).stdout)
    assert report["passed"]
    (main,) = report["threads"]
    assert (main["kind"], main["calls"], main["sequences"]) == ("main", 3, 1)
    assert main["tools"] > 0
