"""A Markdown twin beside every HTML page, and `llms.txt`, which lists them for programs that read Markdown."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from page_text import first_paragraph

SUMMARY = (
    "Ludus builds reinforcement-learning environments for language models, collects verified rollouts from them at any "
    "scale, and feeds them to any trainer."
)
_NOT_PROSE = re.compile(r"^(`{3,}).*?^\1\s*$|<!--.*?-->", re.MULTILINE | re.DOTALL)
_HIDDEN = re.compile(r"^(`{3,})\{toctree\}.*?^\1\s*$\n?", re.MULTILINE | re.DOTALL)


def write_twins(staging: Path, output: Path) -> None:
    """Copy each staged page to its place beside the HTML, without the lists that only Sphinx reads."""
    for path in pages(staging):
        target = output / path.relative_to(staging)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_HIDDEN.sub("", path.read_text()))
    for path in staging.rglob("*"):
        if (
            path.is_file()
            and path.suffix not in (".md", ".py")
            and path.parts[len(staging.parts)] in ("images", "examples")
        ):
            target = output / path.relative_to(staging)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)


def write_llms_txt(staging: Path, output: Path) -> None:
    """Write the list of all pages: a section per folder, a line per page with its first sentence."""
    lines = ["# Ludus", "", f"> {SUMMARY}"]
    section = None
    for path in sorted(pages(staging), key=lambda each: (len(each.relative_to(staging).parts) > 1, each)):
        name = path.relative_to(staging)
        folder = name.parent.as_posix() if len(name.parts) > 1 else "guides"
        if folder != section:
            lines += ["", f"## {folder}", ""]
            section = folder
        text = path.read_text()
        lines.append(f"- [{title_of(text)}]({name.as_posix()}): {_sentence(text)}")
    (output / "llms.txt").write_text("\n".join(lines) + "\n")


def pages(staging: Path) -> list[Path]:
    """The staged pages."""
    return [path for path in sorted(staging.rglob("*.md")) if not path.name.startswith("_")]


def title_of(text: str) -> str:
    """A page's first heading."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    return found[1].strip().replace("`", "") if found else "untitled"


def _sentence(text: str) -> str:
    """The first sentence of the first paragraph that is prose."""
    body = re.sub(
        r"^(`{3,}).*?^\1\s*$|<!--.*?-->", "", text.partition("\n# ")[2] or text, flags=re.MULTILINE | re.DOTALL
    )
    for paragraph in body.split("\n\n"):
        if paragraph.strip() and not paragraph.lstrip().startswith(("#", "|", "<", "-", "    ")):
            sentence = re.split(r"(?<=[.:?]) ", first_paragraph(paragraph), maxsplit=1)[0]
            return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", sentence)
    return ""
