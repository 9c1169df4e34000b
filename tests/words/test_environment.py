"""Finding, loading and configuring environments."""

from __future__ import annotations

import contextlib
import os
import py_compile
import re
import sys

import pytest
from ludus_qualify.oracle import Oracle

import ludus
from ludus import Environment, ScriptedModel, UserError
from ludus import environment as environment_module
from ludus.errors import MissingExtra
from ludus.folder import folders
from ludus.models import open_model
from ludus.runtime.installed import EntryPoint
from ludus.runtime.settings import parse_assignments


def make(folder, yaml="name: mine\nresources: resources.py:Mine\n", code=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environment.yaml").write_text(yaml)
    (folder / "resources.py").write_text(
        code or "from ludus import Resources\n\nclass Mine(Resources):\n    def verify(self, task, response): ...\n"
    )
    return folder


def test_every_built_in_environment_loads_and_has_five_valid_rows():
    for name in folders():
        environment = Environment.load(name)
        assert environment.name == name
        assert environment.description
        assert environment.value
        from ludus.data.rows import Rows

        rows = Rows(environment.rows(), environment.task, 5, 0, environment.with_prompt)
        with contextlib.suppress(MissingExtra):  # of a package that makes rows
            assert rows.survey().rows >= 5


def test_an_environment_folder_loads_by_path(tmp_path):
    folder = make(tmp_path / "mine")
    assert Environment.load(folder).resources.__name__ == "Mine"
    assert Environment.load(str(folder / "environment.yaml")).name == "mine"


@pytest.mark.parametrize(
    ("yaml", "code", "says"),
    [
        ("name: [", None, "is not valid YAML"),
        ("name: 2020-13-45", None, "is not valid YAML: month must be in 1..12"),
        ("- a", None, "must hold a mapping"),
        ("name: x", None, "environment.yaml: resources is missing$"),
        ("name: x\nresource: resources.py:Mine", None, r"has no key resource. Did you mean resources\?$"),
        ("name: x\nresources: [a]", None, r"environment.yaml: resources must be text, not \['a'\]$"),
        (
            "name: x\nresources: resources.py:Mine\ncolour: red",
            None,
            "environment.yaml has no key colour. Known: agent, ",
        ),
        ("name: x\nresources: resources.py:Mine\ndomian: x", None, "has no key domian. Did you mean domain?"),
        (
            "name: x\nresources: resources.py:Mine\ndatasets: [{name: a, path: b, licence: c}]",
            None,
            "environment.yaml has no key datasets.0.licence. Did you mean license?",
        ),
        (
            "name: x\nresources: resources.py:Mine\nsettings: {}",
            "import ludus\nclass Mine(ludus.Resources):\n    class Config(ludus.ResourcesConfig):\n        x: int\n"
            "    def verify(self, task, response): ...",
            r"environment.yaml: settings.x is missing$",
        ),
        (
            "name: x\nresources: resources.py:Mine\nreward_range: [1, -1]",
            None,
            r"environment.yaml: reward_range: the lowest reward must come first, as in \[-1, 1\]",
        ),
        ("name: " + "[" * 5000, None, "environment.yaml is nested too deep"),
        ("name: x\nresources: resources.py:Mien", None, "resources.py has no Mien. Did you mean Mine?"),
        ("name: x\nresources: nowhere.py:Mine", None, "there is no file"),
        ("name: x\nresources: resources", None, "must look like"),
        (
            "name: x\nresources: resources.py:Mine\nagent: {type: simpel}",
            None,
            "environment.yaml: agent: unknown agent simpel. Did you mean simple?",
        ),
        (
            "name: x\nresources: resources.py:Mine\nagent: {max_step: 3}",
            None,
            "environment.yaml: agent has no setting max_step. Did you mean max_steps?",
        ),
        (
            "name: x\nresources: resources.py:Mine\nagent: {max_steps: eight}",
            None,
            "environment.yaml: agent.max_steps must be a whole number, not 'eight'",
        ),
        (
            "name: x\nresources: resources.py:Mine\nagent: {type: 'resources.py:Mine'}",
            None,
            "environment.yaml: agent: resources.py:Mine is not a subclass of Agent",
        ),
        (
            "name: x\nresources: resources.py:Mine\nlimits: {tool: -1}",
            None,
            "limits.tool must be greater than 0",
        ),
        ("name: x\nresources: resources.py:Mine", "def broken(:", r"resources.py:1: SyntaxError"),
        ("name: x\nresources: resources.py:Mine", "x = 1\ny = x / 0", r"resources.py:2: ZeroDivisionError"),
        ("name: x\nresources: resources.py:Mine", "import sys\nsys.exit()", r"resources.py:2: SystemExit"),
        ("name: x\nresources: resources.py:Mine", "class Mine: pass", "is not a subclass of Resources"),
    ],
)
def test_a_mistake_in_an_environment_folder_is_reported_in_one_line(tmp_path, yaml, code, says):
    with pytest.raises(UserError, match=says) as caught:
        Environment.load(make(tmp_path / "mine", yaml, code))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_an_edited_verifier_judges_also_if_its_size_and_its_time_are_the_old_ones(tmp_path):
    code = "from ludus import Resources\n\nclass Mine(Resources):\n    def verify(self, task, response): return 1.0\n"
    source = make(tmp_path / "mine", code=code) / "resources.py"
    before = source.stat()
    py_compile.compile(str(source))  # as Python does when it imports the file
    source.write_text(code.replace("1.0", "0.5"))
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    row = {"responses_create_params": {"input": "hi"}}
    (rollout,) = ludus.collect(tmp_path / "mine", model=ScriptedModel(["x"]), input=[row]).rollouts
    assert rollout.reward == 0.5


def test_files_of_a_folder_import_each_other_in_every_process(tmp_path):
    (tmp_path / "environment.yaml").write_text("name: shop\nresources: resources.py:Shop\n")
    (tmp_path / "prices.py").write_text("def total(number):\n    return number * 2.0\n")
    (tmp_path / "resources.py").write_text(
        "from ludus import Resources\n"
        "from .prices import total\n"
        "def price(number):\n    return total(number)\n"
        "class Shop(Resources):\n"
        "    async def verify(self, task, response):\n"
        "        return await self.in_process(total, 2) + await self.in_process(price, 3)\n"
    )
    (tmp_path / "qualify.py").write_text("from .resources import price\ndef oracle(task):\n    return str(price(1))\n")
    rows = [{"responses_create_params": {"input": "What is it?"}}] * 2
    for workers in (1, 2):
        found = ludus.collect(str(tmp_path), model=ScriptedModel(["2.0"]), input=rows, workers=workers)
        assert [rollout.reward for rollout in found.rollouts] == [10.0, 10.0]
    environment = Environment.load(tmp_path)
    assert Oracle.of(environment).script(environment.task(rows[0])) == "2.0"


def test_a_file_that_is_not_utf_8_is_reported_with_the_bad_byte(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "mine")
    for name in ("mine/environment.yaml", "model.yaml", "script.yaml"):
        (tmp_path / name).write_bytes("name: caf\xe9".encode("latin-1"))
    for name, load in (
        ("mine/environment.yaml", lambda: Environment.load("./mine")),
        ("model.yaml", lambda: open_model("model.yaml")),
        ("script.yaml", lambda: open_model("scripted:script.yaml")),
    ):
        with pytest.raises(UserError, match=rf"{name} is not UTF-8: .* at byte 9\. Save it as UTF-8"):
            load()


def test_an_unknown_environment_gets_a_suggestion(tmp_path):
    with pytest.raises(UserError, match="unknown environment mqca. Did you mean mcqa?"):
        Environment.load("mqca")
    with pytest.raises(UserError, match="has no environment.yaml"):
        Environment.load(str(tmp_path))


@pytest.mark.parametrize(
    ("which", "says"),
    [
        ("~nobody_of_that_name/x", "cannot read ~nobody_of_that_name/x: there is no such user. Write the whole path"),
        ("~nobody_of_that_name/x:y", "cannot read ~nobody_of_that_name/x:y: there is no such user"),
        ("x" * 5000, "(cannot read|unknown environment) x{80}[:.] "),
        ("x:" + "y" * 5000, r"unknown environment x\."),
    ],
)
def test_a_name_that_cannot_be_a_path_is_a_user_error(which, says):
    with pytest.raises(UserError, match=f"^{says}"):
        Environment.load(which)


def test_an_environment_loads_from_a_folder_whose_name_is_not_utf_8(tmp_path):
    place = tmp_path / os.fsdecode(b"caf\xe9")
    try:
        place.mkdir()
    except OSError:
        pytest.skip("this file system takes names in UTF-8 only")
    assert Environment.load(make(place / "mine")).resources.__name__ == "Mine"


def test_configuring_a_copy_leaves_the_original_unchanged():
    original = Environment.load("mcqa")
    copy, steps = original.copy(), original.agent.config.max_steps
    copy.configure({"agent.max_steps": steps + 1, "resources.compat": True, "limits.tool": 1, "data.n": 3})
    assert copy.agent.config.max_steps == steps + 1
    assert original.agent.config.max_steps == steps
    assert not original.config.compat
    assert original.limits.tool != 1
    assert original.data == {}


def test_the_setting_agent_type_replaces_the_agent_of_a_copy():
    original = Environment.load("mcqa")
    copy = original.copy()
    copy.configure({"agent.type": "single_turn"})
    assert type(copy.agent).__name__ == "SingleTurnAgent"
    assert type(original.agent).__name__ == "SimpleAgent"
    copy.configure({"agent.type": "simple", "agent.max_steps": 9})
    assert copy.agent.config.max_steps == 9


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("agent.type=singel_turn", "unknown agent singel_turn. Did you mean single_turn?"),
        ("agent.max_step=3", "agent has no setting max_step. Did you mean max_steps?"),
        ("agent.max_steps=-3", "^agent.max_steps must be greater than 0, not -3$"),
        ("agent.max_steps=many", "^agent.max_steps must be a whole number, not 'many'$"),
        ("agent.max_steps=2.5", "^agent.max_steps must be a whole number, not 2.5$"),
        ("limits.tool=soon", "^limits.tool must be a number, not 'soon'$"),
        ("limits.tool=.inf", "^limits.tool must be a finite number, not inf$"),
        ("resources.compat=maybe", "^resources.compat must be true or false, not 'maybe'$"),
        ("resources.colour=red", "resources has no setting colour"),
        ("agnet.max_steps=3", "unknown setting agnet.max_steps. Did you mean agent?"),
        ("limits.modle=3", "limits has no setting modle. Did you mean model?"),
        ("model=3", "setting model names no key. Write model.KEY=VALUE"),
        ("agent=3", "setting agent names no key. Write agent.KEY=VALUE"),
        ("agent.=3", "setting agent names no key. Write agent.KEY=VALUE"),
        ("model.temperature=3", "unknown setting model.temperature: no model is called here"),
        (
            "resources.grading_mode=x",
            "^resources.grading_mode must be 'strict_single_letter_boxed', .*, not 'x'$",
        ),
    ],
)
def test_a_wrong_setting_is_reported_with_its_name_and_a_hint(setting, says):
    with pytest.raises(UserError, match=says):
        Environment.load("mcqa").configure(parse_assignments([setting]))


def test_set_values_are_parsed_as_yaml_and_invalid_yaml_is_kept_as_text():
    found = parse_assignments(["a.b=4", "a.c=true", "a.d=[x, 2]", "a.e=plain text", "a.f=x: {", "a.g=2020-13-45"])
    assert found == {"a.b": 4, "a.c": True, "a.d": ["x", 2], "a.e": "plain text", "a.f": "x: {", "a.g": "2020-13-45"}
    with pytest.raises(UserError, match="must look like part.key=value"):
        parse_assignments(["nothing"])
    with pytest.raises(UserError, match="--set a.b: .* is nested too deep"):
        parse_assignments(["a.b=" + "[" * 5000])


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("lokal", "unknown model lokal. Did you mean local?"),
        ("openai:", "names no model"),
        ("http://127.0.0.1:1/v1", "names no model. Write it as http://127.0.0.1:1/v1#NAME"),
        ("http:///v1#m", "http:///v1 is not the URL of a model: it names no server. Write it as http://HOST:PORT/v1"),
        ("http://h:99999/v1#m", "is not the URL of a model: Port out of range"),
        ("http://h:x/v1#m", "is not the URL of a model: Port could not be cast"),
        ("vllm:http://[::1/v1#m", "is not the URL of a model: Invalid IPv6 URL"),
        ("http://a..b/v1#m", "is not the URL of a model: .*label empty"),
        ("remote:localhost:8003", "is not the URL of a model: it does not begin with http:// or https://"),
        ("scripted:", "names no script"),
        ("scripted:nowhere.yaml", "cannot read script nowhere.yaml: No such file"),
        ("scripted:no_such_module:f", "cannot load scripted:no_such_module:f"),
        ("local:/nowhere.gguf", "/nowhere.gguf"),
    ],
)
def test_a_wrong_model_spec_is_reported_with_its_mistake(spec, says):
    with pytest.raises(UserError, match=says):
        open_model(spec)


def test_openai_without_a_key_is_refused(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UserError, match="needs a key. Set OPENAI_API_KEY"):
        open_model("openai:gpt-4.1-mini")


def test_the_error_in_a_setting_of_several_types_names_the_setting_only():
    with pytest.raises(UserError, match=r"^model.base_url must be text or a list, not 3$"):
        open_model({"type": "openai", "model": "m"}, {"base_url": 3})
    with pytest.raises(UserError, match=r"^model.retries.busy must be a whole number, not 'x'$"):
        open_model({"type": "openai", "model": "m"}, {"retries": {"busy": "x"}})


def test_settings_for_a_model_passed_as_an_object_are_refused():
    with pytest.raises(UserError, match="model.temperature cannot be set on a model that is passed as an object"):
        open_model(ScriptedModel(["Yes."]), {"temperature": 3})


@pytest.mark.parametrize(
    ("file", "content", "spec", "says"),
    [
        ("no_syntax.py", "def respond(:", "no_syntax", r"no_syntax.py:1: SyntaxError: [^.]+$"),
        ("raises.py", "import json\ndef f():\n    json.loads('x')\nf()", "raises", "raises.py:3: JSONDecodeError: "),
        ("leaves.py", "import sys\nsys.exit(3)", "leaves", "leaves.py:2: SystemExit: 3"),
        ("holds.py", "x = 3", "holds:x", "cannot load scripted:holds:x: x is not a function. Name a function of holds"),
        ("holds.py", "x = 3", "holds", "holds has no respond. Known: none."),
        ("nothing.py", "", ":f", "scripted names no script"),
        ("torn.jsonl", '"a"\n{"text": "b', "torn.jsonl", "script torn.jsonl:2: not JSON: "),
        ("rule.yaml", "- turns:", "rule.yaml", "turns must be a list of turns, not None"),
        ("rule.yaml", "- turns: []", "rule.yaml", "turns must be a list of turns, not \\[\\]"),
    ],
)
def test_a_mistake_in_a_model_script_is_reported_in_one_line(tmp_path, monkeypatch, file, content, spec, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, file.removesuffix(".py"), raising=False)
    (tmp_path / file).write_text(content)
    with pytest.raises(UserError, match=says) as caught:
        open_model(f"scripted:{spec}")
    assert "\n" not in str(caught.value)


def test_a_module_that_cannot_be_imported_is_reported_with_file_and_line(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "ludus_broken_package.py").write_text("x = 1\nfrom json import nothing\n")
    folder = make(tmp_path / "mine", "name: x\nresources: ludus_broken_package:Mine")
    with pytest.raises(UserError, match=r"resources: .*ludus_broken_package.py:2: ImportError: cannot import name"):
        Environment.load(folder)


def test_another_package_cannot_replace_an_agent_of_ours(monkeypatch: pytest.MonkeyPatch):
    installed = environment_module.entry_points("ludus.agents")
    theirs = EntryPoint("simple", "somewhere.else:Agent", "another-package")
    try:
        for entries, ours in (([*installed, theirs], True), ([theirs], False)):
            monkeypatch.setattr(environment_module, "entry_points", lambda group, entries=entries: entries)
            environment_module.agent_types.cache_clear()
            if ours:
                assert environment_module.agent_types()["simple"] == "ludus.agents.simple:SimpleAgent"
            else:
                with pytest.raises(UserError, match="the agents of ludus-gym are not registered"):
                    environment_module.agent_types()
    finally:
        environment_module.agent_types.cache_clear()


def test_a_misspelled_setting_is_suggested_even_if_the_right_one_is_required(tmp_path):
    code = "import ludus\nclass Mine(ludus.Resources):\n    class Config(ludus.ResourcesConfig):\n        level: int\n"
    folder = make(
        tmp_path / "mine",
        "name: x\nresources: resources.py:Mine\nsettings: {levl: 3}",
        f"{code}    def verify(self, task, response): ...\n",
    )
    with pytest.raises(UserError, match=r"settings has no setting levl. Did you mean level\?"):
        Environment.load(folder)


@pytest.mark.parametrize(("typed", "says"), [("mqca", "Did you mean mcqa?"), ("nope", "The closest of ")])
@pytest.mark.parametrize("find", [Environment.load, Environment.named])
def test_an_unknown_environment_gets_the_closest_names_and_the_command_that_lists_all(find, typed, says):
    with pytest.raises(UserError) as caught:
        find(typed)
    said = str(caught.value)
    assert said.startswith(f"unknown environment {typed}. {says}")
    assert said.endswith(" List all: ludus envs")
    assert sum(name in said for name in folders()) <= 6


@pytest.mark.parametrize(
    ("at", "typed", "says"),
    [
        ("shop/bank", "bank", "Did you mean the folder ./shop/bank?"),
        ("bank", "bnak", "Did you mean the folder ./bank?"),
        ("../bank", "bank", "Did you mean the folder ../bank?"),
        (".", "here", "Did you mean the folder .?"),
    ],
)
def test_an_unknown_environment_notices_a_folder_of_that_name(tmp_path, monkeypatch, at, typed, says):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    make(here / at, "name: bank\nresources: resources.py:Mine")
    with pytest.raises(UserError, match=re.escape(f"unknown environment {typed}. {says}")):
        Environment.load(typed)


def test_a_row_that_names_a_folder_gets_the_option_that_names_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "bank", "name: bank\nresources: resources.py:Mine")
    row = {"agent_ref": {"name": "bank"}, "responses_create_params": {"input": "x"}}
    with pytest.raises(UserError, match=re.escape("For the folder ./bank write: --env ./bank")):
        ludus.collect(input=[row], model=ScriptedModel(["x"]))
