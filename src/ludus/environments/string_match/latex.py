r"""One spelling for LaTeX and plain text: `\boxed{}` and `$` are removed, `\pi` is π, `\sqrt{2}` is √2, `\%` is %.

A degree sign is kept as it is written: the reference compares degrees as numbers.
"""

from __future__ import annotations

import re
import unicodedata

_WRAPPERS = "boxed|text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|operatorname|mbox"
_WRAPPER = re.compile(rf"\\(?:{_WRAPPERS})\s*\{{([^{{}}]*)\}}")
_DELIMITER = re.compile(r"\\?\$|\\[()\[\]]|\\(?:left|right)\b")
_SPACING = re.compile(r"\\(?:[,;:! ]|quad\b|qquad\b|thinspace\b)|(?<=\S)~(?=\S)")
_BRACKET = re.compile(r"\\[()\[\]]")
_ESCAPED = re.compile(r"\\([%&#_])")
_GREEK = "alpha beta gamma delta epsilon theta lambda mu pi rho sigma tau phi omega".split()
_SYMBOLS = {name: unicodedata.lookup(f"GREEK SMALL LETTER {name.replace('lambda', 'lamda')}") for name in _GREEK}
_SYMBOLS |= {
    "times": "\u00d7",
    "cdot": "\u00b7",
    "div": "\u00f7",
    "pm": "\u00b1",
    "infty": "\u221e",
    "approx": "\u2248",
}
_SYMBOLS |= {
    "leq": "\u2264",
    "le": "\u2264",
    "geq": "\u2265",
    "ge": "\u2265",
    "neq": "\u2260",
    "ne": "\u2260",
    "to": "\u2192",
}
_SYMBOLS |= {"rightarrow": "\u2192", "sqrt": "\u221a"}
_COMMAND = re.compile(rf"\\({'|'.join(sorted(_SYMBOLS, key=len, reverse=True))})(?![a-z])")
_PLAIN_ROOT = re.compile(r"\bsqrt\s*(?=[({])")
_ROOT = re.compile(r"√\s*(?:\{([^{}]*)\}|\(([^()]*)\))")
_AROUND_SYMBOL = re.compile(rf" ?([{''.join(sorted(set(_SYMBOLS.values())))}]) ?")


def unwrapped(text: str) -> str:
    r"""The text with `\boxed{}`, `\text{}` and similar wrappers replaced by their content."""
    for _ in range(5):
        text, count = _WRAPPER.subn(r"\1", text)
        if not count:
            break
    return text


def quantity_text(text: str) -> str:
    r"""The text without wrappers, spacing and delimiters, but with its currency: `\(5\,\text{km}\)` is "5 km"."""
    return " ".join(_BRACKET.sub("", _SPACING.sub(" ", unwrapped(text))).split())


def plain(text: str, space: str = "") -> str:
    r"""A text in lower case without LaTeX: wrappers and delimiters removed, symbols for commands.

    `space` replaces the spacing commands: `12\,345` needs none and `5\,\text{km}` needs one.
    """
    text = _COMMAND.sub(lambda match: _SYMBOLS[match[1]], text)
    text = _ROOT.sub(_root, _PLAIN_ROOT.sub("\u221a", text))
    text = _ESCAPED.sub(r"\1", _DELIMITER.sub("", _SPACING.sub(space, unwrapped(text))))
    return _AROUND_SYMBOL.sub(r"\1", " ".join(text.split()))


def _root(match: re.Match[str]) -> str:
    r"""The root of one sign without brackets, of anything else in round brackets: `\sqrt{x+1}` is √(x+1)."""
    inside = (match[1] if match[1] is not None else match[2]).strip()
    return f"√{inside}" if inside.isalnum() and (len(inside) == 1 or inside.isdigit()) else f"√({inside})"
