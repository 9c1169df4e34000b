"""The map of the site: its sections and their pages, in the order of the sidebar.

Pages carry no Sphinx syntax for this, so that they read well on a code host: `with_toctree` adds the lists of pages to
the staged copies. A page that lies in a section's folder and not in the map comes after the others.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Section:
    """A folder of the site. `pages` are paths from its folder without `.md`; `index` comes first by itself."""

    folder: str
    pages: tuple[str, ...]


def _section(folder: str, pages: str) -> Section:
    return Section(folder, tuple(pages.split()))


#: The order is that of a person's work. A section that another one lists stands below that one in the sidebar.
SECTIONS = [
    _section(
        "get-started",
        "setup rollout-collection first-training-run which-agent which-model naming-tasks record failures costs",
    ),
    _section(
        "environment-tutorials",
        "creating multi-step multi-turn user-modelling llm-as-judge rlhf-reward-models ../environments "
        "../resources-server/index ../cookbook/index",
    ),
    _section("resources-server", "python-tools apis containers ../sandbox ../sandbox-hosted"),
    _section(
        "cookbook",
        "sql_desk unit_test_writer json_extractor wordle retrieval_with_citations code_review spreadsheet form_filling "
        "negotiation safety_refusals needle self_play",
    ),
    _section("check", "../trust ../qualify-hooks ../profile ../resources-server/profiling"),
    _section(
        "collect",
        "../environments/index ../collecting ../data/index ../model-server/index ../agent-server/index",
    ),
    _section("environments", ""),
    _section("data", "prepare-and-validate hugging-face ../data"),
    _section("model-server", "vllm exact-tokens openai azure responses-api ../models"),
    _section("agent-server", "bring-your-own"),
    _section("look", "../view ../results ../telemetry"),
    _section(
        "training-tutorials",
        "trl nemo-rl-grpo verl unsloth nemo-customizer offline-sft-dpo harness ../training ../trainers ../credit",
    ),
    _section(
        "infrastructure",
        "deployment-topologies ray ../ray ../clusters ../environment-tutorials/multi-node ../scale ../serving",
    ),
    _section("moving", "from-nemo-gym ../harnesses harbor harbor-fields from-inspect from-verifiers openenv"),
    _section(
        "reference",
        "cli configuration python faq ../troubleshooting/index ../about/index ../contribute/index",
    ),
    _section("reference/python", ""),
    _section("troubleshooting", "errors"),
    _section("about", "motivation concepts performance ecosystem ../architecture"),
    _section("contribute", "environments trainers development"),
]

_TOCTREE = re.compile(r"^(`{3,}|:{3,})\{toctree\}.*?^\1\s*$\n?", re.MULTILINE | re.DOTALL)


def page_of(section: Section, page: str) -> str:
    """The path of a page from `docs`, without `.md`."""
    return os.path.normpath(f"{section.folder}/{page}")


def map_pages() -> list[str]:
    """Every page of the map, by its path from `docs`; those that are generated one by one are not in it."""
    found = ["index"]
    for section in SECTIONS:
        own = [] if section.folder == "reference/python" else ["index"]
        found += [page_of(section, page) for page in (*own, *section.pages)]
    return list(dict.fromkeys(found))


def add_toctrees(staging: Path) -> None:
    """Add the list of its pages to the front page and to the index of each section."""
    placed = {page_of(section, page) for section in SECTIONS for page in section.pages}
    for section in SECTIONS:
        listed = [page for page in section.pages if (staging / f"{page_of(section, page)}.md").is_file()]
        for path in sorted((staging / section.folder).glob("*.md")):
            name = path.relative_to(staging).with_suffix("").as_posix()
            if path.stem != "index" and name not in placed:
                listed.append(path.stem)
        index = "reference/python.md" if section.folder == "reference/python" else f"{section.folder}/index.md"
        prefix = "python/" if section.folder == "reference/python" else ""
        _append(staging / index, [f"{prefix}{page}" for page in listed])
    indexes = [f"{section.folder}/index" for section in SECTIONS]
    fronts = [page for page in indexes if page not in placed and (staging / f"{page}.md").is_file()]
    loose = [path.stem for path in sorted(staging.glob("*.md")) if path.stem != "index" and path.stem not in placed]
    _append(staging / "index.md", [*fronts, *loose])


def _append(path: Path, pages: list[str]) -> None:
    """Put one hidden list in place of those that a page has."""
    text = _TOCTREE.sub("", path.read_text()).rstrip()
    lines = "\n".join(pages)
    path.write_text(f"{text}\n\n```{{toctree}}\n:hidden:\n\n{lines}\n```\n" if pages else f"{text}\n")
