"""A receipt identifies the verifier, the task and the response of a reward, and changes only with them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludus
from ludus import Environment, Resources, Response, ScriptedModel, Task, Verdict
from ludus.record import task_row
from ludus.response import Items, message
from ludus.store import receipts
from ludus.store.receipts import Signer

ROW: dict[str, Any] = {"responses_create_params": {"input": "Say it."}, "wanted": "yes"}
SOURCE = """
import ludus
from ludus.graders.answers import last_boxed
from echo_helper import nothing

class Echo(ludus.Resources):
    class Config(ludus.ResourcesConfig):
        judge: str | None = None

    async def verify(self, task, response):
        return float(response.output_text == task.wanted)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "echo"
    made.mkdir()
    (made / "environment.yaml").write_text("name: echo\nresources: resources.py:Echo\n")
    (made / "resources.py").write_text(SOURCE)
    (tmp_path / "echo_helper.py").write_text("nothing = None\n")
    monkeypatch.syspath_prepend(tmp_path)
    return made


def signed(folder: Path, row: dict[str, Any] = ROW, text: str = "yes", **settings: Any) -> list[str]:
    environment = Environment.load(folder)
    environment.configure({f"resources.{key}": value for key, value in settings.items()})
    return Signer(environment).sign(row, [message(text)]).split(".")


def test_a_receipt_has_a_part_for_the_verifier_the_task_and_the_response(folder: Path):
    verifier, task, response = signed(folder)
    assert signed(folder, {**ROW, "wanted": "no"}) == [verifier, signed(folder, {**ROW, "wanted": "no"})[1], response]
    assert signed(folder, {**ROW, "wanted": "no"})[1] != task
    assert signed(folder, text="no")[:2] == [verifier, task]
    assert signed(folder, text="no")[2] != response


@pytest.mark.parametrize("settings", [{"compat": True}, {"judge": "openai:gpt"}])
def test_settings_and_the_judge_change_the_verifier_part(folder: Path, settings: dict[str, Any]):
    assert signed(folder, **settings)[0] != signed(folder)[0]
    assert signed(folder, **settings)[1:] == signed(folder)[1:]


def test_source_files_change_the_verifier_part_and_tests_and_notes_do_not(folder: Path):
    before = signed(folder)
    for name in ("test_echo.py", "conftest.py", "README.md", ".hidden.py", "notes.txt"):
        (folder / name).write_text("anything = 1\n")
    assert signed(folder) == before
    (folder / "grading.py").write_text("anything = 1\n")
    assert signed(folder)[0] != before[0]
    (folder / "grading.py").unlink()
    (folder / "resources.py").write_text(SOURCE.replace("==", "!="))
    assert signed(folder)[0] != before[0]


def test_a_change_in_an_imported_grader_changes_the_verifier_part(folder: Path, tmp_path: Path, monkeypatch):
    package = tmp_path / "installed" / "ludus"
    shutil.copytree(receipts._GRADERS, package / "graders")
    monkeypatch.setattr(receipts, "_ROOT", package)
    monkeypatch.setattr(receipts, "_GRADERS", package / "graders")
    before = signed(folder)
    (package / "graders" / "units.py").write_text("# this grader is not imported by the environment")
    assert signed(folder) == before
    (package / "graders" / "answers.py").write_text("# another way to find a box")
    assert signed(folder)[0] != before[0]


def test_moving_the_folder_does_not_change_a_receipt(folder: Path, tmp_path: Path):
    elsewhere = tmp_path / "deep" / "down"
    elsewhere.parent.mkdir()
    before = signed(folder)
    folder.rename(elsewhere)
    assert signed(elsewhere) == before


def test_key_order_task_id_and_agent_ref_do_not_change_a_receipt(folder: Path):
    row = {"agent_ref": {"name": "echo"}, **dict(reversed(ROW.items())), "task_id": 7}
    assert signed(folder, row) == signed(folder)


def test_the_code_of_a_class_without_a_source_file_changes_the_verifier_part():
    bodies = ("return 1.0", "return 0.0")
    made = []
    for body in bodies:
        scope: dict[str, Any] = {"Resources": Resources, "__name__": "nowhere"}
        exec(f"class Made(Resources):\n    async def verify(self, task, response):\n        {body}\n", scope)
        made.append(Signer(Environment.load(scope["Made"])).verifier)
    assert made[0] != made[1]


def test_a_subclass_has_another_verifier_part_than_its_parent():
    class Child(Polite):
        """Judges as its parent does."""

    alone, child = (Signer(Environment.load(kind)).verifier for kind in (Polite, Child))
    assert alone != child


class Polite(Resources):
    """Returns the wanted and the given answer as verdict values."""

    class Task(ludus.Task):
        wanted: str
        usage: str = ""

    async def verify(self, task: Task, response: Response) -> Verdict:
        answer = response.output_text
        return Verdict(float(answer == task.wanted), wanted=task.wanted.upper(), heard=answer)


def test_the_receipt_of_a_collected_row_can_be_computed_again_from_the_row(tmp_path: Path):
    rows = [{**ROW, "usage": "daily", "task_id": 5}, {**ROW, "wanted": "no"}]
    ludus.collect(Polite, model=ScriptedModel(["yes"]), input=rows, output=tmp_path / "run")
    signer = Signer(Environment.load(Polite))
    stored = [json.loads(line) for line in (tmp_path / "run" / "rollouts.jsonl").read_text().splitlines()]
    assert len(stored) == 2
    for row in stored:
        assert row["receipt"] == signer.sign(task_row(row), row["response"]["output"])
    first = next(row for row in stored if row["task_id"] == "5")
    assert (first["wanted"], first["task_fields"]) == ("YES", {"wanted": "yes", "usage": "daily", "task_id": 5})
    again = [ludus.Rollout.from_row(row).to_row() for row in stored]
    assert [row["receipt"] for row in again] == [row["receipt"] for row in stored]
    assert [row["task_fields"] for row in again] == [row["task_fields"] for row in stored]


def test_a_failed_rollout_has_no_receipt():
    class Broken(Resources):
        async def verify(self, task: Any, response: Any) -> float:
            raise ValueError("broken")

    rollout = ludus.collect(Broken, model=ScriptedModel(["yes"]), input=[ROW]).rollouts[0]
    assert rollout.error is not None
    assert rollout.receipt is None
    assert "receipt" not in rollout.to_row()


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(row=st.dictionaries(st.text(), _json), item=st.dictionaries(st.text(), _json))
def test_writing_and_reading_a_row_keeps_its_receipt(row: dict[str, Any], item: dict[str, Any]):
    signer = Signer(Environment.load(Polite))
    items = Items([item])
    items.encoded()
    stored = orjson.loads(orjson.dumps({"row": row, "output": [item]}))
    assert signer.sign(row, items) == signer.sign(stored["row"], stored["output"])


def test_values_that_are_not_json_can_be_signed():
    signer = Signer(Environment.load(Polite))
    assert signer.sign({"wanted": {1}, 2: "x"}, [message("\ud800")])  # type: ignore[dict-item]


@pytest.mark.parametrize("content", [b"def (", b"print 'two'", b"\0", b"# coding: nonsense", b"\xff", b"x = '\\d'"])
def test_a_file_in_the_folder_that_is_no_python_counts_by_its_bytes(folder: Path, content: bytes):
    before = signed(folder)
    (folder / "notes.py").write_bytes(content)
    (folder / "folder.py").mkdir()
    (folder / "dangling.py").symlink_to(folder / "nothing.py")
    assert signed(folder)[0] != before[0]
    assert signed(folder) == signed(folder)
