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


SECTIONS = [
    _section("get-started", "setup rollout-collection first-training-run"),
    _section("about", "motivation concepts performance ecosystem ../architecture"),
    _section("model-server", "vllm exact-tokens openai azure responses-api ../models"),
    _section(
        "resources-server",
        "python-tools apis containers profiling ../environments ../sandbox ../sandbox-hosted ../profile",
    ),
    _section("agent-server", "bring-your-own ../harnesses ../serving"),
    _section("data", "prepare-and-validate hugging-face ../data ../collecting ../results ../trust ../qualify-hooks"),
    _section(
        "environment-tutorials",
        "creating multi-step multi-turn user-modelling multi-node llm-as-judge rlhf-reward-models",
    ),
    _section(
        "training-tutorials",
        "nemo-rl-grpo unsloth trl verl nemo-customizer offline-sft-dpo ../training ../trainers ../credit",
    ),
    _section("infrastructure", "deployment-topologies ray ../ray ../clusters ../scale ../telemetry ../view"),
    _section("cookbook", ""),
    _section("environments", ""),
    _section("reference", "configuration cli python faq"),
    _section("reference/python", ""),
    _section("troubleshooting", "errors"),
    _section("contribute", "environments trainers development"),
    _section("moving", "from-nemo-gym from-verifiers from-inspect harbor"),
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
    return found


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
    fronts = [f"{each.folder}/index" for each in SECTIONS if (staging / each.folder / "index.md").is_file()]
    loose = [path.stem for path in sorted(staging.glob("*.md")) if path.stem != "index" and path.stem not in placed]
    _append(staging / "index.md", [*fronts, *loose])


def _append(path: Path, pages: list[str]) -> None:
    """Put one hidden list in place of those that a page has."""
    text = _TOCTREE.sub("", path.read_text()).rstrip()
    lines = "\n".join(pages)
    path.write_text(f"{text}\n\n```{{toctree}}\n:hidden:\n\n{lines}\n```\n" if pages else f"{text}\n")
