"""`ludus new` creates an environment that passes its tests and works with chat and collect at once."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import forked
import pytest

from ludus import Environment
from ludus.cli.new import copy_recipe, recipes

SCRIPT = """
- {call: look_up_price, arguments: {item: apple}}
- They cost 6.
"""


def run(*command: str, cwd: Path, typed: str = "") -> subprocess.CompletedProcess[str]:
    variables = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    start = forked.run if list(command[:3]) == forked.START else subprocess.run
    return start(command, cwd=cwd, input=typed, capture_output=True, text=True, env=variables, timeout=300)


def ludus(*arguments: str, cwd: Path, typed: str = "") -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "ludus", *arguments, cwd=cwd, typed=typed)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds a new environment `corner_shop`."""
    folder = tmp_path_factory.mktemp("made")
    done = ludus("new", "corner_shop", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_new_prints_the_files_and_the_commands_to_try(tmp_path: Path):
    done = ludus("new", "corner_shop", cwd=tmp_path)
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0] == "created ./corner_shop:"
    assert lines[-4:] == [
        "pytest ./corner_shop",
        "ludus qualify ./corner_shop",
        "ludus chat ./corner_shop",
        "ludus collect ./corner_shop --model local",
    ]
    files = {"README.md", "data/example.jsonl", "environment.yaml", "qualify.py", "resources.py", "test_corner_shop.py"}
    assert files <= set(lines)
    assert {str(path.relative_to(tmp_path / "corner_shop")) for path in tmp_path.rglob("*") if path.is_file()} == files


def test_no_template_marker_is_left(made: Path):
    for path in (made / "corner_shop").rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            assert "{{" not in path.read_text()
    assert "class CornerShop(Resources)" in (made / "corner_shop" / "resources.py").read_text()


#: Pytest without the plugins of other packages, which take longer than all else to import.
PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider -p no:schemathesis -p no:hypothesispytest".split()


def test_the_new_environment_passes_its_own_tests(made: Path):
    done = run(*PYTEST, "corner_shop", cwd=made)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


def test_names_of_yaml_values_and_python_classes_work(tmp_path: Path):
    names = ["null", "none", "on", "verdict", "task", "value_error"]
    for name in names:
        assert ludus("new", name, cwd=tmp_path).returncode == 0
    done = run(*PYTEST, *names, cwd=tmp_path)
    assert "42 passed" in done.stdout, done.stdout + done.stderr


def test_installing_pytest_is_the_first_step_if_it_is_missing(tmp_path: Path):
    code = "import sys; sys.modules['pytest'] = None; from ludus.cli import main; main()"
    done = run(sys.executable, "-c", code, "new", "dice", cwd=tmp_path)
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[-5:-3] == ["pip install pytest", "pytest ./dice"]


def test_the_new_environments_tests_need_no_pytest_plugin(made: Path):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "corner_shop"]
    done = subprocess.run(
        command, cwd=made, capture_output=True, text=True, env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_rollouts_can_be_collected_from_the_new_environment(made: Path, tmp_path: Path):
    (tmp_path / "script.yaml").write_text(SCRIPT)
    model, output = f"scripted:{tmp_path / 'script.yaml'}", tmp_path / "run"
    done = ludus("collect", "./corner_shop", "--model", model, "--output", str(output), cwd=made)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (output / "rollouts.jsonl").read_text().splitlines()]
    assert len(rows) == 5
    assert sorted(row["reward"] for row in rows) == [0, 0, 0, 0, 1]


def test_the_new_environment_can_be_played_by_hand(made: Path):
    done = ludus("chat", "./corner_shop", "--row", "2", cwd=made, typed="look_up_price item=pear\n12\n")
    assert done.returncode == 0, done.stderr
    assert '{"price": 3}' in done.stdout
    assert "completed, reward 1" in done.stdout


def test_path_creates_missing_parent_folders(tmp_path: Path):
    place = tmp_path / "my games" / "all"
    done = ludus("new", "dice", "--path", str(place), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (place / "dice" / "test_dice.py").is_file()
    assert f"pytest '{place / 'dice'}'" in done.stdout


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("My-Game", "Try: ludus new my_game"),
        ("2048", "Try: ludus new my_2048"),
        ("a/b", "Try: ludus new a_b"),
        ("..", "Try: ludus new my_game"),
        ("class", "Try: ludus new my_class"),
        ("spiel\x1b[31m", "Try: ludus new spiel_31m"),
        ("größe", "Try: ludus new gr_e"),
        ("x" * 100, "Try: ludus new xxx"),
        ("", "Try: ludus new my_game"),
    ],
)
def test_an_invalid_name_is_one_line_with_a_suggestion(tmp_path: Path, name: str, hint: str):
    done = ludus("new", name, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert hint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "\x1b" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_existing_files_and_folders_are_never_changed(tmp_path: Path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    (tmp_path / "a_file").write_text("mine")
    (tmp_path / "a_link").symlink_to(tmp_path / "nowhere")
    for name in ("taken", "a_file", "a_link"):
        done = ludus("new", name, cwd=tmp_path)
        assert done.returncode == 2
        assert f"{name} exists already. Choose another name" in done.stderr
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["mine.txt"]


def test_an_unwritable_path_is_one_line(tmp_path: Path):
    (tmp_path / "a_file").write_text("mine")
    done = ludus("new", "game", "--path", "a_file", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot write a_file/game: ")
    assert len(done.stderr.splitlines()) == 1


def test_like_copies_a_recipe_under_the_new_name(tmp_path: Path):
    done = ludus("new", "corner_desk", "--like", "sql_desk", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "test_corner_desk.py" in done.stdout
    folder = tmp_path / "corner_desk"
    assert "name: corner_desk\n" in (folder / "environment.yaml").read_text()
    readme = (folder / "README.md").read_text()
    assert readme.startswith("# corner_desk\n")
    assert "ludus qualify ./corner_desk " in readme
    assert "sql_desk" not in readme + (folder / "environment.yaml").read_text()
    done = ludus("qualify", "./corner_desk", "--limit", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "corner_desk can be trusted" in done.stdout


def test_every_recipe_can_be_copied_and_works_outside_of_the_package(tmp_path: Path):
    for number, recipe in enumerate(recipes()):
        name = f"copy_{number}"
        copy_recipe(recipe, tmp_path / name, name)
        files = {path.relative_to(tmp_path / name) for path in (tmp_path / name).rglob("*") if path.is_file()}
        assert {Path("resources.py"), Path("qualify.py"), Path("README.md"), Path(f"test_{name}.py")} <= files
        assert not [path for path in files if path.suffix == ".pyc"]
        if recipe != "form_filling" or importlib.util.find_spec("mcp"):
            assert Environment.load(tmp_path / name).name == name


def test_an_unknown_recipe_is_one_line_with_the_names_of_all(tmp_path: Path):
    done = ludus("new", "corner_desk", "--like", "sql_dest", cwd=tmp_path)
    assert done.returncode == 2
    assert "there is no recipe 'sql_dest'" in done.stderr
    assert all(name in done.stderr for name in recipes())
    assert not (tmp_path / "corner_desk").exists()
