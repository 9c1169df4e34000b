"""The code and the commands of the README and the docs run, and their links exist."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from doc_pages import GENERATED, ROOT, code

README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_readmes_python_prints_what_its_comments_say(tmp_path):
    program = "\n".join(code(README, "python"))
    expected = re.findall(r"(?:print\(.*\)|asyncio\.run\(.*\))  # (.+)", program)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


@pytest.mark.slow
def test_the_readmes_commands_work_in_an_empty_folder(tmp_path):
    pytest.importorskip("xllamacpp", reason="the README's commands use the embedded model")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for line in code(README, "sh")[0].splitlines():
        words = shlex.split(line, comments=True)
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, input="done\n")
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "runs" / "first" / "rollouts.jsonl").stat().st_size > 0


def test_the_mixed_collection_of_the_docs_runs_in_an_empty_folder(tmp_path):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    (commands,) = code((ROOT / "docs" / "collecting.md").read_text(), "sh")
    done = subprocess.run(
        ["bash", "-ec", commands], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    metrics = json.loads((tmp_path / "runs" / "mixed" / "metrics.json").read_text())
    assert {name: each["counts"]["completed"] for name, each in metrics["environments"].items()} == {
        "bank": 6,
        "wordle": 6,
        "mcqa": 6,
    }


def test_the_python_of_the_docs_runs():
    for page in PAGES[1:]:
        for program in code(page.read_text(), "python"):
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
            assert done.returncode == 0, f"{page}: {done.stderr}"


def test_the_yaml_of_the_docs_is_the_folder_that_ludus_new_makes(tmp_path):
    from ludus.cli.new import write
    from ludus.folder import EnvironmentFile, read_file
    from ludus.models import open_model

    page = (ROOT / "docs" / "environments.md").read_text()
    (name,) = re.findall(r"^    ludus new (\w+) ", page, re.MULTILINE)
    assert f"    pip install pytest\n    ludus new {name} " in page
    write(tmp_path, name)
    made = read_file(tmp_path).model_dump()
    (environment,) = code(page, "yaml")
    shown = EnvironmentFile.model_validate(yaml.safe_load(environment)).model_dump()
    added = {"settings", "limits", "pass_reward", "reward_range", "argument", "needs", "agent_names", "prompt"}
    assert {key: value for key, value in shown.items() if key not in added} == {
        key: value for key, value in made.items() if key not in added
    }
    (model,) = code((ROOT / "docs" / "models.md").read_text(), "yaml")
    assert open_model(yaml.safe_load(model)).name == "http://127.0.0.1:8000/v1#my-model"


def anchors(page: Path) -> set[str]:
    """The names by which a code host links to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_points_to_an_existing_file_and_heading():
    docs = ROOT / "docs"
    missing = []
    for page in [*PAGES, *docs.glob("*/*.md")]:
        for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", page.read_text()):
            linked = (page.parent / target).resolve() if target else page
            if not linked.exists():
                generated = linked.is_relative_to(docs) and linked.relative_to(docs).as_posix() in GENERATED
                missing += [] if generated else [f"{page.name} links to {target}"]
            elif heading and linked.suffix == ".md" and heading not in anchors(linked):
                missing.append(f"{page.name} links to {target}#{heading}")
    assert missing == []


def test_the_list_of_environments_has_every_one():
    from ludus.folder import folders

    listed = ROOT / "src" / "ludus" / "environments"
    text = (listed / "README.md").read_text()
    for name, folder in folders().items():
        assert f"({Path(os.path.relpath(folder, listed)).as_posix()})" in text, name


def test_the_readme_is_read_in_one_go():
    assert len(README.splitlines()) <= 150


def test_every_environment_has_a_readme_with_its_licence():
    from ludus.folder import folders

    for name, folder in folders().items():
        text = (folder / "README.md").read_text()
        assert "Apache-2.0" in text, name
        assert "rovenance" in text, name
