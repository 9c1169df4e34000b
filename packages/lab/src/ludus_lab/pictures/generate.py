"""Endless pictures with a question each: the same seed draws the same pictures."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus_lab.needs import require

WIDTH, HEIGHT = 240, 180
COLOURS = {"red": (200, 30, 30), "green": (20, 140, 40), "blue": (30, 60, 200), "orange": (240, 140, 0)}
NAMES = ["Oslo", "Lima", "Cairo", "Delhi", "Quito", "Hanoi"]
FORM = "End with your answer between tags, as in <answer>{}</answer>."

#: A question, its answer, and how far an answer may be off in pixels (0 means that it must be equal).
Question = tuple[str, str, float]


def stream(seed: int, *, kind: str = "") -> Iterator[dict[str, Any]]:
    """Rows of one kind (`circles`, `point`, `chart` or `table`), by default of all kinds in turn."""
    if kind and kind not in KINDS:
        raise UserError(f"data.kind {kind!r:.40} is not a kind of picture", did_you_mean(kind, KINDS))
    require(__package__)
    generator, names = random.Random(seed), [kind] if kind else list(KINDS)
    while True:
        for name in names:
            yield row(name, generator)


def row(kind: str, generator: random.Random) -> dict[str, Any]:
    """One row: a drawn picture as a data URL, a question, and its answer."""
    from PIL import Image, ImageDraw

    picture = Image.new("RGB", (WIDTH, HEIGHT), "white")
    question, answer, tolerance = KINDS[kind](ImageDraw.Draw(picture), generator)
    file = BytesIO()
    picture.save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    content = [{"type": "input_text", "text": question}, {"type": "input_image", "image_url": url, "detail": "auto"}]
    prompt = [{"role": "user", "content": content}]
    expected = {"kind": kind, "expected_answer": answer, "tolerance": tolerance}
    return {"responses_create_params": {"input": prompt}, **expected}


def _circles(draw: Any, generator: random.Random) -> Question:
    colour, count = generator.choice(sorted(COLOURS)), generator.randint(1, 9)
    others = [generator.choice(sorted(COLOURS.keys() - {colour})) for _ in range(generator.randint(0, 4))]
    cells = generator.sample([(column, line) for column in range(6) for line in range(4)], count + len(others))
    for name, (column, line) in zip([*[colour] * count, *others], cells, strict=True):
        radius, x, y = generator.randint(8, 16), 20 + 40 * column, 22 + 45 * line
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=COLOURS[name])
    return f"How many {colour} circles does the picture have? {FORM.format(3)}", str(count), 0.0


def _point(draw: Any, generator: random.Random) -> Question:
    x, y = generator.randint(10, WIDTH - 10), generator.randint(10, HEIGHT - 10)
    draw.line((x - 6, y, x + 6, y), fill="black", width=2)
    draw.line((x, y - 6, x, y + 6), fill="black", width=2)
    size = f"The picture is {WIDTH} pixels wide and {HEIGHT} high; 0, 0 is its upper left corner."
    return f"Where is the middle of the cross? {size} {FORM.format('120, 40')}", f"{x}, {y}", 10.0


def _chart(draw: Any, generator: random.Random) -> Question:
    names, heights = generator.sample(NAMES, 5), generator.sample(range(2, 14), 5)
    highest = generator.random() < 0.5
    for number, (name, height) in enumerate(zip(names, heights, strict=True)):
        left = 12 + 46 * number
        draw.rectangle((left, 155 - 10 * height, left + 30, 155), fill=COLOURS["blue"])
        draw.text((left, 160), name, fill="black")
    wanted = (max if highest else min)(zip(heights, names, strict=True))[1]
    return f"Which name has the {'highest' if highest else 'lowest'} bar? {FORM.format('Rome')}", wanted, 0.0


def _table(draw: Any, generator: random.Random) -> Question:
    rows, columns = generator.sample(NAMES, 4), ["2021", "2022", "2023"]
    cells = {(name, year): generator.randint(10, 99) for name in rows for year in columns}
    for across, year in enumerate(columns):
        draw.text((75 + 55 * across, 15), year, fill="black")
    for down, name in enumerate(rows):
        draw.line((10, 34 + 35 * down, 230, 34 + 35 * down), fill="grey")
        draw.text((15, 45 + 35 * down), name, fill="black")
        for across, year in enumerate(columns):
            draw.text((80 + 55 * across, 45 + 35 * down), str(cells[name, year]), fill="black")
    name, year = generator.choice(sorted(cells))
    return f"What is the value of {name} in {year}? {FORM.format(55)}", str(cells[name, year]), 0.0


#: Each kind draws its picture and returns the question.
KINDS: dict[str, Callable[[Any, random.Random], Question]] = {
    "circles": _circles,
    "point": _point,
    "chart": _chart,
    "table": _table,
}
