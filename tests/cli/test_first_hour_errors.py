"""The mistakes of the first hour: each error says what is wrong, where, and what to write instead."""

from __future__ import annotations

import sys
from pathlib import Path

import forked
import pytest

import ludus
from ludus import Environment, Resources, ScriptedModel, UserError, Verdict
from ludus.cli.new import _check_name, write
from ludus.data.rows import Rows
from ludus.models import open_model
from ludus.runtime.settings import parse_assignments, read_yaml

ROW = {"responses_create_params": {"input": "x"}}


def message(call, *arguments) -> str:
    with pytest.raises(UserError) as caught:
        call(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    write(tmp_path, "shop")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "reason", "better"),
    [
        ("9x", "it begins with a digit, and must begin with a lower case letter", "my_9x"),
        ("class", "it is a word of the Python language", "my_class"),
        ("My-Game", "use lower case letters, digits and _, and begin with a letter", "my_game"),
        ("_x", "use lower case letters, digits and _, and begin with a letter", "x"),
        ("x" * 65, "it is longer than 64 letters", "x" * 64),
        ("§", "use lower case letters, digits and _, and begin with a letter", "my_game"),
    ],
)
def test_a_bad_environment_name_gets_its_reason_and_a_name_that_works(name, reason, better):
    said = message(_check_name, name)
    assert said.startswith(f"{name!r} is not") or len(name) > 60
    assert said.endswith(f"is not a valid environment name: {reason}. Try: ludus new {better}")
    _check_name(better)


def test_a_missing_data_file_names_the_key_that_points_to_it(shop):
    (shop / "data" / "example.jsonl").unlink()
    said = message(Environment.load(shop).rows)
    assert said.startswith(f"environment shop: there is no file {shop}/data/example.jsonl for dataset example. ")
    assert f"datasets.example.path in {shop}/environment.yaml" in said
    assert said.endswith("or name other rows (collect --input FILE, data validate FILE)")


def test_an_empty_data_file_says_what_to_write_into_it(shop):
    (shop / "data" / "example.jsonl").write_text("\n")
    environment = Environment.load(shop)
    rows = Rows(environment.rows(), environment.task)
    says = "holds no rows. Write one JSON object a line into it, or name another file with --input FILE"
    assert message(rows.survey).endswith(says)
    assert message(rows.nth, 1).endswith(says)


def test_an_empty_list_of_rows_is_told_to_pass_one():
    assert message(Rows([], lambda row: row).survey) == "rows holds no rows. Pass a row"


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("max_steps=3", "Write agent.max_steps"),
        ("verify=3", "Write limits.verify"),
        ("compat=true", "Write resources.compat"),
        ("memory=2GiB", "Write worker.memory"),
        ("colour=red", "Known: agent, data, limits, model, resources, worker."),
    ],
)
def test_a_setting_without_its_part_is_told_which_part_has_it(shop, setting, hint):
    said = message(Environment.load(shop).configure, parse_assignments([setting]))
    assert said == f"unknown setting {setting.partition('=')[0]}. {hint}"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("first_polcy:answer", "No module named 'first_polcy'. Did you mean scripted:first_policy:answer?"),
        ("first_policy:anser", "first_policy has no anser. Did you mean answer?"),
        ("first_policy", "first_policy has no respond. Known: answer."),
        ("first_policy:WORDS", "WORDS is not a function. Name a function of first_policy: answer"),
        ("first_policy.py:answer", "Write a module without its suffix: scripted:first_policy:answer"),
        ("elsewhere:f", "A module is a file elsewhere.py in this folder, or an installed package"),
        ("inside.elsewhere:f", "A module is a file inside/elsewhere.py in this folder, or an installed package"),
        ("second_policy:f", "No module named 'not_installed_here'. second_policy imports it: install it"),
    ],
)
def test_a_typo_in_a_scripted_model_is_told_the_right_spelling(tmp_path, monkeypatch, spec, says):
    (tmp_path / "first_policy.py").write_text("WORDS = ['x']\n\n\ndef answer(request):\n    return 'x'\n")
    (tmp_path / "second_policy.py").write_text("import not_installed_here\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "first_policy", raising=False)
    said = message(open_model, f"scripted:{spec}")
    assert said.startswith(f"cannot load scripted:{spec}: ")
    assert said.endswith(says)


class ReturnsText(Resources):
    async def verify(self, task, response):
        return "yes"


class BuildsFromText(Resources):
    def verify(self, task, response):
        return Verdict("yes")  # type: ignore[arg-type]


class TakesAName(Resources):
    def verify(self, task, response):
        return Verdict(1.0, response="x")


class GroupOfText(Resources):
    def verify_group(self, task, responses):
        return ["yes" for _ in responses]


class TooFew(Resources):
    async def verify_group(self, task, responses):
        return []


@pytest.mark.parametrize(
    ("resources", "line"),
    [
        (ReturnsText, "    async def verify(self, task, response):"),
        (BuildsFromText, '        return Verdict("yes")  # type: ignore[arg-type]'),
        (TakesAName, "    def verify(self, task, response):"),
        (GroupOfText, "    def verify_group(self, task, responses):"),
        (TooFew, "    async def verify_group(self, task, responses):"),
    ],
)
def test_a_bad_verdict_names_the_file_and_the_line_of_the_verifier(resources, line):
    found = ludus.collect(resources, model=ScriptedModel(["x"]), input=[ROW])
    (rollout,) = found.failures()
    assert (rollout.error.kind, rollout.error.stage, rollout.reward) == ("bad_verdict", "verify", None)
    file, number = rollout.error.where.partition(" in ")[0].split(":")
    assert (file, Path(__file__).read_text().splitlines()[int(number) - 1]) == (Path(__file__).name, line)


def test_a_reward_that_is_text_says_what_to_return():
    (rollout,) = ludus.collect(ReturnsText, model=ScriptedModel(["x"]), input=[ROW]).failures()
    assert rollout.error.cause == "a reward must be a finite number, not 'yes': return a number or a Verdict"


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("agent:\n\ttype: simple\n", 2, 1, "the line is indented with a tab. Indent it with spaces"),
        ("name: x\nresources y\nagent: 1\n", 2, 1, "expected KEY: VALUE, found 'resources y'. Write a colon and a"),
        ("name: a shop: it sells\n", 1, 13, "a value contains a colon and a space. Put the value in quotes"),
        ("name: x\n domain: y\n", 2, 8, "the line is indented more than the line before, which has a value. Indent"),
        ("agent:\n    type: a\n  b: 3\n", 3, 3, "expected the indentation of the lines before. Indent all keys"),
        ("datasets:\n  - name: a\n  path: b\n", 3, 3, "expected the indentation of the lines before. Indent"),
        ('name: "x\nresources: y\n', 1, 7, "expected a second quote: the one here is never closed. Close the quote"),
        ("name: 'it's'\n", 1, 11, "expected the end of the line after a value. Put the whole value in one pair"),
        ("a: [{b: c]\n", 1, 10, "expected ',' or '}' after what began at line 1, column 5. Close the bracket"),
        ("a: [b, c\nd: e\n", 2, 2, "expected ',' or ']' after what began at line 1, column 4. Close the bracket"),
        ("name: @x\n", 1, 7, "a value begins with @, a special character of YAML. Put the value in quotes"),
        ("name: *x\n", 1, 7, "a value begins with *, a special character of YAML. Put the value in quotes"),
        ("name: !x y\n", 1, 7, "a value begins with !, a special character of YAML. Put the value in quotes"),
        ('name: "\\d"\n', 1, 9, r"\d means nothing in double quotes. Use single quotes, or write \\"),
        ("datasets: - x\n", 1, 11, "a list begins on the line of its key. Write each - on a line of its own"),
        ("a: 1\n---\nb: 2\n", 2, 1, "a second document begins here. Remove the line ---"),
        ("a: |x\n  b\n", 1, 5, "while scanning a block scalar, expected chomping"),
    ],
)
def test_a_yaml_mistake_names_its_line_its_column_and_what_was_expected(tmp_path, text, line, column, says):
    (tmp_path / "environment.yaml").write_text(text)
    said = message(read_yaml, tmp_path / "environment.yaml")
    place = f"{tmp_path}/environment.yaml is not valid YAML: line {line}, column {column}: "
    assert said.startswith(place + says)


def test_a_folder_of_runs_is_told_to_name_one_of_them(tmp_path):
    from ludus.cli.show import show

    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "rollouts.jsonl").write_text("")
    assert message(show, tmp_path).endswith(f"Name one of the runs in it: ludus show {tmp_path}/first")


@pytest.mark.parametrize("workers", [[], ["--workers", "1"]])
def test_a_call_without_await_is_one_line_that_says_so(tmp_path, workers):
    (tmp_path / "environment.yaml").write_text("name: forgets\nresources: resources.py:Forgets\n")
    (tmp_path / "resources.py").write_text(
        "from ludus import Resources\n\n\nclass Forgets(Resources):\n"
        "    async def save(self):\n        pass\n\n"
        "    async def verify(self, task, response):\n        self.save()\n        return 1.0\n"
    )
    (tmp_path / "rows.jsonl").write_text('{"responses_create_params": {"input": "hi"}}\n')
    (tmp_path / "script.jsonl").write_text('"done"\n')
    words = "collect . --model scripted:script.jsonl --input rows.jsonl --output out".split()
    done = forked.run([*forked.START, *words, *workers], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "warning: Forgets.save never ran: write `await` before the call" in done.stderr
    assert "tracemalloc" not in done.stderr


def test_files_that_import_each_other_are_called_a_circular_import(tmp_path):
    (tmp_path / "environment.yaml").write_text("name: circle\nresources: resources.py:Circle\n")
    (tmp_path / "resources.py").write_text(
        "from ludus import Resources\nfrom .prices import total\n\nRATE = 2\n\n\nclass Circle(Resources):\n"
        "    async def verify(self, task, response):\n        return 1.0\n"
    )
    circle = (
        "a circular import: resources.py imports prices.py imports resources.py. Move what they share into a third file"
    )
    for line in ("from .resources import RATE", "from . import resources\n\nRATE = resources.RATE"):
        (tmp_path / "prices.py").write_text(f"{line}\n\n\ndef total():\n    return RATE\n")
        said = message(Environment.load, tmp_path)
        assert circle in said, said
    (tmp_path / "resources.py").write_text("from .prices import total\n")
    (tmp_path / "prices.py").write_text("from .taxes import RATE\n")
    (tmp_path / "taxes.py").write_text("from .prices import total\n")
    said = message(Environment.load, tmp_path)
    assert "a circular import: prices.py imports taxes.py imports prices.py. Move" in said, said


@pytest.mark.parametrize("name", ["gpt-4", "gpt-4.1-mini", "claude-sonnet"])
def test_the_name_of_a_model_alone_is_answered_with_the_spec_to_write(name):
    assert f"A model of a provider is written openai:{name}." in message(open_model, name)


def test_a_setting_of_the_model_without_its_part_names_the_part(shop):
    assert message(Environment.load(shop).configure, {"temperature": 1}).endswith("Write model.temperature")
    assert "--set model.temperature=0.7" in message(parse_assignments, ["temperature"])


def test_a_line_that_was_cut_says_that_it_ends_early(tmp_path):
    (tmp_path / "cut.jsonl").write_text('{"responses_create_params": {"input": "x"\n')
    said = message(Rows(tmp_path / "cut.jsonl", lambda row: row).survey)
    assert "cut.jsonl:1: not JSON: the line ends early, after column 41" in said


def test_a_parameter_of_a_tool_without_a_type_is_a_warning(tmp_path):
    class Notes(Resources):
        @ludus.tool
        async def add_note(self, text, urgent: bool = False) -> str:
            """Add a note."""
            return "ok"

        async def verify(self, task, response):
            return 1.0

    result = ludus.collect(Notes, model=ScriptedModel(["x"]), input=[ROW], output=tmp_path / "out")
    (warning,) = [line for line in result.warnings if "has no type" in line]
    assert "text of the tool add_note has no type: a model may send anything. Write text: str" in warning
