r"""Finds the unit of measurement at the end of an answer, so that 5 kg is not equal to 5 km.

Two answers have different units only if this module knows both units. `unit_of("7 apples")` is None.
"""

from __future__ import annotations

import re

_NAMES = {
    "mm": "mm millimeter millimetre",
    "cm": "cm centimeter centimetre",
    "dm": "dm decimeter decimetre",
    "m": "m meter metre",
    "km": "km kilometer kilometre",
    "in": "in inch inche",
    "ft": "ft foot feet",
    "yd": "yd yard",
    "mi": "mi mile",
    "mg": "mg milligram",
    "g": "g gm gram",
    "kg": "kg kilogram",
    "t": "tonne ton",
    "lb": "lb pound",
    "oz": "oz ounce",
    "ms": "ms millisecond",
    "s": "s sec second",
    "min": "min minute",
    "h": "h hr hour",
    "day": "day",
    "week": "week",
    "month": "month",
    "year": "yr year",
    "ml": "ml milliliter millilitre",
    "l": "l liter litre",
    "deg": "deg degree \u00b0",
    "rad": "rad radian",
    "cent": "cent",
    "dollar": "dollar usd",
    "euro": "euro eur",
    "n": "n newton",
    "j": "j joule",
    "kj": "kj kilojoule",
    "w": "w watt",
    "kw": "kw kilowatt",
    "v": "v volt",
    "a": "amp ampere",
    "hz": "hz hertz",
    "mol": "mol mole",
}
_KNOWN = {name: unit for unit, names in _NAMES.items() for name in names.split()}
_RATES = {"mph": "mi/h", "kmh": "km/h", "kmph": "km/h", "kph": "km/h"}
_POWERS = {"square": "2", "sq": "2", "cubic": "3", "cu": "3"}

_MARKUP = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|mbox|rm)\b|\\[ ,;:!]|[{}$~]")
_BEFORE_POWER = re.compile(r"\s*\^\s*")
_TAIL = re.compile(r"(?<=[\d)}\s])\s*([A-Za-z\u00b0][A-Za-z\u00b0/.^0-9 ]{0,40})$")
_PART = re.compile(r"(?:(square|sq|cubic|cu)\.? ?)?([a-z\u00b0]+)\.?\^?([23]?)")


def unit_of(answer: str) -> str | None:
    r"""The unit that an answer ends with, in one spelling: 'm/s' for `10\text{ m/s}`, 'cm2' for `5 square centimetres`.

    None without a known unit.
    """
    if answer.strip().startswith((r"\$", r"$\$")):
        return "dollar"
    text = answer.replace(r"^\circ", " deg").replace(r"^{\circ}", " deg")
    text = _BEFORE_POWER.sub("^", _MARKUP.sub(" ", text)).strip()
    match = _TAIL.search(f" {text}" if text[:1].isdigit() else text)
    if match is None:
        return None
    tail = " ".join(match[1].lower().split()).rstrip(".")
    parts = [_part(part.strip()) for part in re.split(r"/| per ", _RATES.get(tail, tail))]
    return "/".join(part for part in parts if part is not None) if None not in parts else None


def _part(text: str) -> str | None:
    match = _PART.fullmatch(text)
    if match is None:
        return None
    name = match[2]
    unit = _KNOWN.get(name) or _KNOWN.get(name.removesuffix("s"))
    power = _POWERS.get(match[1] or "", "") or match[3]
    return f"{unit}{power}" if unit else None
