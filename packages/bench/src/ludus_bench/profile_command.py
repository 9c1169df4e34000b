"""`ludus profile`: the difficulty of tasks, the learning signal and cost of a run, or an environment under load."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ludus.cli.commands import Argument, Exit, Option
from ludus.runtime.option_limits import MAX_INT64

if TYPE_CHECKING:
    from ludus_bench.profile.profile import Profile


def profile(
    runs: Annotated[
        list[str],
        Argument(metavar="RUN", help="Collections' folders, files of rollouts; with --model: ENV."),
    ],
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="DIR", help="The folder for profile.json, difficulty.jsonl and figures."),
    ] = None,
    filter_: Annotated[
        str | None,
        Option("--filter", metavar="LOW..HIGH", help="Write subset.jsonl: tasks whose pass rate is in this range."),
    ] = None,
    compare: Annotated[
        Path | None, Option("--compare", metavar="RUN", help="Another policy's run of the same tasks.")
    ] = None,
    plot: Annotated[
        str | None, Option("--plot", metavar="png|svg", help="Draw figures into --output (extra: plot).")
    ] = None,
    prices: Annotated[
        Path | None,
        Option("--prices", metavar="FILE", help="YAML, for a million tokens: MODEL: {input, output, cached}."),
    ] = None,
    pass_: Annotated[
        float | None,
        Option("--pass", metavar="REWARD", help="The lowest reward that is a pass; default: as in the runs."),
    ] = None,
    model: Annotated[
        str | None,
        Option("--model", "-m", help="Put load on ENV: scripted, or any model of ludus collect."),
    ] = None,
    sessions: Annotated[int, Option(min=1, max=MAX_INT64, help="With --model: how many sessions.")] = 1000,
    concurrency: Annotated[
        int | None, Option("--concurrency", "-c", min=1, max=65_536, help="With --model: sessions at once.")
    ] = None,
    input: Annotated[Path | None, Option("--input", "-i", help="With --model: rows as JSONL.")] = None,
    dataset: Annotated[str | None, Option("--dataset", "-d", help="With --model: which dataset.")] = None,
    set_: Annotated[
        list[str] | None, Option("--set", metavar="PART.KEY=VALUE", help="With --model: a setting.")
    ] = None,
    json_: Annotated[bool, Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Profile runs: pass rates, tokens, seconds, cost.

    The profile says which tasks have a learning signal. With --model it measures an environment under load.

    Example: ludus profile runs/first --output profiles/first --filter 0.1..0.9

    Two policies: ludus profile runs/before --compare runs/after

    An environment, before you train on it: ludus profile ./bank --model scripted
    """
    of_runs = {"--filter": filter_, "--compare": compare, "--plot": plot, "--prices": prices, "--pass": pass_}
    of_load = {"--concurrency": concurrency, "--input": input, "--dataset": dataset, "--set": set_}
    _check_options(of_runs if model is not None else of_load, loads=model is not None)
    if model is not None:
        options = {"sessions": sessions, "concurrency": concurrency, "input": input, "dataset": dataset}
        _load(runs, model, options, set_ or [], output, as_json=json_)
    else:
        _profile_runs([Path(run) for run in runs], output, filter_, compare, plot, prices, pass_, as_json=json_)


def _check_options(options: dict[str, Any], *, loads: bool) -> None:
    from ludus.errors import UserError

    for name, value in options.items():
        if value is not None and loads:
            raise UserError(f"{name} is for runs, and --model puts load on an environment", "Leave one of them out")
        if value is not None:
            raise UserError(f"{name} puts load on an environment, which needs a model", "Add --model scripted")


def _profile_runs(
    runs: list[Path],
    output: Path | None,
    filter_: str | None,
    other: Path | None,
    plot: str | None,
    prices: Path | None,
    pass_: float | None,
    *,
    as_json: bool,
) -> None:
    from ludus.cli.screen import safe_json, say, stdout_console
    from ludus.errors import UserError
    from ludus.store.prices import read_prices
    from ludus.store.verifiers import verifier_warnings
    from ludus_bench.profile.difficulty import Band
    from ludus_bench.profile.figures import FORMATS
    from ludus_bench.profile.policies import compare_policies
    from ludus_bench.profile.profile import Profile
    from ludus_bench.profile_view import show_comparison, show_profile

    if output is None and (filter_ is not None or plot is not None):
        raise UserError(f"{'--filter' if filter_ is not None else '--plot'} writes files", "Add --output DIR")
    if plot is not None and plot not in FORMATS:
        raise UserError(f"--plot {plot[:20]} is not a figure format", f"Choose {' or '.join(FORMATS)}")
    band = Band.parse(filter_) if filter_ is not None else None
    price_list = read_prices(prices) if prices is not None else None
    profiled = Profile(runs, pass_reward=pass_, prices=price_list)
    second = Profile([other], pass_reward=pass_, prices=price_list) if other is not None else None
    summary = profiled.summary()
    if second is not None:
        summary["compared_with"] = second.summary()
        summary["comparison"] = compare_policies(profiled, second, pass_)
    if output is not None:
        summary["written"] = _write(profiled, second, summary, output, band, plot)
    if as_json:
        print(safe_json(summary))
        return
    console = stdout_console()
    for warning in verifier_warnings(summary["several_verifiers"]):
        say(f"warning: {warning}")
    show_profile(console, summary)
    if second is not None:
        for warning in summary["comparison"]["warnings"]:
            say(f"warning: {' '.join(warning.split())}")
        show_comparison(console, summary)


def _write(
    profiled: Profile, second: Profile | None, summary: dict[str, Any], output: Path, band: Any, plot: str | None
) -> dict[str, Any]:
    """Write the files into a folder. Returns their paths, and the counts of the subset."""
    from ludus.store.drafts import write_whole
    from ludus.store.run import indented_json
    from ludus_bench.profile.difficulty import write_difficulty, write_subset
    from ludus_bench.profile.plots import write_comparison, write_plots
    from ludus_bench.profile.policies import pass_rates_of_both

    files = [output / "difficulty.jsonl"]
    subset = None
    write_difficulty(profiled, files[0])
    if band is not None:
        files.append(output / "subset.jsonl")
        subset = write_subset(profiled, band, files[-1])
        summary["subset"] = {"low": band.low, "high": band.high, **subset}
    if plot is not None:
        files += write_plots(summary, list(profiled.tasks.values()), output, plot)
        if second is not None:
            names = str(profiled.runs[0]), str(second.runs[0])
            files.append(write_comparison(pass_rates_of_both(profiled, second), names, output, plot))
    files.insert(0, output / "profile.json")
    write_whole(files[0], indented_json(summary) + b"\n")
    return {"files": [str(path) for path in files]}


def _load(
    environments: list[str],
    model: str,
    options: dict[str, Any],
    assignments: list[str],
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    from ludus.cli.screen import prints_to_stderr, safe_json, stdout_console
    from ludus.errors import UserError
    from ludus.runtime.settings import parse_assignments
    from ludus.store.drafts import write_whole
    from ludus.store.run import indented_json
    from ludus_bench.profile.load import load_environment
    from ludus_bench.profile_view import show_load

    if len(environments) != 1:
        raise UserError(f"--model puts load on one environment, and {len(environments)} are named", "Name one")
    with prints_to_stderr(as_json):
        report = load_environment(environments[0], model, settings=parse_assignments(assignments), **options)
    if output is not None:
        write_whole(output / "load.json", indented_json(report) + b"\n")
    if as_json:
        print(safe_json(report))
    else:
        show_load(stdout_console(), report)
    raise Exit(1 if report["counts"]["failed"] else 0)
