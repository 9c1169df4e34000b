"""Common mistakes in an environment's classes: the error is one line with the file, the class and what to write."""

from __future__ import annotations

import functools

import pytest

import ludus
from ludus import Environment, Resources, ScriptedModel, UserError, tool

VERIFY = "    def verify(self, task, response): ...\n"
ROW = {"responses_create_params": {"input": "hi"}}
HEAD = "import ludus\nfrom ludus import Agent, Resources, tool\n\nclass Mine(Resources):\n"
AGENT = (
    f"import ludus\nfrom ludus import Agent, Resources\n\nclass Mine(Resources):\n{VERIFY}\n"
    "class Plays(Agent):\n    async def act(self, episode): ...\n"
)


def make(folder, code, agent="{type: simple}"):
    (folder / "environment.yaml").write_text(f"name: mine\nresources: resources.py:Mine\nagent: {agent}\n")
    (folder / "resources.py").write_text(code)
    return folder


def complaint(action):
    with pytest.raises(UserError) as caught:
        action()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("class Task(ludus.Task):\n        when: datetime", "Mine.Task: name 'datetime' is not defined. Import it"),
        ("class Config(ludus.ResourcesConfig):\n        when: date", "Mine.Config: name 'date' is not defined"),
        ("class Task(ludus.Task):\n        when: Later\n\nclass Later: ...", "Mine.Task: Unable to generate pydantic"),
        ("class Task:\n        x: int", "Mine.Task is not a subclass of Task. Write class Task(ludus.Task)"),
        (
            "class Config:\n        x = 1",
            "Mine.Config is not a subclass of ResourcesConfig. Write class Config(ludus.Re",
        ),
    ],
)
def test_the_error_for_an_unusable_task_or_config_class_names_file_line_and_class(tmp_path, body, says):
    code = f"from __future__ import annotations\n{HEAD}    {body}\n"
    error = complaint(lambda: Environment.load(make(tmp_path, code)))
    assert error.startswith(f"{tmp_path / 'resources.py'}:6: {says}")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (
            "class Config:\n        x = 1",
            "9: Plays.Config is not a subclass of AgentConfig. Write class Config(ludus.A",
        ),
        ("def __init__(self): ...", "7: Plays does not take its config: too many positional arguments. Write "),
        ("def __init__(self, config):\n        {}['x']", "10: KeyError: 'x'"),
    ],
)
def test_the_error_for_an_agent_that_cannot_be_constructed_names_file_and_line(tmp_path, body, says):
    error = complaint(lambda: Environment.load(make(tmp_path, f"{AGENT}    {body}\n", "{type: 'resources.py:Plays'}")))
    assert error.startswith(f"{tmp_path / 'resources.py'}:{says}")


def test_a_resources_class_passed_as_an_object_is_checked_like_one_from_a_file():
    class Bare(Resources):
        class Task:
            x: int

    error = complaint(lambda: ludus.collect(Bare, model=ScriptedModel(["x"]), input=[ROW]))
    assert "test_authors_mistakes.py:" in error
    assert "Bare.Task is not a subclass of Task. Write class Task(ludus.Task)" in error
    made_by_a_call = type("Made", (Resources,), {"Config": {}})
    assert "Made.Config is not a subclass" in complaint(lambda: Environment.load(made_by_a_call))
    assert "int is not a subclass of Resources" in complaint(lambda: Environment.load(int))


@pytest.mark.parametrize("raised", ["KeyError('x')", "SystemExit('x')"])
def test_a_task_class_that_raises_is_reported_with_the_row(tmp_path, raised):
    body = f"    class Task(ludus.Task):\n        def model_post_init(self, context):\n            raise {raised}\n"
    (tmp_path / "rows.jsonl").write_text('{"responses_create_params": {"input": "hi"}}\n')
    folder, name = make(tmp_path, HEAD + body + VERIFY), raised.partition("(")[0]
    error = complaint(lambda: ludus.collect(folder, model=ScriptedModel(["x"]), input=tmp_path / "rows.jsonl"))
    assert error.startswith(f"{tmp_path / 'rows.jsonl'}:1: {name}: ")
    assert error.endswith(". Correct resources.py:7 in model_post_init")


def test_a_config_class_that_raises_is_reported_as_the_settings_of_environment_yaml(tmp_path):
    body = (
        "    class Config(ludus.ResourcesConfig):\n        def model_post_init(self, context):\n            {}['x']\n"
        + VERIFY
    )
    error = complaint(lambda: Environment.load(make(tmp_path, HEAD + body)))
    assert error == f"{tmp_path / 'environment.yaml'}: settings: KeyError: 'x'"


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("@tool\n    @staticmethod\n    def look(item: str): ...", "@tool is for a method, not for a staticmethod"),
        ("@tool\n    @classmethod\n    def look(cls, item: str): ...", "@tool is for a method, not for a classmethod"),
        ("@tool\n    def look(self, *item: str): ...", "the tool look takes *item: str, which a model cannot name"),
        ("@tool\n    def look(self, **item: str): ...", "the tool look takes **item: str, which a model cannot name"),
        ("@tool\n    def look(self, item: str, /): ...", "the tool look takes item: str, which a model cannot name"),
        ("@tool\n    def look(): ...", "the tool look has no self: write def look(self, ...)"),
        ("@tool\n    def look(item: str): ...", "the tool look has no self: write def look(self, ...)"),
        (
            "@tool\n    def look(self): ...\n    @tool(name='look')\n    def other(self): ...",
            "Mine has two tools called look: use @tool(name=...)",
        ),
    ],
)
def test_a_bad_tool_definition_is_refused_with_the_file_that_defines_it(tmp_path, method, says):
    error = complaint(lambda: Environment.load(make(tmp_path, f"{HEAD}    {method}\n")))
    assert f"{tmp_path / 'resources.py'}:" in error
    assert f"TypeError: {says}" in error


def test_a_tool_that_is_overridden_wrapped_or_aliased_is_still_one_tool():
    def loud(method):
        @functools.wraps(method)
        def wrapper(*args, **kwargs):
            return method(*args, **kwargs).upper()

        return wrapper

    class Shop(Resources):
        @tool
        def look(self, item: str) -> str:
            return item

        see = look

    class Loud(Shop):
        @tool
        @loud
        def look(self, item: str) -> str:
            return item

        see = look

    assert list(Shop.toolbox) == list(Loud.toolbox) == ["look"]
    assert Loud.toolbox["look"].schema()["parameters"]["required"] == ["item"]


def test_an_instance_or_another_object_in_place_of_a_class_is_refused():
    class Shop(Resources):
        async def verify(self, task, response):
            return 1.0

    error = complaint(lambda: ludus.collect(Shop(), model=ScriptedModel(["x"]), input=[ROW]))
    assert error == "Shop() is one session, and every rollout needs its own. Pass the class Shop"
    error = complaint(lambda: ludus.collect({"name": "mcqa"}, model=ScriptedModel(["x"]), input=[ROW]))
    assert error.startswith(
        "an environment is a name, a folder, a subclass of Resources or an Environment, not {'name'"
    )
    error = complaint(lambda: ludus.collect(Shop, model=ScriptedModel, input=[ROW]))
    assert error.endswith("Pass an object: ScriptedModel(...)")
    assert "a model is a text, a mapping or a Model object, not 5" in complaint(lambda: ludus.collect(Shop, model=5))


def test_what_is_set_after_a_class_was_made_counts():
    class Late(Resources):
        async def verify(self, task, response):
            return 1.0

    async def open(self, task): ...

    async def verify_group(self, task, responses): ...

    assert (Late.has_session, Late.by_group) == (False, False)
    Late.open, Late.verify_group = open, verify_group
    assert (Late.has_session, Late.by_group) == (True, True)
    Late.judged_by_response = True
    assert (Late.has_session, Late().has_session) == (False, False)

    class Play(ludus.Game): ...

    assert Play.has_session
    Play.judged_by_response = True
    assert not Play.has_session
