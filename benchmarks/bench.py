"""`make bench`: measure every figure the project promises in one run, and compare it with its bound."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench_cases import CASES
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"default: all of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=5, help="runs of floor and product each")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "bench.json")
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    for name in options.cases or CASES:
        began = time.perf_counter()
        table = Table("case", "measured", "bound", "", title=name, title_justify="left")
        for figure in CASES[name](options.rounds):
            title, value, bound, unit, at_least = figure
            bound_text = f"at {'least' if at_least else 'most'} {bound:g} {unit}"
            table.add_row(title, f"{value:.3g} {unit}", bound_text, "ok" if figure.holds else "MISSED")
            results.append({"case": name, **figure._asdict(), "holds": figure.holds})
        Console().print(table)
        options.output.write_text(json.dumps(results, indent=2) + "\n")  # all of it takes an hour: nothing is lost
        print(f"{name} took {time.perf_counter() - began:.0f} s\n", file=sys.stderr)
    missed = [result["title"] for result in results if not result["holds"]]
    print(f"written to {options.output}; missed: {', '.join(missed) or 'none'}")


if __name__ == "__main__":
    main()
