"""The generated pages of the site miss nothing: no command, setting, public name, error or environment."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import api_pages
import cli_pages
import environment_cards
import error_pages
import error_reasons
import error_sources
import included
import page_text
import pytest
import settings_pages
import site_links
import site_map
from hypothesis import given, settings
from hypothesis import strategies as st

import ludus
from ludus.cli import command_line
from ludus.errors import UserError
from ludus.folder import folders

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ludus"


def test_the_cli_reference_has_every_command_with_every_option_and_an_example():
    page = cli_pages.cli_reference()
    sections = dict(re.findall(r"^## (ludus[^\n]*)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    command = command_line()
    groups = {"ludus": command, **{f"ludus {name}": each for name, each in command.commands.items()}}
    for group in ("data", "harness", "model", "sandbox"):
        groups |= {f"ludus {group} {name}": each for name, each in command.commands[group].commands.items()}
    assert set(sections) == set(groups)
    for words, each in groups.items():
        assert re.search(r"^ludus \S+ \S", sections[words].split("```")[3], re.MULTILINE), f"{words} has no example"
        for parameter in each.params:
            for spelling in parameter.opts:
                assert spelling.startswith("-") is False or f"`{spelling}" in sections[words], (words, spelling)


def test_the_cli_reference_shows_defaults_and_values():
    page = cli_pages.cli_reference()
    assert "| `--limit INTEGER` | `32` | Use only the first N rows. |" in page
    assert "--set [ENV.]PART.KEY=VALUE" in page


def test_no_settings_class_is_missing_from_the_reference():
    shown = {
        f"{each.cls.__module__}:{each.cls.__qualname__}"
        for _, _, part in settings_pages.settings_classes()
        for each in part
    }
    shown |= set(settings_pages.NOT_SETTINGS)
    for path in error_sources.source_files():
        module = ".".join(["ludus", *path.relative_to(SOURCE).with_suffix("").parts])
        if module.startswith(("ludus.environments.", "ludus.cookbook.")):
            continue  # the next test; a recipe is copied and changed
        for name, bases in _classes(path):
            if any(base.split(".")[-1] in ("BaseModel", "Config") or base.endswith("Config") for base in bases):
                assert f"{module}:{name}" in shown, f"{module}:{name} is on no page: add it to settings_pages.PARTS"


def test_the_settings_of_every_environment_are_in_the_reference():
    page = settings_pages.settings_reference()
    for name, folder in folders().items():
        classes = dict(_classes(folder / "resources.py"))
        own = [each for each in classes if each.endswith(".Config")]
        assert not own or f"### {name}\n" in page or name == "verifiers", name


def test_every_setting_has_a_meaning():
    for _, _, part in settings_pages.settings_classes():
        for each in part:
            silent = [name for name, text in settings_pages.meanings(each).items() if not text]
            assert not silent, f"{each.heading}: write a `#:` comment above {', '.join(silent)}"


def test_types_defaults_and_limits_of_settings_are_in_words():
    page = settings_pages.settings_reference()
    assert "| `api` | `auto` or `responses` or `chat` | `auto` | which API to speak" in page
    assert "| `parallel` | integer, 1 or more, 256 or less | `4` |" in page
    assert "| `license` | text | `unknown` | the licence of the rows |" in page


def test_every_public_name_of_ludus_is_in_the_python_reference():
    page = api_pages.api_pages()["ludus"]
    for name in ludus.__all__:
        assert f"\n## {name}\n" in page, name
    assert "async def collect_async(" in page


def test_every_public_method_in_the_python_reference_says_what_it_does():
    for page in api_pages.PAGES:
        for each in api_pages.names_of(page):
            assert ast.get_docstring(each.node), f"{each.module}.{each.name} has no docstring"


@pytest.mark.slow
def test_every_error_in_the_code_is_on_the_page_of_errors():
    page = error_pages.errors_page()
    names = {name.partition(":")[2] for name in error_sources.error_classes()}
    call = re.compile(rf"(?<![\w.`]){'(?:' + '|'.join(sorted(names)) + ')'}\(")
    for path in error_sources.source_files():
        file = path.relative_to(SOURCE).as_posix()
        text = path.read_text()
        if "from ludus" not in text and file != "errors.py":
            continue
        own = set(re.findall(r"^class (\w+)", text, re.MULTILINE)) - {name.partition(":")[2] for name in _of(file)}
        for number, line in enumerate(_without_strings(text), start=1):
            found = call.search(line)
            if found and "class " not in line and "def " not in line and found[0][:-1] not in own | _foreign(text):
                assert f"`{file}:{number}`" in page, f"{file}:{number}: {line.strip()}"


@pytest.mark.slow
def test_every_text_that_an_exception_is_raised_with_is_on_the_page_of_errors():
    page = error_pages.errors_page()
    for path in error_sources.source_files():
        file = path.relative_to(SOURCE).as_posix()
        if file.startswith(error_reasons.LEFT_OUT):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _says_a_sentence(node.exc):
                places = {f"`{file}:{line}`" for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
                assert any(place in page for place in places), f"{file}:{node.lineno}: {ast.unparse(node)}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "a reward must be a finite number, not {shown}: return a number or a Verdict",
        "the line is indented with a tab",
        "is a generator, because it contains yield",
        "a turn has no key {key}. Known: {",
        "the tool {name} has no self: write def {name}(self, ...)",
        "it begins with a digit, and must begin with a lower case letter",
    ],
)
def test_a_reason_that_errors_quote_is_on_the_page_of_errors(words):
    assert words in error_pages.errors_page()


def test_every_error_on_the_page_says_what_to_do():
    for each in error_sources.source_errors():
        assert each.passed_on or error_pages.cure(each), f"{each.file}:{each.line}: {each.message}"


def test_every_kind_and_stage_of_failure_is_explained():
    from typing import get_args

    from ludus.errors import Stage
    from ludus.runtime.failure_kinds import FAILURE_KINDS

    assert set(error_pages.STAGES) == set(get_args(Stage))
    kinds = {each.kind for each in error_sources.source_errors() if re.fullmatch(r"\w+", each.kind)}
    assert kinds <= set(FAILURE_KINDS)
    assert all(kind.meaning and kind.remedy for kind in FAILURE_KINDS.values())
    page = error_pages.errors_page()
    assert [kind for kind in FAILURE_KINDS if f"| `{kind}` |" not in page] == []


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: ludus.Environment.load("no_such_environment"),
        lambda: ludus.collect("mcqa", model="openai:"),
        lambda: ludus.collect("mcqa", model="scripted:no/such/file.yaml"),
        lambda: ludus.collect("mcqa", model=ludus.ScriptedModel(["A"]), repeats=0),
        lambda: ludus.collect("mcqa", model=ludus.ScriptedModel(["A"]), settings={"agent.max_step": 3}),
        lambda: ludus.load("no/such/run"),
    ],
)
def test_an_error_that_is_raised_matches_a_message_of_the_page(mistake):
    with pytest.raises(UserError) as raised:
        mistake()
    said = " ".join(str(raised.value).split())
    shown = [each for each in error_sources.source_errors() if not each.passed_on]
    fitting = [each for each in shown if error_sources.as_pattern(each.message).match(said)]
    assert any(len(re.sub(r"\{.*?\}", "", each.message)) >= 8 for each in fitting), said


def test_every_environment_has_a_card_with_figures_or_the_reason_why_not():
    pages = environment_cards.card_pages()
    assert set(pages) == set(folders())
    for name, page in pages.items():
        measured = environment_cards.figures(name)
        assert "card" in measured or "missing" in measured
        assert "was not measured yet" not in page, f"run: make cards, for {name}"
        if "example" in measured:
            assert "Reward: **" in page
        assert "licence of the example rows" in page


def test_the_measured_figures_name_no_folder_of_a_machine():
    text = environment_cards.FIGURES.read_text()
    assert str(Path.home()) not in text
    assert "/work/" not in text


@pytest.mark.slow
def test_the_figures_of_a_card_can_be_measured_again():
    import card_figures

    measured = card_figures.measure("string_match", rows=2)
    assert measured["card"]["oracle"] == 1.0
    assert measured["example"]["reward"] == 1.0
    assert measured["example"]["messages"][-1]["role"] == "assistant"
    assert measured["verdict_ms"] >= 0


def test_a_link_out_of_the_docs_leads_to_a_page_or_names_the_path():
    code = "\n```text\n[d](../x)\n```\n"
    text = f"[a](../src/ludus/environments/mcqa/README.md) [b](../benchmarks/bench.py) [c](data.md#x){code}"
    shown = site_links.links_for_site(text, Path("trust.md"))
    assert shown == f"[a](environments/mcqa.md) b (`benchmarks/bench.py`) [c](data.md#x){code}"


def test_an_included_file_stands_in_the_page(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "b.md").write_text("no\n<!-- card -->\nyes\n<!-- end -->\nno\n")
    page = '```{literalinclude} a.py\n:language: python\n```\n\n```{include} b.md\n:start-after: "<!-- card -->"\n'
    shown = included.with_included(f'{page}:end-before: "<!-- end -->"\n```\n', tmp_path)
    assert shown == "```python\nx = 1\n```\n\nyes\n"


def test_every_page_of_the_map_that_is_not_there_yet_is_left_out_and_every_other_page_is_listed(tmp_path):
    for section in site_map.SECTIONS:
        (tmp_path / section.folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / section.folder / "index.md").write_text(f"# {section.folder}\n")
    (tmp_path / "index.md").write_text("# Front\n")
    (tmp_path / "reference" / "python.md").write_text("# Python\n")
    (tmp_path / "about" / "own.md").write_text("# Own\n")
    (tmp_path / "architecture.md").write_text("# Architecture\n")
    site_map.add_toctrees(tmp_path)
    site_map.add_toctrees(tmp_path)
    about = (tmp_path / "about" / "index.md").read_text()
    assert about == "# about\n\n```{toctree}\n:hidden:\n\n../architecture\nown\n```\n"


@settings(max_examples=40)
@given(st.lists(st.text(alphabet="ab|`\n \\*_<[{", max_size=12), min_size=1, max_size=4))
def test_a_table_keeps_its_columns_whatever_its_cells_hold(cells):
    lines = page_text.table(["x"] * len(cells), [[page_text.code(cell) for cell in cells]]).split("\n")
    assert len(lines) == 3
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", lines[2])) >= 2
    assert "\n" not in page_text.code("a\nb")


@settings(max_examples=40)
@given(st.text(max_size=30))
def test_a_block_of_code_ends_where_its_text_ends(text):
    shown = page_text.block(text).split("\n")
    fence = re.match("`+", shown[0])
    assert fence is not None
    assert shown[-1] == fence[0]
    assert all(line != fence[0] for line in shown[1:-1])


def _classes(path: Path) -> list[tuple[str, list[str]]]:
    """The classes of a file with their bases, nested ones as `Outer.Inner`."""

    def walk(body: list[ast.stmt], prefix: str) -> list[tuple[str, list[str]]]:
        found = []
        for node in body:
            if isinstance(node, ast.ClassDef):
                found.append((f"{prefix}{node.name}", [ast.unparse(base) for base in node.bases]))
                found += walk(node.body, f"{prefix}{node.name}.")
        return found

    return walk(ast.parse(path.read_text()).body, "")


def _says_a_sentence(call: ast.Call) -> bool:
    """Whether an exception gets a text of several words. Programming errors inside Ludus say less."""
    silent = {"StopIteration", "KeyError", "NotImplementedError", "AssertionError", "SystemExit", "Exit"}
    if ast.unparse(call.func).split(".")[-1] in silent:
        return False
    texts = [each.value for part in call.args for each in ast.walk(part) if isinstance(each, ast.Constant)]
    return any(isinstance(each, str) and re.search(r"[A-Za-z]{2,} [A-Za-z]{2,}", each) for each in texts)


def _of(file: str) -> set[str]:
    """The classes of errors that a file defines."""
    module = "ludus." + file.removesuffix(".py").replace("/", ".")
    return {name for name in error_sources.error_classes() if name.startswith(f"{module}:")}


def _foreign(text: str) -> set[str]:
    """Names of errors that a file imports from modules where they are no errors of ours."""
    known = error_sources.error_classes()
    found = set()
    for module, names in re.findall(r"^\s*from (ludus[\w.]*) import ([^\n(]+)", text, re.MULTILINE):
        found |= {name.strip() for name in names.split(",") if f"{module}:{name.strip()}" not in known}
    return found


def _without_strings(text: str) -> list[str]:
    """The lines of a file with docstrings and other texts of several lines left empty."""
    return re.sub(r'"""(?:.|\n)*?"""', lambda found: "\n" * found[0].count("\n"), text).split("\n")
