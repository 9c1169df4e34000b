"""The conformance kit passes what is right and names what is wrong."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from ludus_transformers.conformance import TrlAdapter, TrlAsyncAdapter
from registered import register

from ludus.cli import command_line
from ludus.errors import UserError
from ludus.train.conformance.adapters import FeedAdapter, find_adapter
from ludus.train.conformance.checking import Delivered, TrainerAdapter, check
from ludus.train.conformance.script import ConformanceScript, script


class Recorded:
    """What a right adapter delivers, changed by a test."""

    name, several_sequences = "recorded", True

    def __init__(self, change: Callable[[list[Delivered]], list[Delivered]] = list) -> None:
        self._change = change

    def deliver(self, script: ConformanceScript) -> list[Delivered]:
        found = []
        for name, rollouts in script.tasks.items():
            trained = [rollout for rollout in rollouts if rollout.end == "completed"]
            mean = sum(rollout.reward for rollout in trained) / len(trained)
            for s in (sequence for rollout in trained for sequence in rollout.sequences()):
                found.append(Delivered(name, s.ids, s.mask, s.logprobs, s.reward - mean, s.reward, s.version))
        return self._change(found)


def test_the_feed_conforms() -> None:
    report = check(FeedAdapter())
    assert report.passed, report.problems


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("adapter", [TrlAdapter(), TrlAsyncAdapter()])
def test_the_adapters_of_trl_conform(adapter: TrainerAdapter) -> None:
    pytest.importorskip("trl", reason="needs trl: pip install 'ludus-transformers[train]'")
    report = check(adapter)
    assert report.passed, report.problems


def test_a_right_delivery_passes_in_any_order() -> None:
    assert check(Recorded()).passed
    assert check(Recorded(lambda found: found[::-1])).passed


def _at(found: list[Delivered], task: str) -> int:
    return next(number for number, sample in enumerate(found) if sample.group == task)


def _changed(task: str, **fields: Callable[[Delivered], object]) -> Callable[[list[Delivered]], list[Delivered]]:
    def change(found: list[Delivered]) -> list[Delivered]:
        number = _at(found, task)
        values = {name: make(found[number]) for name, make in fields.items()}
        return [*found[:number], replace(found[number], **values), *found[number + 1 :]]  # type: ignore[arg-type]

    return change


def _untrainable(end: str) -> Callable[[list[Delivered]], list[Delivered]]:
    made = script()
    task, rollout = next((name, each) for name, all in made.tasks.items() for each in all if each.end == end)
    sequence = rollout.sequences()[0]
    sample = Delivered(task, sequence.ids, sequence.mask, sequence.logprobs, 1.0, rollout.reward)
    return lambda found: [*found, sample]


def _side_call(found: list[Delivered]) -> list[Delivered]:
    (thread,) = [t for rollout in script().tasks["threads"] for t in rollout.threads if t.kind == "side"]
    (call,) = thread.calls
    mask = [*[0] * len(call.prompt), *[1] * len(call.generated)]
    return [*found, Delivered("threads", [*call.prompt, *call.generated], mask, [0.0] * len(mask), 1.0)]


def _one_reward_for_all_threads(found: list[Delivered]) -> list[Delivered]:
    return [replace(s, reward=0.25) if s.group == "threads" and s.reward == 0.75 else s for s in found]


WRONG = {
    "a lost sequence": (lambda found: found[1:], "plain", "is missing"),
    "a tool's output in the loss": (_changed("tools", mask=lambda s: [0, 0, *[1] * 8]), "tools", "the loss mask"),
    "a wrong logprob": (_changed("plain", logprobs=lambda s: [0.1] * len(s.ids)), "plain", "logprobs"),
    "a wrong reward": (_changed("plain", reward=lambda s: 9.0), "plain", "the reward"),
    "a baseline with the masked member": (
        _changed("masked", advantage=lambda s: (s.advantage or 0) - 33.0),
        "masked",
        "the mean of the trained rewards",
    ),
    "a split group": (_changed("plain", group=lambda s: "another"), "plain", "different groups"),
    "merged groups": (lambda found: [replace(s, group=0) for s in found], "failures", "several tasks"),
    "a masked member": (_untrainable("masked"), "masked", "must not be trained on"),
    "a failed member": (_untrainable("failed"), "failures", "must not be trained on"),
    "a straggler": (_untrainable("late"), "straggler", "must not be trained on"),
    "a rollout of many versions": (_untrainable("spans"), "version changes", "must not be trained on"),
    "a rollout of stale weights": (_untrainable("stale"), "stale", "must not be trained on"),
    "the newest version of a rollout": (
        _changed("version changes", version=lambda s: (s.version or 0) + 1),
        "version changes",
        "the policy version",
    ),
    "a side call": (_side_call, "threads", "must not be trained on"),
    "a thread with the rollout's reward": (_one_reward_for_all_threads, "threads", "the reward"),
    "a sequence twice": (lambda found: [found[0], *found], "plain", "must not be trained on"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_delivery_is_named(name: str) -> None:
    change, task, words = WRONG[name]
    report = check(Recorded(change))
    assert not report.passed
    assert any(words in problem for problem in report.problems[task]), report.problems


def test_a_member_trained_on_another_ones_tokens_is_reported() -> None:
    def joined(found: list[Delivered]) -> list[Delivered]:
        one, other = found[_at(found, "plain")], found[_at(found, "masked")]
        both = Delivered(0, [*one.ids, *other.ids], [*one.mask, *other.mask], [*one.logprobs, *other.logprobs], 0.0)
        return [*found, both]

    assert "2 tasks" in check(Recorded(joined)).problems["other"][0]


def test_the_command_prints_a_table_or_json_and_its_exit_code_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = CliRunner().invoke(command_line(), ["conformance", "feed"])
    assert (shown.exit_code, "feed: passed" in shown.output) == (0, True)
    source = "class Empty:\n    name, several_sequences = 'mine', True\n    def deliver(self, script): return []\n"
    (tmp_path / "my_trainer.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    found = CliRunner().invoke(command_line(), ["conformance", "my_trainer:Empty", "--json"])
    assert found.exit_code == 1
    assert json.loads(found.output)["problems"]["plain"][0].endswith("is missing")


def test_an_unknown_trainer_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UserError, match="Did you mean trl"):
        find_adapter("trll")
    with pytest.raises(UserError, match="cannot load"):
        find_adapter("no_such_module:Class")


def test_the_adapter_of_another_package_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    install_adapters(monkeypatch, mine="another_package:Recorded")
    monkeypatch.setitem(sys.modules, "another_package", sys.modules[__name__])
    assert isinstance(find_adapter("mine"), Recorded)
    with pytest.raises(UserError, match="Did you mean mine"):
        find_adapter("mina")


def test_a_trainer_without_its_package_is_refused_with_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    install_adapters(monkeypatch)
    monkeypatch.setattr("ludus.errors.DISTRIBUTION", "a copy that pip did not install")
    with pytest.raises(UserError) as caught:
        find_adapter("verl")
    assert str(caught.value) == "the adapter of verl is in another package. Install it with: pip install ludus-trainers"


def install_adapters(monkeypatch: pytest.MonkeyPatch, **targets: str) -> None:
    """Make these the only adapters that other packages bring."""
    register(monkeypatch, "ludus.trainers", **targets)
