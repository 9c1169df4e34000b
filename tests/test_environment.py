"""Finding, loading and configuring environments."""

from __future__ import annotations

import pytest

from ludus import Environment, UserError
from ludus.environment import folders
from ludus.models import open_model
from ludus.settings import parse_assignments


def make(folder, yaml="name: mine\nresources: resources.py:Mine\n", code=None):
    folder.mkdir(exist_ok=True)
    (folder / "environment.yaml").write_text(yaml)
    (folder / "resources.py").write_text(
        code or "from ludus import Resources\n\nclass Mine(Resources):\n    def verify(self, task, response): ...\n"
    )
    return folder


def test_every_built_in_environment_loads_and_has_rows_that_validate():
    for name in folders():
        environment = Environment.load(name)
        assert environment.name == name
        assert environment.description
        assert environment.value
        from ludus.collection.rows import Rows

        assert Rows(environment.dataset(), environment.task).survey().rows >= 5


def test_a_folder_of_ones_own_works_by_path(tmp_path):
    folder = make(tmp_path / "mine")
    assert Environment.load(folder).resources.__name__ == "Mine"
    assert Environment.load(str(folder / "environment.yaml")).name == "mine"


@pytest.mark.parametrize(
    ("yaml", "code", "says"),
    [
        ("name: [", None, "is not valid YAML"),
        ("- a", None, "must hold a mapping"),
        ("name: x", None, "resources: Field required"),
        ("name: x\nresources: resources.py:Mine\ncolour: red", None, "colour: Extra inputs"),
        ("name: x\nresources: resources.py:Mien", None, "resources.py has no Mien. Did you mean Mine?"),
        ("name: x\nresources: nowhere.py:Mine", None, "there is no file"),
        ("name: x\nresources: resources", None, "must look like"),
        (
            "name: x\nresources: resources.py:Mine\nagent: {type: simpel}",
            None,
            "unknown agent simpel. Did you mean simple?",
        ),
        (
            "name: x\nresources: resources.py:Mine\nagent: {max_step: 3}",
            None,
            "has no setting max_step. Did you mean max_steps?",
        ),
        ("name: x\nresources: resources.py:Mine\nlimits: {tool: -1}", None, "limits.tool=-1"),
        ("name: x\nresources: resources.py:Mine", "def broken(:", r"resources.py:1: SyntaxError"),
        ("name: x\nresources: resources.py:Mine", "x = 1\ny = x / 0", r"resources.py:2: ZeroDivisionError"),
        ("name: x\nresources: resources.py:Mine", "class Mine: pass", "is not a subclass of Resources"),
    ],
)
def test_a_mistake_in_an_environment_is_one_line_that_names_it(tmp_path, yaml, code, says):
    with pytest.raises(UserError, match=says) as caught:
        Environment.load(make(tmp_path / "mine", yaml, code))
    assert "\n" not in str(caught.value)


def test_an_unknown_environment_gets_a_suggestion(tmp_path):
    with pytest.raises(UserError, match="unknown environment mqca. Did you mean mcqa?"):
        Environment.load("mqca")
    with pytest.raises(UserError, match="has no environment.yaml"):
        Environment.load(str(tmp_path))


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("agent.max_step=3", "agent has no setting max_step. Did you mean max_steps?"),
        ("agent.max_steps=-3", "agent.max_steps=-3: Input should be greater than 0"),
        ("agent.max_steps=many", "agent.max_steps='many'"),
        ("resources.colour=red", "resources has no setting colour"),
        ("agnet.max_steps=3", "unknown setting agnet.max_steps. Did you mean agent?"),
        ("limits.modle=3", "limits has no setting modle. Did you mean model?"),
    ],
)
def test_a_wrong_setting_is_one_line_with_a_suggestion(setting, says):
    with pytest.raises(UserError, match=says):
        Environment.load("mcqa").configure(parse_assignments([setting]))


def test_settings_are_read_as_they_look():
    found = parse_assignments(["a.b=4", "a.c=true", "a.d=[x, 2]", "a.e=plain text", "a.f=x: {"])
    assert found == {"a.b": 4, "a.c": True, "a.d": ["x", 2], "a.e": "plain text", "a.f": "x: {"}
    with pytest.raises(UserError, match="must look like part.key=value"):
        parse_assignments(["nothing"])


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("lokal", "unknown model lokal. Did you mean local?"),
        ("openai:", "names no model"),
        ("http://127.0.0.1:1/v1", "names no model. Write it as http://127.0.0.1:1/v1#NAME"),
        ("scripted:", "names no script"),
        ("scripted:nowhere.yaml", "cannot read script nowhere.yaml: No such file"),
        ("scripted:no_such_module:f", "cannot load scripted:no_such_module:f"),
        ("local:/nowhere.gguf", "/nowhere.gguf"),
    ],
)
def test_a_wrong_model_is_one_line(spec, says):
    with pytest.raises(UserError, match=says):
        open_model(spec)


def test_openai_needs_a_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UserError, match="needs a key. Set OPENAI_API_KEY"):
        open_model("openai:gpt-4.1-mini")
