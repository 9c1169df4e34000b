"""`ludus doctor` says what works on this machine, and what to type where something does not."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from registered import register

from ludus.cli import doctor as cli_doctor
from ludus.sandbox.choice import survey


def doctor(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1", **variables}
    command = [sys.executable, "-m", "ludus", "doctor", *arguments]
    return forked.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.fixture(scope="module")
def found() -> Any:
    done = doctor("--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_json_lists_every_provider_with_its_state(found: Any):
    assert [one["provider"] for one in found["sandboxes"]] == [one.name for one in survey()]
    for one, known in zip(found["sandboxes"], survey(), strict=True):
        assert one["works"] == (known.problem is None)
        assert one["install"] is None or not one["works"]
        assert one["stops"]
    assert {one["provider"]: one["for_hostile_code"] for one in found["sandboxes"]}["process"] is False


def test_hosted_sandboxes_are_listed_with_what_they_need(found: Any):
    hosted = {status["provider"]: status for status in found["hosted_sandboxes"]["providers"]}
    assert list(hosted) == ["daytona", "e2b", "modal"]
    assert found["hosted_sandboxes"]["install"] is None
    assert all(status["works"] or status["problem"] for status in hosted.values())


def test_without_their_package_the_command_that_installs_hosted_sandboxes_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    register(monkeypatch, "ludus.sandboxes")
    cli_doctor.doctor()
    assert re.search(
        r"hosted +for sandboxes of services, install with: pip install .*sandboxes", capsys.readouterr().out
    )


def test_json_names_python_the_control_groups_and_the_extras(found: Any):
    assert found["python"]["path"] == sys.executable
    assert "cgroup" in found["control_groups"]
    assert all(extra["installed"] or "pip install" in extra["install"] for extra in found["extras"])
    assert found["embedded_model"]["works"] is not bool(found["embedded_model"]["missing"])


def test_every_package_of_ours_is_listed_with_what_it_adds(found: Any):
    folders = {path.parent.name for path in (Path(__file__).parents[2] / "packages").glob("*/pyproject.toml")}
    assert {package["package"] for package in found["packages"]} == folders
    assert all(package["install"] is None and package["adds"] for package in found["packages"])


def test_a_missing_package_is_printed_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(cli_doctor, "PACKAGES", {"absent": "what nobody has"})
    cli_doctor.doctor()
    assert re.search(r"absent +what nobody has *\n +Install with: pip install .*absent *\n", capsys.readouterr().out)


def test_a_person_reads_which_provider_is_taken_and_why(found: Any):
    done = doctor(COLUMNS="200")
    assert done.returncode == 0
    for line in found["auto"]:
        assert line in done.stdout
    assert "process does not stop: " in done.stdout
    for one in found["sandboxes"]:
        assert one["provider"] in done.stdout


def test_without_bubblewrap_and_runc_it_prints_the_commands_that_install_them(tmp_path: Any):
    (tmp_path / "apt-get").touch(0o755)
    done = doctor("--json", PATH=str(tmp_path))
    sandboxes = {one["provider"]: one for one in json.loads(done.stdout)["sandboxes"]}
    assert sandboxes["bubblewrap"]["problem"] == "bwrap is not installed"
    assert sandboxes["bubblewrap"]["install"] == "apt-get install -y bubblewrap"
    assert sandboxes["oci"]["install"] == "apt-get install -y runc"
    assert "auto has no sandbox for programs: bwrap is not installed" in json.loads(done.stdout)["auto"]
    shown = doctor(PATH=str(tmp_path), COLUMNS="40")
    assert shown.returncode == 0
    assert shown.stderr == ""


@pytest.mark.parametrize("width", [60, 80, 160])
def test_on_a_terminal_no_line_is_too_long_and_what_goes_on_is_indented(width: int):
    shown = doctor(COLUMNS=str(width), FORCE_COLOR="1", TERM="xterm").stdout
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    lines = [line.rstrip() for line in plain.splitlines()]
    assert max(map(len, lines)) <= width
    parts = ["sandboxes", "embedded model", "agent programs", "extras", "packages"]
    assert [line for line in lines if line and line[0] != " "] == parts
    whole = set(doctor().stdout.split())
    assert {word for line in lines for word in line.split() if len(word) < 40} <= whole, "a word was broken"
