"""How every figure of ours is made, labelled and written. Needs the extra `plot`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from ludus.errors import UserError, missing_extra
from ludus.store.drafts import write_whole

FORMATS = ("png", "svg")
COLOUR, SECOND_COLOUR = "#3b6ea8", "#c8553d"
SIZE = (7.0, 4.2)


def new_figure(title: str, size: tuple[float, float] = SIZE) -> tuple[Any, Any]:
    """A figure with one pair of axes, drawn without a display."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("matplotlib", "plot") from error
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def label_axes(axes: Any, x: str, y: str) -> None:
    """Name the axes. A `$` in a name is a dollar and not a formula."""
    for label in (axes.set_xlabel(x), axes.set_ylabel(y)):
        label.set_parse_math(False)


def save_figure(figure: Any, path: Path, format_: str) -> Path:
    """Write a figure as a whole file."""
    if format_ not in FORMATS:
        raise UserError(f"a figure cannot be written as {format_}", f"Choose {' or '.join(FORMATS)}")
    written = io.BytesIO()
    figure.savefig(written, format=format_, dpi=150)
    write_whole(path, written.getvalue())
    return path
