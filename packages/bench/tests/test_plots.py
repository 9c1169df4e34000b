"""The figures of a profile: real pictures with labelled axes, and names that are not read as formulas."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from ludus_bench.profile.plots import write_comparison, write_plots
from ludus_bench.profile.policies import pass_rates_of_both
from ludus_bench.profile.profile import Profile
from profiled_runs import collect

from ludus import Resources, Response, Verdict

pytest.importorskip("matplotlib")

NAMES = ["pass_rates", "learning_signal", "length", "seconds", "components"]


class Dollars(Resources):
    """Its components have names that matplotlib could take for formulas."""

    def verify(self, task: Any, response: Response) -> Verdict:
        reward = float(response.output_text)
        return Verdict(reward, components={"$\\frac{1}$": reward, "a\x1b[31m": 1 - reward})


def profile_of(tmp_path: Path, **options: Any) -> Profile:
    return Profile([collect(tmp_path / "run", "1", "0", "0.5", tasks=("a", "b"), **options)])


@pytest.mark.slow
def test_every_figure_is_a_picture(tmp_path: Path) -> None:
    profile = profile_of(tmp_path)
    paths = write_plots(profile.summary(), list(profile.tasks.values()), tmp_path / "out", "png")
    assert [path.name for path in paths] == [f"{name}.png" for name in NAMES]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(path.name for path in paths)


def test_names_are_not_formulas(tmp_path: Path) -> None:
    profile = profile_of(tmp_path, kind=Dollars)
    paths = write_plots(profile.summary(), list(profile.tasks.values()), tmp_path, "svg")
    for path in paths:
        assert ElementTree.fromstring(path.read_text()).tag.endswith("svg")
    drawn = (tmp_path / "components.svg").read_text()
    assert "<!-- $\\frac{1}$ -->" in drawn
    assert "\x1b" not in drawn


def test_axes_are_labelled(tmp_path: Path) -> None:
    profile = profile_of(tmp_path)
    write_plots(profile.summary(), list(profile.tasks.values()), tmp_path, "svg")
    labels = {
        "pass_rates": ("pass rate of a task", "tasks"),
        "learning_signal": ("share of groups whose rewards differ", "environment"),
        "length": ("length of the answer in characters", "mean reward (line)", "rollouts (bars)"),
        "seconds": ("stage", "seconds for each rollout (log scale)"),
        "components": ("reward, and its components", "component", "correlation"),
    }
    for name, texts in labels.items():
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert all(f"<!-- {text} -->" in drawn for text in texts), name


def test_two_policies_are_drawn_against_each_other(tmp_path: Path) -> None:
    before, after = (Profile([collect(tmp_path / name, "1", reward)]) for name, reward in (("a", "0"), ("b", "1")))
    path = write_comparison(pass_rates_of_both(before, after), ("a", "b"), tmp_path, "svg")
    assert "<!-- pass rate in B (b) -->" in path.read_text()


def test_a_run_without_rewards_has_no_figures_of_rewards(tmp_path: Path) -> None:
    profile = Profile([collect(tmp_path / "run", "crash")])
    paths = write_plots(profile.summary(), list(profile.tasks.values()), tmp_path / "out", "png")
    assert [path.name for path in paths] == ["seconds.png"]
