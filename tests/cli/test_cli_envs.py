"""`ludus envs` lists every environment at any width, without running its code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import forked
import pytest

from ludus.runtime.imports import BUILT_IN

NAME = "example_session_state_mgmt"


def ludus(*arguments: str, columns: int = 80, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "NO_COLOR")}
    environment |= {"COLUMNS": str(columns), "PYTHONIOENCODING": "utf-8", **variables}
    command = [sys.executable, "-m", "ludus", *arguments]
    return forked.run(command, capture_output=True, text=True, env=environment, timeout=300)


@pytest.mark.parametrize("columns", [40, 60, 119, 120, 200])
def test_every_environment_is_listed_at_any_width(columns: int):
    done = ludus("envs", columns=columns)
    assert done.returncode == 0
    assert done.stderr == ""
    for folder in BUILT_IN.glob("*/environment.yaml"):
        assert folder.parent.name in done.stdout


def test_no_line_is_wider_than_a_narrow_terminal():
    done = ludus("envs", columns=40, FORCE_COLOR="1")
    lines = done.stdout.splitlines()
    assert any(NAME in line for line in lines)
    assert "\x1b[1m" in done.stdout
    for line in lines:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
        assert len(plain) <= 40, plain


def test_json_holds_domain_licence_and_path():
    found = {each["name"]: each for each in json.loads(ludus("envs", "--json").stdout)}
    counter = found[NAME]
    assert counter["domain"] == "agent"
    assert counter["datasets"][0]["licence"] == "Apache-2.0"
    assert Path(counter["path"]) == BUILT_IN / NAME


@pytest.mark.parametrize("columns", [120, 200])
def test_environments_are_listed_by_domain(columns: int):
    domains = {each["name"]: each["domain"] for each in json.loads(ludus("envs", "--json").stdout)}
    lines = ludus("envs", columns=columns).stdout.splitlines()
    words = [line.replace("[", " ").split() for line in lines if line.strip()]
    listed = [domains[line[0]] for line in words if line[0] in domains and domains[line[0]] in line[1:3]]
    assert len(listed) == len(domains)
    assert listed == sorted(listed)


@pytest.fixture
def registered(tmp_path: Path) -> Path:
    """A folder of packages that register one good and two broken environments."""

    def register(name: str, yaml: str) -> None:
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "resources.py").write_text("raise SystemExit('this code must not run')")
        (package / "environment.yaml").write_text(yaml)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[ludus.environments]\n{name} = {name}\n")

    register("shop", "name: shop\nresources: resources.py:Shop\ndatasets:\n  - {name: sales, path: data/sales.jsonl}\n")
    (tmp_path / "shop" / "data").mkdir()
    (tmp_path / "shop" / "data" / "sales.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n{"a": 3}')
    register("torn_one", "name: [torn\n")
    register("odd_one", "name: odd\nresources: r:R\nflavour: sweet\n")
    return tmp_path


@pytest.mark.parametrize("columns", [60, 200])
def test_a_broken_environment_file_is_listed_with_its_error(registered: Path, columns: int):
    done = ludus("envs", columns=columns, PYTHONPATH=str(registered))
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.count("broken: ") == 2
    words = " ".join(done.stdout.split())
    assert "not valid YAML" in words
    assert "flavour" in words
    assert NAME in words


def test_rows_are_counted_and_no_code_runs(registered: Path):
    found = {each["name"]: each for each in json.loads(ludus("envs", "--json", PYTHONPATH=str(registered)).stdout)}
    assert found["shop"]["datasets"][0]["rows"] == 3
    assert "error" in found["torn_one"]
    assert "shop" in ludus("envs", columns=200, PYTHONPATH=str(registered)).stdout


def test_escape_codes_in_a_yaml_file_do_not_reach_the_terminal(registered: Path):
    text = 'name: shop\nresources: r:R\ndescription: "\\e[31mred\\a [bold]plain[/bold]"\n'
    (registered / "shop" / "environment.yaml").write_text(text)
    for columns in (60, 200):
        shown = ludus("envs", columns=columns, PYTHONPATH=str(registered)).stdout
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "[bold]plain[/bold]" in shown
