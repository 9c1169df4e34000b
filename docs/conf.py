"""How Sphinx builds the site. `_ext/site_build.py` runs it on a staged copy of this folder."""

from __future__ import annotations

import gc
from pathlib import Path

# Documents are millions of small objects: with Python's own threshold, the search for cycles is a tenth of a build.
gc.set_threshold(200_000, 20, 20)

project = "Ludus"
author = "the Ludus authors"
html_title = "Ludus"

extensions = ["myst_parser", "sphinx_copybutton"]
myst_enable_extensions: list[str] = ["deflist"]
smartquotes = False  # --flags must stay as they are typed
myst_heading_anchors = 4
exclude_patterns = ["_ext"]
source_suffix = {".md": "markdown"}

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
copybutton_prompt_text = "$ "
pygments_style = "friendly"
pygments_dark_style = "monokai"

# A code block in a language that Pygments cannot read to its end is shown without colours, which is no mistake.
suppress_warnings = ["misc.highlighting_failure"]
