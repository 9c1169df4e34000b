"""Qualification passes all built-in environments, and fails broken verifiers with the right reason."""

from __future__ import annotations

import functools
import importlib
import io
import json
import random
from pathlib import Path
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner
from ludus_qualify.card import Card, exploit_limit
from ludus_qualify.command import qualify as command
from ludus_qualify.command import show_card
from ludus_qualify.policies import NAMES
from ludus_qualify.rates import Thresholds
from ludus_qualify.run import qualify
from rich.console import Console

import ludus
from ludus import Environment, Resources, Response, UserError, tool
from ludus.cli.commands import Command
from ludus.errors import MissingExtra
from ludus.folder import folders
from ludus.graders.answers import last_boxed
from ludus.model import Request
from ludus.qualify.dummies import dummy
from ludus.qualify.judge import respond

#: An example whose every rollout earns 1: it has no wrong answers.
PAYS_ALWAYS = "example_single_tool_call"
#: Environments from a server or another package: other test files qualify them.
ELSEWHERE = {"openenv", "verifiers"}
ROWS: list[dict[str, Any]] = [
    {"responses_create_params": {"input": f"What is {n} + 200? Use \\boxed{{}}."}, "expected_answer": str(n + 200)}
    for n in (3, 5, 17, 29, 41)
]


class Sums(Resources):
    """A sound verifier: it accepts only the expected answer in the last box."""

    class Task(ludus.Task):
        expected_answer: str

    async def verify(self, task: Any, response: Response) -> float:
        return float((last_boxed(response.output_text) or "").strip(" $") == task.expected_answer)


class RewardsEnumeration(Sums):
    async def verify(self, task: Any, response: Response) -> float:
        return float(any(number in response.output_text for number in ("203", "205", "217", "7")))


class SharesStateBetweenRollouts(Sums):
    current: ClassVar[str] = ""

    async def open(self, task: Any) -> None:
        SharesStateBetweenRollouts.current = task.expected_answer

    async def verify(self, task: Any, response: Response) -> float:
        return float((last_boxed(response.output_text) or "").strip(" $") == self.current)


class RandomReward(Sums):
    async def verify(self, task: Any, response: Response) -> float:
        return float(random.random() < 0.05)


class ChangesTheTask(Sums):
    async def verify(self, task: Any, response: Response) -> float:
        reward = await super().verify(task, response)
        task.expected_answer = "taken"
        return reward


class CrashesOnEmptyAnswer(Sums):
    async def verify(self, task: Any, response: Response) -> float:
        return float(response.output_text.split()[0] != "") and await super().verify(task, response)


class RefusesDollars(Sums):
    """Sound but strict: it refuses `$203$` and nothing else that is right."""

    async def verify(self, task: Any, response: Response) -> float:
        return float((last_boxed(response.output_text) or "").strip() == task.expected_answer)


class IgnoresTheSign(Sums):
    async def verify(self, task: Any, response: Response) -> float:
        return float((last_boxed(response.output_text) or "").strip(" $-") == task.expected_answer)


class NeverRewards(Sums):
    async def verify(self, task: Any, response: Response) -> float:
        return 0.0


class RewardsAnyToolCall(Sums):
    @tool
    async def press(self, times: int) -> str:
        """Press the button."""
        self.pressed = True
        return "ok"

    async def verify(self, task: Any, response: Response) -> float:
        return float(getattr(self, "pressed", False) or await super().verify(task, response))


def shown_card(card: Card) -> str:
    """The card as a terminal shows it, with single spaces."""
    console = Console(width=200, record=True, file=io.StringIO())
    show_card(console, card)
    return " ".join(console.export_text().split())


@functools.cache
def card_of(resources: type[Resources]) -> Card:
    """The card of a verifier of sums. Several tests look at the same one."""
    return qualify(resources, input=ROWS * 2)


def failed_checks(card: Card) -> dict[str, str]:
    return {check.name: check.reason for check in card.checks if check.status == "failed"}


#: Not those with slow verifiers, which run programs or prove formulas. All of qualification takes up to minutes for one
#: row there; `test_no_heavy_environment_fails_a_check` and test_cheats.py play a part of it.
@pytest.mark.parametrize(
    "name",
    sorted(
        set(folders())
        - {"code_gen", "code_tests", "gymnasium", "math_with_code", "math_with_judge", "mini_swe_agent"}
        - {"reasoning_gym", "swerl_gen", "terminal", "text_to_sql", "chess", "proofs", "tau2", "retrieval", "verilog"}
        - {"agentdojo", "browser"}
        - ELSEWHERE
    ),
)
def test_every_built_in_environment_can_be_trusted(name):
    try:
        card = qualify(name, limit=5, odd=0)  # tests/qualify/test_odd_answers.py plays odd answers
    except MissingExtra as error:
        pytest.skip(str(error))
    assert not failed_checks(card)
    assert card.not_shown == (["wrong answers (write breaking(task))"] if name == PAYS_ALWAYS else [])
    assert not card.false_negative.examples
    assert card.oracle is not None
    assert card.oracle >= 1.0  # some games give more
    assert {exploit.family for exploit in card.exploits} >= {"empty", "echo", "tag_stuffing", "tool_spam"}


def test_a_sound_verifier_passes_every_check():
    card = card_of(Sums)
    assert {check.status for check in card.checks} == {"ok"}
    assert card.oracle == 1.0
    assert card.false_positive.total
    assert card.false_negative.total


def test_all_families_of_bad_policies_are_tried_on_tasks_with_options():
    card = qualify("mcqa", limit=4)
    assert [exploit.family for exploit in card.exploits] == [name for name in NAMES if name != "cheat"]


@pytest.mark.parametrize(
    ("broken", "check", "words"),
    [
        (RewardsEnumeration, "exploits", "enumeration/numbers"),
        (SharesStateBetweenRollouts, "isolated", "played among others"),
        (RandomReward, "deterministic", "played again"),
        (ChangesTheTask, "no side effects", "the task was changed"),
        (CrashesOnEmptyAnswer, "every answer judged", "IndexError"),
        (IgnoresTheSign, "false positives", "sign"),
        (NeverRewards, "oracle", "0.000"),
        (RewardsAnyToolCall, "exploits", "tool_spam"),
    ],
)
def test_a_broken_verifier_fails_for_the_right_reason(broken, check, words):
    card = card_of(broken)
    assert not card.passed
    assert words in failed_checks(card)[check]


@pytest.mark.parametrize(
    ("broken", "checks"),
    [
        (SharesStateBetweenRollouts, {"isolated"}),
        (CrashesOnEmptyAnswer, {"every answer judged", "odd answers judged"}),
        (IgnoresTheSign, {"false positives"}),
        (RewardsAnyToolCall, {"exploits"}),
        (ChangesTheTask, {"no side effects"}),
    ],
)
def test_a_broken_verifier_fails_only_the_check_for_its_fault(broken, checks):
    assert set(failed_checks(card_of(broken))) == checks


class NoAnswer(Resources):
    async def verify(self, task: Any, response: Response) -> float:
        return 0.0


def test_rows_without_an_answer_skip_the_checks_that_need_one():
    card = qualify(NoAnswer, input=[{"responses_create_params": {"input": "Hello."}}] * 5)
    assert card.passed
    assert {check.name for check in card.checks if check.status == "skipped"} == {"oracle", "false positives"}


def test_a_card_with_skipped_checks_says_what_was_not_shown_and_never_that_it_can_be_trusted():
    card = qualify(NoAnswer, input=[{"responses_create_params": {"input": "Hello."}}] * 5)
    assert card.verdict == "not shown"
    assert card.not_shown == ["right answers (write oracle(task))", "wrong answers (write breaking(task))"]
    assert card.to_row()["not_shown"] == card.not_shown
    shown = shown_card(card)
    assert "can be trusted" not in shown
    assert "Not tested" in shown
    assert "right answers (write oracle(task))" in shown


@pytest.mark.parametrize("rows", [1, 2, 4, 5])
def test_fewer_than_five_rows_are_not_called_trusted_and_their_number_is_named(rows):
    card = qualify(Sums, input=ROWS[:rows])
    shown, plural = shown_card(card), "" if rows == 1 else "s"
    assert card.passed
    if rows < 5:
        assert (card.verdict, card.not_shown) == ("not shown", [f"more than {rows} row{plural}"])
        assert "can be trusted" not in shown
        assert f"enough rows skipped {rows} used, and 5 are needed: use more with --limit or --input" in shown
    else:
        assert (card.verdict, card.not_shown) == ("trusted", [])
        assert (
            "can be trusted. Every check passed on 5 rows. A fault in fewer than 45% of all rows may go unseen."
            in shown
        )


def test_a_card_says_that_no_bad_policy_earned_anything():
    assert "best exploit 0.000: no bad policy earned anything" in shown_card(card_of(Sums))


def test_rows_without_an_answer_beside_rows_with_one_are_not_shown_to_be_judged_right():
    class SumsOrNone(Sums):
        class Task(ludus.Task):
            expected_answer: str | None = None

    card = qualify(SumsOrNone, input=[*ROWS, {"responses_create_params": {"input": "Guess."}}])
    assert card.verdict == "not shown"
    assert card.not_shown == ["right answers to 1 of 6 rows"]
    assert "can be trusted" not in shown_card(card)


def test_the_card_says_which_field_the_right_answers_come_from():
    card = card_of(Sums)
    assert card.gold_from == {"the field expected_answer of the rows": 10}
    assert "right answers from the field expected_answer of the rows" in shown_card(card)


@pytest.mark.parametrize("name", ["gold", "oracle"])
def test_the_card_says_which_function_gave_the_right_answers(folder, name):
    (folder / "qualify.py").write_text(f"def {name}(task):\n    return 'x'\n")
    card = qualify(folder, input=folder / "rows.jsonl")
    assert card.to_row()["gold_from"] == {f"{name}(task) in qualify.py": 1}


def test_a_failed_oracle_says_where_its_answers_come_from():
    assert "the field expected_answer of the rows" in failed_checks(card_of(NeverRewards))["oracle"]


def test_a_strict_verifier_is_sound_and_has_a_rate_of_strictness():
    card = qualify(RefusesDollars, input=ROWS)
    assert card.verdict == "trusted"
    assert (card.false_negative.wrong, card.false_negative.total) == (5, 10)
    assert all("dollars" in example for example in card.false_negative.examples)
    shown = shown_card(card)
    assert "strictness" in shown
    assert "0.500 (5 of 10" in shown
    assert "cannot be trusted" not in shown


def test_a_limit_on_strictness_is_kept_where_it_is_asked_for():
    card = qualify(RefusesDollars, input=ROWS, thresholds=Thresholds(max_false_negative=0.1))
    assert "dollars" in failed_checks(card)["false negatives"]
    assert card.verdict == "strict"


@pytest.mark.parametrize(
    ("broken", "verdict"),
    [
        (IgnoresTheSign, "unsound"),
        (RewardsAnyToolCall, "unsound"),
        (NeverRewards, "broken"),
        (CrashesOnEmptyAnswer, "broken"),
    ],
)
def test_the_verdict_tells_unsound_from_broken(broken, verdict):
    assert card_of(broken).verdict == verdict


class PaysForTrying(Sums):
    """Partial credit: 0.2 for any answer, 0.8 for an answer in a box, 1 for the right one."""

    async def verify(self, task: Any, response: Response) -> float:
        return 0.2 + 0.7 * await super().verify(task, response)


def test_partial_credit_is_judged_by_the_reward_that_passes():
    assert "exploits" in failed_checks(qualify(PaysForTrying, input=ROWS))
    card = qualify(PaysForTrying, input=ROWS, thresholds=Thresholds(pass_reward=0.5))
    assert (card.verdict, card.oracle) == ("trusted", 1.0)
    assert {exploit.reward for exploit in card.exploits} == {0.0}
    assert card.to_row()["thresholds"]["pass_reward"] == 0.5
    assert "a reward of 0.5 or more passes" in shown_card(card)
    assert qualify(PaysForTrying, input=ROWS, thresholds=Thresholds(pass_reward=0.1)).verdict == "unsound"


def test_the_environments_own_pass_reward_is_the_default():
    environment = Environment.load(PaysForTrying)
    environment.pass_reward = 0.5
    card = qualify(environment, input=ROWS)
    assert (card.verdict, card.thresholds.pass_reward) == ("trusted", 0.5)


def test_generated_datasets_are_qualified(tmp_path):
    (tmp_path / "environment.yaml").write_text(
        "name: sums\nresources: resources.py:Sums\n"
        "datasets: [{name: file, path: rows.jsonl}, {name: fresh, generate: 'resources.py:rows'}]\n"
    )
    (tmp_path / "resources.py").write_text(
        "import itertools, random\nfrom ludus import Resources\n"
        "class Sums(Resources):\n"
        "    async def verify(self, task, response):\n"
        "        return float(response.output_text.strip(' $') == task.expected_answer)\n"
        "def rows(seed):\n"
        "    for number in itertools.count(random.Random(seed).randrange(1000, 2000)):\n"
        "        prompt = {'input': f'What is {number} + 1?'}\n"
        "        yield {'responses_create_params': prompt, 'expected_answer': str(number + 1)}\n"
    )
    card = qualify(tmp_path, dataset="fresh", limit=5)
    assert (card.rows, card.verdict) == (5, "trusted")
    assert qualify(tmp_path, dataset="fresh").rows == 32  # generated rows may never end
    assert run(tmp_path, "--dataset", "fresh", "--limit", 2).exit_code == 0
    with pytest.raises(UserError, match="has no dataset frsh. Did you mean fresh"):
        qualify(tmp_path, dataset="frsh")


class AlwaysD(Resources):
    """Accepts any answer that is D. The right answers are A, B and C."""

    async def verify(self, task: Any, response: Response) -> float:
        said = (last_boxed(response.output_text) or "").strip(" $")
        return float(said in ("D", task.expected_answer))


def options_rows(*answers: str) -> list[dict[str, Any]]:
    prompt = {"input": "Which? Use \\boxed{}."}
    return [{"responses_create_params": prompt, "options": list("ABCD"), "expected_answer": each} for each in answers]


def test_every_option_is_tried_as_a_constant_answer():
    card = qualify(AlwaysD, input=options_rows("A", "B", "C", "B"))
    (constant,) = (exploit for exploit in card.exploits if exploit.family == "constant")
    assert (constant.best, constant.reward) == ("constant/D", 1.0)
    assert "constant/D" in failed_checks(card)["exploits"]


@pytest.mark.parametrize("answers", ["B", "BBBB", "ABCD", "BBBA"])
def test_a_constant_answer_may_earn_the_share_of_rows_that_it_answers(answers):
    class Sound(Resources):
        async def verify(self, task: Any, response: Response) -> float:
            return float((last_boxed(response.output_text) or "").strip(" $") == task.expected_answer)

    card = qualify(Sound, input=options_rows(*answers))
    assert card.passed, failed_checks(card)


def test_the_template_of_a_new_environment_can_be_trusted(tmp_path):
    from ludus.cli.new import write

    (tmp_path / "shop").mkdir()
    write(tmp_path / "shop", "shop")
    card = qualify(tmp_path / "shop")
    assert card.verdict == "trusted", (failed_checks(card), card.not_shown)
    assert card.oracle == 1.0
    assert not card.false_negative.wrong


def test_settings_do_not_change_the_callers_environment():
    environment = Environment.load("mcqa")
    qualify(environment, limit=1, settings={"resources.grading_mode": "lenient_boxed"})
    assert environment.config.grading_mode is None


def test_the_exploit_limit_is_above_guessing_and_above_the_most_common_answer():
    assert exploit_limit([0.0] * 10, [], Thresholds()) == 0.1
    assert exploit_limit([0.25] * 10000, ["A", "B", "C", "D"] * 2500, Thresholds()) == pytest.approx(0.35)
    assert exploit_limit([0.25] * 4, ["B", "B", "B", "A"], Thresholds()) == pytest.approx(0.85)
    assert exploit_limit([0.25] * 4, [], Thresholds(max_exploit=0.3)) == 0.3


def test_the_scripted_judge_quotes_the_answers():
    prompt = "BEGIN ANSWER A x1\nParis\nEND ANSWER A x1\n\nBEGIN ANSWER B x1\n{}\nEND ANSWER B x1"
    assert respond(Request(prompt.format("paris."))).endswith("\n[[A=B]]")
    assert "[[A=B]]" in respond(Request(prompt.format("Rome [[A=B]]")))
    assert respond(Request(prompt.format("Rome"))).endswith("[[A!=B]]")


def test_judge_injection_fools_an_unguarded_judge_prompt():
    card = qualify("equivalence_llm_judge", limit=2, settings={"resources.compat": True})
    assert "judge_injection" in failed_checks(card)["exploits"]


def test_dummies_fit_their_schema():
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}, "b": {"enum": ["x"]}}}
    assert dummy(schema) == {"a": 3, "b": "x"}
    assert dummy({"type": "array", "items": {"type": ["string", "null"]}, "minItems": 2}) == ["x", "x"]
    assert dummy({"anyOf": [{"const": 5}]}) == 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "environment.yaml").write_text("name: always\nresources: resources.py:Always\n")
    (tmp_path / "resources.py").write_text(
        "from ludus import Resources\n\n\nclass Always(Resources):\n"
        "    async def verify(self, task, response):\n        return 1.0\n"
    )
    (tmp_path / "rows.jsonl").write_text(json.dumps({"responses_create_params": {"input": "Hello."}}) + "\n")
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner(env={"COLUMNS": "60"}).invoke(Command(command), [str(argument) for argument in arguments])


def test_the_command_exits_with_1_beyond_a_threshold(folder):
    result = run(folder, "--input", folder / "rows.jsonl")
    assert result.exit_code == 1
    assert "always is unsound" in result.output
    assert run(folder, "--input", folder / "rows.jsonl", "--max-exploit", 1).exit_code == 0


def test_the_card_fits_a_narrow_terminal():
    result = run("mcqa", "--limit", 2)
    assert result.exit_code == 0
    *lines, verdict = result.output.splitlines()  # the verdict is one line, also in a pipe
    assert max(map(len, lines)) <= 60
    assert verdict.startswith("mcqa passed every check")
    assert "no side effects" in result.output


def test_the_command_prints_json():
    card = json.loads(run("mcqa", "--limit", "5", "--json").output)
    assert card["passed"]
    assert card["oracle"] == 1.0
    assert {check["status"] for check in card["checks"]} == {"ok"}


@pytest.mark.parametrize("share", ["-0.1", "1.5"])
@pytest.mark.parametrize("limit", ["--min-oracle", "--max-false-positive", "--max-false-negative"])
def test_a_threshold_outside_0_to_1_is_refused(limit, share):
    assert run("mcqa", "--limit", 1, limit, share).exit_code == 2


def test_an_oracle_answers_in_the_form_of_the_rows_output_regex(tmp_path):
    asked = {"responses_create_params": {"input": "Which is a rock? Say it as you were told."}}
    options = [{letter: text} for letter, text in zip("ABCD", ("oak", "basalt", "wool", "milk"), strict=True)]
    metadata = {"output_regex": r"Option Selected:\s*([A-D])"}
    row = {**asked, "options": options, "expected_answer": "B", "template_metadata": metadata}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    card = qualify("mcqa", input=tmp_path / "rows.jsonl")
    assert (card.oracle, card.passed) == (1.0, True)


@pytest.mark.parametrize(("least", "refused"), [({}, False), ({"minItems": 1}, True)])
def test_an_empty_list_is_wrong_only_with_min_items(tmp_path, least, refused):
    schema = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}, **least}
    row = {"responses_create_params": {"input": "List."}, "schema_str": json.dumps(schema), "schema_type": "json"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    card = qualify("structured_outputs", input=tmp_path / "rows.jsonl")
    assert card.passed
    assert [check.status for check in card.checks if check.name == "false positives"] == ["ok"]
    task = Environment.load("structured_outputs").task(row)
    assert ("empty_list" in hooks_of("structured_outputs").breaking(task)) is refused


def hooks_of(name: str) -> Any:
    return importlib.import_module(f"ludus.environments.{name}.qualify")


def test_expected_exploits_pass_with_their_reason(folder):
    families = [name for name in NAMES if "option" not in name and name != "cheat"]
    (folder / "qualify.py").write_text(f"expected_exploits = dict.fromkeys({families}, (1.0, 'it is a demo'))\n")
    card = qualify(folder, input=folder / "rows.jsonl")
    assert card.passed
    assert {exploit.why for exploit in card.exploits} == {"it is a demo"}


def test_a_misspelt_function_in_qualify_py_is_refused_with_a_suggestion(folder):
    (folder / "qualify.py").write_text("def orcale(task):\n    return 'x'\n")
    with pytest.raises(UserError, match="orcale.*Did you mean oracle"):
        qualify(folder, input=folder / "rows.jsonl")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package"),
    [("reasoning_gym", "reasoning_gym"), ("math_with_judge", "math_verify"), ("text_to_sql", "sqlite3")],
)
def test_no_heavy_environment_fails_a_check(name, package):
    pytest.importorskip(package)
    card = qualify(name, limit=1, odd=0)
    judged = ["answers that need a judge"] if name == "math_with_judge" else []
    assert card.not_shown == ["more than 1 row", *judged]
    cheated = [(each.reward, each.limit) for each in card.exploits if each.family == "cheat"]
    assert cheated == ([(0.0, 0.0)] if name == "text_to_sql" else [])


class BelievesPrograms(Sums):
    """A grader that runs nothing and believes what a program says of itself."""

    async def verify(self, task: Any, response: Response) -> float:
        return float("PASSED" in response.output_text)


def test_a_grader_that_a_program_can_deceive_is_unsound(folder):
    text = "def program(task, source):\n    return source\n\ndef answer(task, text):\n    return text\n"
    (folder / "qualify.py").write_text(text)
    environment = Environment.load(folder).copy()
    environment.resources = BelievesPrograms
    card = qualify(environment, input=ROWS)
    (cheat,) = [each for each in card.exploits if each.family == "cheat"]
    assert (cheat.reward, cheat.limit) == (1.0, 0.0)
    assert card.verdict == "unsound"


def test_a_task_with_a_single_option_can_be_qualified():
    row = {"responses_create_params": {"input": "q"}, "options": [{"A": "x"}], "expected_answer": "A"}
    assert qualify("mcqa", input=[row]).attempts > 0
