"""The package itself: where its paths lead, which names it gives, and what importing it changes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import nemo_gym
import pytest
from gym_commands import FEW_PLUGINS

REPORT = """
import json, os, sys
import nemo_gym
print(json.dumps({
    "paths": {name: str(getattr(nemo_gym, name)) for name in nemo_gym.__all__ if name.endswith("_DIR")},
    "environment": {name: os.environ.get(name) for name in ("HF_HOME", "HF_DATASETS_CACHE", "TOKENIZERS_PARALLELISM")},
    "sys_path": sys.path,
    "modules": sorted(name for name in sys.modules if name.startswith("nemo_gym.")),
}))
"""


def imported(folder: Path, **variables: str) -> dict:
    """What a process sees after `import nemo_gym` in that working directory."""
    silent = ("NEMO_GYM_EXTRA_ROOTS", "HF_HOME", "HF_DATASETS_CACHE", "TOKENIZERS_PARALLELISM")
    environment = {name: value for name, value in os.environ.items() if name not in silent} | variables
    done = subprocess.run(
        [sys.executable, "-c", REPORT], cwd=folder, env=environment, capture_output=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "checkout" / "resources_servers" / "counter").mkdir(parents=True)
    (tmp_path / "checkout" / "pyproject.toml").write_text("")
    return tmp_path / "checkout"


def test_the_parent_folder_is_the_checkout_above_a_server(checkout):
    report = imported(checkout / "resources_servers" / "counter")
    assert report["paths"] == {
        "PARENT_DIR": str(checkout),
        "ROOT_DIR": str(nemo_gym.ROOT_DIR),
        "WORKING_DIR": str(checkout),
        "CACHE_DIR": str(checkout / "cache"),
        "RESULTS_DIR": str(checkout / "results"),
    }
    assert report["modules"] == []
    assert str(checkout) in report["sys_path"]


def test_an_extra_root_is_the_parent_folder_and_comes_first_on_the_import_path(checkout, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    report = imported(other, NEMO_GYM_EXTRA_ROOTS=f"{checkout}{os.pathsep}{tmp_path}")
    assert report["paths"]["PARENT_DIR"] == str(checkout)
    assert report["sys_path"][:2] == [str(checkout), str(tmp_path)]


def test_a_checkout_on_the_import_path_is_the_parent_folder(checkout, tmp_path):
    report = imported(tmp_path, PYTHONPATH=str(checkout))
    assert report["paths"]["PARENT_DIR"] == str(checkout)


SUITE = """
from resources_servers.counter.app import ANSWER  # before anything of nemo_gym
from nemo_gym import PARENT_DIR

def test_answer():
    assert (ANSWER, str(PARENT_DIR)) == (42, {checkout!r})
"""


@pytest.mark.parametrize("here", ["resources_servers/counter", ".."])
def test_pytest_finds_the_servers_of_a_checkout_by_their_full_names(checkout, here):
    server = checkout / "resources_servers" / "counter"
    (server / "app.py").write_text("ANSWER = 42")
    (server / "tests").mkdir()
    (server / "tests" / "__init__.py").write_text("")
    (server / "tests" / "test_app.py").write_text(SUITE.format(checkout=str(checkout)))
    environment = {name: value for name, value in os.environ.items() if name != "NEMO_GYM_EXTRA_ROOTS"}
    command = [sys.executable, "-m", "pytest", "-q", *FEW_PLUGINS, str(server / "tests")]
    done = subprocess.run(command, cwd=checkout / here, env=environment, capture_output=True, text=True, timeout=120)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("named", ["resources_servers/counter/tests", "resources_servers/counter/tests/test_app.py"])
def test_pytest_finds_the_siblings_of_a_server_by_bare_names(checkout, named):
    server = checkout / "resources_servers" / "counter"
    (server / "answers.py").write_text("ANSWER = 42")
    (server / "app.py").write_text("from answers import ANSWER")
    (server / "tests").mkdir()
    (server / "tests" / "test_app.py").write_text(SUITE.format(checkout=str(checkout)))
    command = [Path(sys.executable).with_name("pytest"), "-q", *FEW_PLUGINS, named]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=120)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


NUMBERED = """
from answers import ANSWER
import pytest

@pytest.fixture
def expected():
    return ANSWER
"""
NUMBERED_SUITE = """
import os, sys
from unittest.mock import patch
from app import ANSWER
from resources_servers.{name}.app import ANSWER as SAME

def test_answer(expected):
    import answers
    assert (ANSWER, SAME, expected, answers.ANSWER) == ({number},) * 4
    with patch("app.ANSWER", 0):
        assert sys.modules["app"].ANSWER == 0
"""


@pytest.mark.parametrize(
    "options",
    [
        ["--import-mode=importlib", "resources_servers"],
        ["--import-mode=prepend", "resources_servers/two/tests", "resources_servers/one/tests"],
        ["--import-mode=importlib", "-n", "2"],
    ],
    ids=" ".join,
)
def test_suites_of_several_servers_run_in_one_process_each_with_its_own_siblings(checkout, options):
    for number, name in enumerate(["one", "two"]):
        server = checkout / "resources_servers" / name
        (server / "tests").mkdir(parents=True)
        (server / "answers.py").write_text(f"ANSWER = {number}")
        (server / "app.py").write_text("from answers import ANSWER")
        (server / "tests" / "__init__.py").write_text("")
        (server / "tests" / "conftest.py").write_text(NUMBERED)
        (server / "tests" / "test_app.py").write_text(NUMBERED_SUITE.format(name=name, number=number))
    (checkout / "conftest.py").write_text("")
    command = [sys.executable, "-m", "pytest", "-q", *FEW_PLUGINS, *options]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=120)
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_without_a_checkout_the_working_directory_is_used_and_the_cache_of_hugging_face_stays(tmp_path):
    report = imported(tmp_path)
    assert report["paths"]["PARENT_DIR"] == report["paths"]["WORKING_DIR"] == str(tmp_path)
    assert report["environment"] == {"HF_HOME": None, "HF_DATASETS_CACHE": None, "TOKENIZERS_PARALLELISM": "false"}


def test_a_checkout_without_a_project_file_caches_in_the_working_directory(checkout):
    (checkout / "pyproject.toml").unlink()
    server = checkout / "resources_servers" / "counter"
    report = imported(server, HF_HOME="/mine")
    assert report["paths"]["PARENT_DIR"] == str(checkout)
    assert report["paths"]["CACHE_DIR"] == str(server / "cache")
    assert report["environment"]["HF_HOME"] == "/mine"
    assert report["environment"]["HF_DATASETS_CACHE"] == str(server / "cache" / "huggingface")


def test_the_roots_are_searched_in_order_and_listed_once(checkout, tmp_path, monkeypatch):
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", f"{checkout}{os.pathsep}{tmp_path}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nemo_gym, "PARENT_DIR", checkout)
    assert nemo_gym.component_search_roots() == [checkout, tmp_path]
    assert nemo_gym.component_search_roots(sys_path=["/"]) == [checkout, tmp_path]


def test_a_path_is_resolved_under_the_first_root_that_has_it(checkout, tmp_path, monkeypatch):
    monkeypatch.delenv("NEMO_GYM_EXTRA_ROOTS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nemo_gym, "PARENT_DIR", checkout)
    resolve = nemo_gym._resolve_under_cwd_or_install
    assert resolve("resources_servers/counter") == checkout / "resources_servers" / "counter"
    assert resolve("nowhere/file") == tmp_path / "nowhere" / "file"
    assert resolve("/etc/hosts") == Path("/etc/hosts")
    assert resolve("x", validator=lambda path: path.parent == checkout) == checkout / "x"


def test_every_public_name_is_the_object_of_its_module():
    assert nemo_gym.__all__ == sorted(nemo_gym.__all__)
    assert all(getattr(nemo_gym, name) is not None for name in nemo_gym.__all__)
    from nemo_gym.base_responses_api_agent import SimpleResponsesAPIAgent

    assert nemo_gym.SimpleResponsesAPIAgent is SimpleResponsesAPIAgent
    assert nemo_gym.__package_name__ == "nemo_gym"
    assert nemo_gym.__version__
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = nemo_gym.no_such_name
