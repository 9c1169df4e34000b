"""Messages of the command line when a run is stopped or fails, and on a terminal without Unicode."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import forked
import interruptible
import pytest
from servers import Server, running
from waiting import CEILING, until, without_progress

ENVIRONMENT = "name: keeper\nresources: resources.py:Keeper\ndatasets: [{name: example, path: rows.jsonl}]\n"
CODE = """
import asyncio
from pathlib import Path
from ludus import Resources

class Keeper(Resources):
    async def verify(self, task, response):
        return 1.0

    async def close(self):
        Path(f"closing-{id(self)}").touch()
        while Path("locked").exists():
            await asyncio.sleep(0.01)
        Path("closed").touch()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An environment whose sessions close once the file `locked` is gone, and a model script."""
    (tmp_path / "environment.yaml").write_text(ENVIRONMENT)
    (tmp_path / "resources.py").write_text(CODE)
    rows = [{"responses_create_params": {"input": f"Question {number}"}} for number in range(2)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "caf\xe9.yaml").write_text("- Yes.\n")
    return tmp_path


def variables(encoding: str) -> dict[str, str]:
    """The variables of a command on a wide terminal with an encoding."""
    found = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "COLUMNS")}
    return found | {"PYTHONIOENCODING": encoding, "COLUMNS": "200"}


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "ludus", *arguments]
    return interruptible.start(command, cwd=folder, env=variables("utf-8"), text=True, encoding="utf-8", **pipes)


def ludus(folder: Path, *arguments: str, encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ludus", *arguments]
    return forked.run(command, cwd=folder, env=variables(encoding), capture_output=True, encoding="utf-8")


def test_a_stopped_collection_reports_sessions_that_are_slow_to_close(folder: Path):
    (folder / "locked").touch()
    process = start(folder, "collect", ".", "--model", "scripted:caf\xe9.yaml", "--output", "run")
    assert process.stderr is not None
    until(lambda: len(list(folder.glob("closing-*"))) == 2 or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    said = next(line for line in process.stderr if without_progress(line))
    (folder / "locked").unlink()
    _, rest = process.communicate(timeout=CEILING)
    assert said == "stopping: 2 sessions are being closed. Ctrl-C again leaves them open\n"
    assert without_progress(rest).startswith("stopped: ")
    assert process.returncode == 130
    assert (folder / "closed").exists()


def test_ctrl_c_while_rows_are_checked_leaves_no_output(folder: Path):
    code = CODE + "    class Task(ludus.Task):\n        def model_post_init(self, _):\n            wait()\n"
    wait = "import ludus, time\ndef wait():\n    Path('checking').touch()\n    time.sleep(3600)\n"
    (folder / "resources.py").write_text(code.replace("class Keeper", f"{wait}\nclass Keeper"))
    process = start(folder, "collect", ".", "--model", "scripted:caf\xe9.yaml", "--output", "run")
    until(lambda: (folder / "checking").exists() or process.poll() is not None)
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=CEILING)
    assert (process.returncode, shown, said) == (130, "", "stopped before the first rollout\n")
    assert not (folder / "run").exists()


def test_failed_rollouts_end_with_the_command_that_plays_them_again(folder: Path):
    fails = "if task.input[0]['content'].endswith('1') and not Path('mended').exists(): raise OSError('no')"
    (folder / "resources.py").write_text(CODE + f"\n    async def open(self, task):\n        {fails}\n")
    done = ludus(folder, "collect", ".", "--model", "scripted:caf\xe9.yaml", "--output", "run")
    assert done.returncode == 0
    said, command = done.stderr.splitlines()[-1].split(" Play them again: ludus ")
    assert said == f"1 failed, see {Path('run/failures.jsonl')}."
    (folder / "mended").touch()
    done = ludus(folder, *shlex.split(command))
    assert "resuming: 1 of 2 rollouts are already done" in done.stderr
    assert "Play them again" not in done.stderr


def test_stages_that_never_ran_have_no_mean_time(folder: Path):
    (folder / "resources.py").write_text(CODE + "\n    async def open(self, task):\n        raise OSError('no')\n")
    done = ludus(folder, "collect", ".", "--model", "scripted:caf\xe9.yaml", "--output", "run")
    [line] = [line for line in done.stdout.splitlines() if "time " in line]
    assert "mean" not in line


def test_every_command_prints_ascii_on_an_ascii_terminal(folder: Path):
    model = "scripted:caf\xe9.yaml"
    for arguments in (
        ["collect", ".", "--model", model, "--output", "caf\xe9"],
        ["show", "caf\xe9"],
        ["show", "caf\xe9", "1"],
        ["verify", "caf\xe9", "--env", "."],
        ["compare", "caf\xe9", "caf\xe9"],
        ["chat", ".", "--model", model],
        ["new", "game", "--path", "caf\xe9"],
        ["envs"],
    ):
        done = ludus(folder, *arguments, encoding="ascii")
        assert done.returncode == 0, (arguments, done.stderr)
        assert done.stdout.isascii()


def test_json_escapes_characters_that_the_terminal_lacks(folder: Path):
    ludus(folder, "collect", ".", "--model", "scripted:caf\xe9.yaml", "--output", "run")
    done = ludus(folder, "show", "run", "1", "--json", encoding="ascii")
    assert json.loads(done.stdout)["response"]["model"] == "scripted:caf\xe9.yaml"


def test_if_no_rollout_completed_the_first_failure_is_printed(folder: Path):
    with running(Server()) as server:
        done = ludus(folder, "collect", ".", "--model", f"{server.url}#400", "--output", "run")
    assert done.returncode == 1
    cause = json.loads((folder / "run" / "failures.jsonl").read_text().splitlines()[0])["cause"]
    assert "answered 400" in cause
    [line] = [line for line in done.stdout.splitlines() if "first failure" in line]
    assert cause in line


@pytest.mark.parametrize("place", ["click/__init__.py", "rich/__init__.py"])
@pytest.mark.parametrize("entry", [["-m", "ludus"], ["-c", "from ludus.__main__ import main; main()"]])
def test_ctrl_c_while_the_command_line_is_imported_is_one_line(tmp_path: Path, entry: list[str], place: str):
    module = tmp_path / "modules" / place
    module.parent.mkdir(parents=True)
    module.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    path = os.pathsep.join([str(tmp_path / "modules"), os.environ.get("PYTHONPATH", "")])
    process = interruptible.start(
        [sys.executable, *entry, "show", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )
    _, errors = process.communicate(timeout=CEILING)
    assert (process.returncode, errors) == (130, "stopped\n")


def test_ctrl_c_while_an_environment_is_loaded_is_one_line(folder: Path):
    (folder / "resources.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n" + CODE)
    process = start(folder, "collect", ".", "--model", "scripted:caf\xe9.yaml")
    _, errors = process.communicate("", timeout=CEILING)
    assert (process.returncode, errors) == (130, "stopped\n")
