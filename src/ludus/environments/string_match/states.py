"""The states of the USA by name, in lower case, and their postal abbreviations."""

from __future__ import annotations

_PAIRS = """
al alabama, ak alaska, az arizona, ar arkansas, ca california, co colorado, ct connecticut, de delaware, fl florida,
ga georgia, hi hawaii, id idaho, il illinois, in indiana, ia iowa, ks kansas, ky kentucky, la louisiana, me maine,
md maryland, ma massachusetts, mi michigan, mn minnesota, ms mississippi, mo missouri, mt montana, ne nebraska,
nv nevada, nh new hampshire, nj new jersey, nm new mexico, ny new york, nc north carolina, nd north dakota, oh ohio,
ok oklahoma, or oregon, pa pennsylvania, ri rhode island, sc south carolina, sd south dakota, tn tennessee, tx texas,
ut utah, vt vermont, va virginia, wa washington, wv west virginia, wi wisconsin, wy wyoming, dc district of columbia
"""

#: Abbreviations by name: `STATES["west virginia"]` is "wv".
STATES = {name: short for short, _, name in (pair.strip().partition(" ") for pair in _PAIRS.split(","))}

#: States that are also given names or surnames: "Virginia Woolf" is not "VA Woolf", "Texas A&M" is "TX A&M".
NAMES_OF_PEOPLE = frozenset(("virginia", "georgia", "indiana", "washington", "montana", "nevada", "tennessee"))
