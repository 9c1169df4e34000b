"""A folder of runs as an experiment: its curves, the settings that differ, and one task over all runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rollout_files
import viewed_runs
from viewing import Visitor, until_indexed, viewing

from ludus.compare.comparison import compare
from ludus.compare.scores import Scores
from ludus.store.figures import RewardFigures
from ludus.store.stored_run import StoredRun
from ludus.view.curves import PARTS
from ludus.view.experiment import experiment_payload
from ludus.view.live import LiveRuns, runs_payload
from ludus.view.places import folders_of
from ludus.view.rolling import rolling_reward
from ludus.view.serving import Viewer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("experiments")
    viewed_runs.write_training(made / "demo" / "trained", judged_anew_from=60)
    viewed_runs.write_training(made / "demo" / "control", learns=False)
    viewed_runs.write_run(made / "shop" / "first")
    viewed_runs.write_run(made / "shop" / "second", seed=2)
    viewed_runs.write_run(made / "shop" / "third", seed=3)
    return made


@pytest.fixture(scope="module")
def viewer(folder: Path) -> Iterator[Viewer]:
    with viewing(folder) as made:
        until_indexed(made)
        yield made


@pytest.fixture(scope="module")
def visitor(viewer: Viewer) -> Visitor:
    return Visitor(viewer)


def series_of(visitor: Visitor, at: Path, figure: str = "reward") -> dict[str, list[dict[str, Any]]]:
    shown = visitor.ask("experiment", at=at, figure=figure)
    assert shown["figure"] == figure
    return {series["name"]: series["points"] for series in shown["series"]}


def test_evaluations_of_a_training_are_one_curve_over_checkpoints(visitor: Visitor, folder: Path):
    series = series_of(visitor, folder / "demo")
    assert list(series) == ["control/evaluations", "trained/evaluations"]
    trained = series["trained/evaluations"]
    assert [point["step"] for point in trained] == [0, 20, 40, 60]
    assert [point["seconds"] for point in trained] == [0, 60, 120, 180]
    assert [point["done"] for point in trained] == [20, 40, 60, 80]
    means = [point["value"][0] for point in trained]
    assert means[0] == pytest.approx(0.2)
    assert means == sorted(means)
    assert [point["value"][0] for point in series["control/evaluations"]] == pytest.approx([0.2] * 4)


def test_a_point_has_the_figures_that_the_journal_adds_up_to(visitor: Visitor, folder: Path):
    run = StoredRun(folder / "demo" / "trained" / "evaluations" / "greedy-0040")
    figures, rewards = RewardFigures(run.scales), dict[str, list[float]]()
    for rollout in run.rollouts():
        assert rollout.verdict is not None
        rewards.setdefault(rollout.task_id, []).append(rollout.verdict.reward)
    for repeats in rewards.values():
        figures.add_task(len(repeats), sum(reward >= 1 for reward in repeats), sum(repeats))
        figures.add_rewards(min(repeats), max(repeats))
    reward, at_k = figures.reward(), figures.pass_at_k()
    for figure, value in {"reward": reward["mean"], "pass@1": at_k["1"], "pass@2": at_k["2"]}.items():
        point = series_of(visitor, folder / "demo", figure)["trained/evaluations"][2]
        assert point["value"][0] == pytest.approx(value), figure
    point = series_of(visitor, folder / "demo")["trained/evaluations"][2]
    assert point["value"][1:] == pytest.approx(reward["ci95"])
    right = series_of(visitor, folder / "demo", "component:right")["trained/evaluations"]
    assert [point["value"][0] for point in right] == pytest.approx([0.0, 0.28, 0.52, 0.76])
    length = series_of(visitor, folder / "demo", "length")["trained/evaluations"]
    assert [point["value"][0] for point in length] == pytest.approx([6.5] * 4)


def test_another_verifier_is_marked_where_it_begins(visitor: Visitor, folder: Path):
    series = series_of(visitor, folder / "demo")
    assert [point["new_verifiers"] for point in series["trained/evaluations"]] == [None, None, None, ["dddddddddddd"]]
    assert [point["new_verifiers"] for point in series["control/evaluations"]] == [None] * 4


def test_a_point_leads_to_exactly_its_rollouts(visitor: Visitor, folder: Path):
    for at in ("demo", "shop"):
        for points in series_of(visitor, folder / at).values():
            for point in points:
                found = visitor.ask("rollouts", run=point["run"], q=point["q"], limit=1)
                assert found["total"] == point["rollouts"]


def test_a_run_with_several_policy_versions_is_a_curve_of_its_own(visitor: Visitor, folder: Path):
    series = series_of(visitor, folder / "shop", "failed")
    assert list(series) == ["first", "second", "third"]
    assert [point["step"] for point in series["first"]] == [10, 20, 30, 40]
    stored = StoredRun(folder / "shop" / "first")
    failed = sum(attempt.is_last for attempt in stored.failed_attempts())
    assert failed > 0
    counted = sum(point["value"][0] * point["rollouts"] for point in series["first"])
    assert counted == pytest.approx(failed)


def test_two_kinds_of_evaluations_in_one_folder_are_two_curves(tmp_path: Path):
    for kind in ("greedy", "sampled"):
        for step in (0, 20):
            made = rollout_files.rollout("t", 0, step / 20, calls=[{"items": 1, "policy_version": step}])
            rollout_files.write(tmp_path / "evaluations" / f"{kind}-{step:04}" / "rollouts.jsonl", [made])
    with viewing(tmp_path) as viewer:
        until_indexed(viewer)
        series = series_of(Visitor(viewer), tmp_path)
    assert {name: [point["step"] for point in points] for name, points in series.items()} == {
        "evaluations, greedy": [0, 20],
        "evaluations, sampled": [0, 20],
    }


def test_a_run_without_policy_versions_is_a_curve_over_its_parts(tmp_path: Path):
    for name in ("a", "b"):
        rollouts = [rollout_files.rollout(f"t{task}", 0, float(task >= 50)) for task in range(100)]
        rollout_files.write(tmp_path / name / "rollouts.jsonl", rollouts)
    with viewing(tmp_path) as viewer:
        until_indexed(viewer)
        points = series_of(Visitor(viewer), tmp_path)["a"]
    assert len(points) == PARTS
    assert [point["step"] for point in points] == [None] * PARTS
    assert [point["value"][0] for point in points] == [0.0] * (PARTS // 2) + [1.0] * (PARTS // 2)
    assert points[-1]["done"] == 100
    assert points[0]["q"] == "number:1..5"


def test_a_point_of_a_short_run_holds_at_least_five_rollouts(tmp_path: Path):
    rollouts = [rollout_files.rollout(f"t{task}", 0, float(task % 2)) for task in range(16)]
    rollout_files.write(tmp_path / "short" / "rollouts.jsonl", rollouts)
    with viewing(tmp_path) as viewer:
        until_indexed(viewer)
        points = series_of(Visitor(viewer), tmp_path)["short"]
    assert [point["rollouts"] for point in points] == [6, 5, 5]


def test_a_number_at_the_end_of_a_models_name_is_no_checkpoint(tmp_path: Path):
    made = rollout_files.rollout("a", 0, 1.0, calls=[{"items": 1, "policy_version": "tiny.Q4_1"}])
    rollout_files.write(tmp_path / "runs" / "plain" / "rollouts.jsonl", [made])
    described = {"identity": {"model": {"name": "tiny.Q4_1"}}}
    (tmp_path / "runs" / "plain" / "run.json").write_text(json.dumps(described))
    runs = LiveRuns([tmp_path / "runs"], {})
    runs.index_all()
    assert [line["step"] for line in experiment_payload(runs, "", "reward")["runs"]] == [None]


def test_the_table_of_runs_has_only_the_settings_that_differ(visitor: Visitor, folder: Path):
    shown = visitor.ask("experiment", at=folder / "demo")
    assert shown["settings"] == ["learning_rate"]
    values = {run["name"]: run["settings"] for run in shown["runs"]}
    assert values["trained/evaluations/greedy-0020"] == ["0.002"]
    assert values["control/evaluations/greedy-0020"] == ["0.0"]
    shop = visitor.ask("experiment", at=folder / "shop")
    assert shop["settings"] == ["seed"]
    assert [run["settings"] for run in shop["runs"]] == [["1"], ["2"], ["3"]]


def test_settings_of_an_environment_that_other_runs_lack_are_no_columns(visitor: Visitor, folder: Path):
    shown = visitor.ask("experiment", at=folder)
    assert "environments" in shown["settings"]
    assert not [name for name in shown["settings"] if name.startswith("environments.")]
    values = {run["name"]: dict(zip(shown["settings"], run["settings"], strict=True)) for run in shown["runs"]}
    assert values["shop/first"]["environments"] == "shop_support"
    assert values["demo/trained/evaluations/greedy-0020"]["environments"] == "find_digit"


def test_one_task_is_followed_over_all_runs(visitor: Visitor, folder: Path):
    shown = visitor.ask("task", at=folder / "demo" / "trained", task="digit-4")
    assert shown["asked"] == "Which digit is in 4+?"
    assert [run["step"] for run in shown["runs"]] == [0, 20, 40, 60]
    assert [run["passed"] for run in shown["runs"]] == [0, 0, 2, 2]
    assert [run["mean"] for run in shown["runs"]] == pytest.approx([0.2, 0.2, 1.0, 1.0])
    run, rollout = shown["runs"][2], shown["runs"][2]["listed"][1]
    assert visitor.ask("rollout", run=run["key"], id=rollout["id"])["facts"]["task_id"] == "digit-4"
    everywhere = visitor.ask("task", task="digit-4")
    assert len(everywhere["runs"]) == 8


def test_more_than_two_runs_are_compared_with_the_first(visitor: Visitor, folder: Path):
    keys = {run["name"]: run["key"] for run in visitor.ask("experiment", at=folder / "shop")["runs"]}
    shown = visitor.ask("compare", run=keys["first"], **{"with": f"{keys['second']},{keys['third']}"})
    assert [Path(side["name"]).name for side in shown["runs"]] == ["first", "second", "third"]
    for side in shown["runs"][1:]:
        expected = compare(Scores.read(folder / "shop" / "first"), Scores.read(Path(side["name"])))
        assert expected is not None
        assert side["result"]["sentence"] == expected.sentence()
    assert shown["tasks_total"] == 24
    spreads = [max(task["means"]) - min(task["means"]) for task in shown["tasks"]]
    assert spreads == sorted(spreads, reverse=True)
    status, _, body = visitor.send("GET", f"/api/compare?run={keys['first']}&with=")
    assert (status, json.loads(body)["detail"]) == (422, "a comparison is of 2 to 12 runs")


def test_a_warning_of_a_comparison_names_the_run_by_its_letter(visitor: Visitor, folder: Path):
    keys = {Path(line["name"]).name: line["key"] for line in visitor.ask("runs")["runs"]}
    others = f"{keys['second']},{keys['greedy-0060']}"
    warnings = visitor.ask("compare", run=keys["first"], **{"with": others})["warnings"]
    assert "A and C had different datasets; only tasks with the same id are compared" in warnings
    assert "environments.find_digit is not set in A and {'resources': 'FindDigit'} in C" in warnings
    assert [warning for warning in warnings if warning.endswith("in B")] == []


def test_a_folder_without_runs_is_refused_in_one_line(visitor: Visitor, folder: Path):
    for at in (folder / "shopp", "/etc", "../.."):
        status, _, body = visitor.send("GET", f"/api/experiment?at={at}")
        assert status == 400
        assert "no run lies below" in json.loads(body)["detail"]


def test_a_search_asks_every_run_of_a_folder(visitor: Visitor, folder: Path):
    found = visitor.ask("search", at=folder / "shop", q="refunded reward:1")
    assert len(found["runs"]) == 3
    for run in found["runs"]:
        alone = visitor.ask("rollouts", run=run["key"], q="refunded reward:1")
        assert run["total"] == alone["total"] > 5
        assert run["rollouts"] == alone["rollouts"][:5]
    assert found["total"] == sum(run["total"] for run in found["runs"])
    assert [run["name"] for run in visitor.ask("search", at=folder / "demo", q="policy:60")["runs"]] == [
        "control/evaluations/greedy-0060",
        "trained/evaluations/greedy-0060",
    ]
    status, _, body = visitor.send("GET", "/api/search?q=rewrd:1")
    assert (status, json.loads(body)["detail"]) == (400, "there is no filter `rewrd:`. Did you mean reward?")


def test_pass_at_k_waits_until_half_of_the_tasks_have_k_rollouts(tmp_path: Path):
    options = {"repeats": 8, "pass_reward": {"weather": 1.0}}
    described = {"identity": {"environments": {"weather": {}}, "dataset": {"rows": 10}}, "options": options}
    (tmp_path / "run.json").write_text(json.dumps(described))
    shown = []
    for tasks in (2, 5):
        rollouts = [rollout_files.rollout(f"t{task}", repeat, 1.0) for task in range(tasks) for repeat in range(8)]
        rollout_files.write(tmp_path / "rollouts.jsonl", rollouts)
        runs = LiveRuns([tmp_path], {})
        runs.index_all()
        (run,) = runs.runs.values()
        shown.append(list(run.headline({})["pass@k"]))
    assert shown == [[], ["1", "2", "4", "8"]]


def test_folders_that_hold_the_same_runs_count_once():
    names = ["runs/demo/a/step-1", "runs/demo/a/step-2", "runs/demo/b/step-1", "runs/demo/b/step-2", "elsewhere/one"]
    assert folders_of(names) == [
        {"at": "runs/demo", "runs": 4},
        {"at": "runs/demo/a", "runs": 2},
        {"at": "runs/demo/b", "runs": 2},
    ]


def test_figures_are_stored_in_the_index_until_the_run_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "run" / "rollouts.jsonl"
    rollout_files.write(path, [rollout_files.rollout(f"t{task}", 0, 1.0) for task in range(4)])

    def opened() -> Any:
        runs = LiveRuns([tmp_path], {})
        runs.index_all()
        (run,) = runs.runs.values()
        return run

    before = opened()
    shown = before.headline({}), before.curve()

    def fail(*_: Any) -> Any:
        raise AssertionError("computed again")

    with monkeypatch.context() as patched:
        patched.setattr("ludus.view.live_run.headline", fail)
        patched.setattr("ludus.view.live_run.curve_of", fail)
        again = opened()
        assert (again.headline({}), again.curve()) == shown
    with path.open("ab") as file:
        file.write(rollout_files.rollout("t9", 0, 0.0).encode() + b"\n")
    grown = opened()
    assert grown.curve()["whole"]["figures"]["reward"][0] == pytest.approx(0.8)
    assert grown.headline({})["reward"]["mean"] == pytest.approx(0.8)


def test_the_rolling_mean_covers_a_tenth_of_the_run_and_at_least_twenty_rollouts(tmp_path: Path):
    rollouts = [rollout_files.rollout(f"t{task}", 0, float(task >= 400)) for task in range(800)]
    rollout_files.write(tmp_path / "long" / "rollouts.jsonl", rollouts)
    rollout_files.write(tmp_path / "short" / "rollouts.jsonl", rollouts[:40])
    rollout_files.write(tmp_path / "tiny" / "rollouts.jsonl", rollouts[:39])
    runs = LiveRuns([tmp_path], {})
    runs.index_all()
    rolling = {}
    for run in runs.runs.values():
        with run.index.reading() as database:
            rolling[Path(run.run.name).name] = rolling_reward(database, [])
    assert [len(rolling[name]) for name in ("long", "short", "tiny")] == [37, 21, 0]
    assert {point["rollouts"] for point in rolling["long"]} == {80}
    assert {point["rollouts"] for point in rolling["short"]} == {20}
    middle = rolling["long"][18]  # it ends after 440 rollouts: half of its window has a reward of 1
    assert (middle["first"], middle["last"], middle["mean"]) == (361, 440, pytest.approx(0.5))
    assert middle["low"] < 0.5 < middle["high"]


def test_a_page_does_not_wait_for_large_runs_whose_figures_are_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("a", "b", "c"):
        rollout_files.write(tmp_path / name / "rollouts.jsonl", [rollout_files.rollout("t", 0, 1.0)])
    runs = LiveRuns([tmp_path], {})
    runs.index_all()
    monkeypatch.setattr("ludus.view.live.SMALL", 0)
    monkeypatch.setattr("ludus.view.live.PATIENCE", -1.0)
    next(iter(runs.runs.values())).prepare_pages({})
    shown = runs_payload(runs)
    assert ([Path(run["name"]).name for run in shown["runs"]], shown["preparing"], shown["stale"]) == (["a"], 2, True)
    curves = experiment_payload(runs, "", "")
    assert (len(curves["series"]), curves["preparing"], curves["stale"]) == (1, 2, True)
    for run in runs.runs.values():
        run.prepare_pages({})
    assert (len(runs_payload(runs)["runs"]), runs_payload(runs)["preparing"]) == (3, 0)
