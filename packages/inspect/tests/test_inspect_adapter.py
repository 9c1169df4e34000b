"""Which texts name a task, what a task needs, and who answers for whom. Nothing of Inspect is run."""

from __future__ import annotations

from pathlib import Path

import pytest
from inspect_python import TASKS
from ludus_inspect.boxes import spec_of
from ludus_inspect.log_messages import inspect_messages
from ludus_inspect.settings import InspectConfig, InspectTask

from ludus.adapter import adapt, listing, needs
from ludus.environment import Environment
from ludus.errors import UserError


def environment(text: str = "inspect:some_package/some_task") -> Environment:
    return Environment.load(text)


def test_texts_that_name_a_task() -> None:
    assert environment().name == "some_task"
    assert environment(f"inspect:{TASKS}@sums").name == "sums"
    boxed = environment(f"inspect:{TASKS}@boxed").config
    assert isinstance(boxed, InspectConfig)
    assert boxed.task.file == TASKS


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (f"inspect:{TASKS}", "has several tasks. Name one: inspect:.*@behaviours"),
        ("inspect:nothing", "names no task of Inspect. Write inspect:PACKAGE/TASK"),
        ("inspect:missing.py@t", "there is no file missing.py"),
        ("inspect:$(touch x)/y", "names no task"),
    ],
)
def test_texts_that_name_none(text: str, match: str) -> None:
    with pytest.raises(UserError, match=match):
        adapt(text)


def test_settings_with_entries() -> None:
    made = environment()
    made.configure(
        {"resources.args.count": 3, "resources.models.openai/gpt-4o": "scripted:x", "resources.images.a/b:1": "host"}
    )
    config = made.config
    assert isinstance(config, InspectConfig)
    assert (config.args, config.images) == ({"count": 3}, {"a/b:1": "host"})
    assert config.models == {"openai/gpt-4o": "scripted:x"}
    with pytest.raises(UserError, match="resources has no setting argz"):
        made.configure({"resources.argz": 1})


def test_who_answers_for_whom() -> None:
    config = InspectConfig(task=InspectTask(text="a/b"), judge="j", user="u", models={"red": "r"})
    assert config.route("grader", scoring=False) == ("judge", "j")
    assert config.route("", scoring=True) == ("judge", "j")
    assert config.route("user", scoring=True) == ("user", "u")
    assert config.route("openai/gpt-4o", scoring=False) == ("user", "u")
    assert config.route("red", scoring=False) == ("user", "r")


def test_the_needs_of_a_task_are_read_from_its_source(tmp_path: Path) -> None:
    found = {need.name: need for need in needs("inspect:not_a_package_here/x")}
    assert found["not-a-package-here"].met is False
    assert "pip install not-a-package-here" in found["not-a-package-here"].commands[0]
    (tmp_path / "remote.py").write_text(
        "from inspect_ai import Task, task\nfrom inspect_ai.dataset import hf_dataset\n"
        "@task\ndef far():\n    return Task(dataset=hf_dataset('a/b'), sandbox='docker')\n"
    )
    found = {need.name: need for need in needs(f"inspect:{tmp_path / 'remote.py'}")}
    assert found["network"].met is None
    assert "hf_dataset" in found["network"].why
    assert "sandbox" in found
    assert [entry.name for entry in listing("inspect", str(tmp_path))] == ["far"]


def test_images_are_mapped_by_name() -> None:
    config = InspectConfig(task=InspectTask(text="a/b"), images={"a/b:1": "/images/b", "Dockerfile": "host"})
    assert spec_of({"default": {"image": "a/b:1", "where": "compose.yaml"}}, config)[0].image == "/images/b"
    assert spec_of({"box": {"build": "Dockerfile"}}, config)[0].image is None
    assert spec_of({"default": {}}, config)[0].image is None


def test_messages_of_a_log() -> None:
    function = {"name": "f", "arguments": "[1]"}
    said = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [{"id": "c", "function": function}],
    }
    made = inspect_messages([said, {"role": "tool", "tool_call_id": "c", "content": "out"}])
    assert made[0]["content"] == [{"type": "reasoning", "reasoning": "hm"}]
    assert made[0]["tool_calls"][0]["parse_error"] == "not a JSON object: [1]"
    assert made[1] == {"role": "tool", "content": "out", "tool_call_id": "c", "function": "f"}
