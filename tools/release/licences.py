"""The licence of a package, as an expression of SPDX where what the package says allows it.

Packages say it in four places, from the clearest to the vaguest: an expression, a short text, classifiers, and the
files of the licence itself. "BSD License" does not say which of the BSD licences is meant; the file does.
"""

from __future__ import annotations

import re
from typing import Any

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

#: Packages that do not say it clearly in any of the four places, and where it is said instead.
KNOWN = {
    "antlr4-python3-runtime": "BSD-3-Clause",  # the first lines of every file
    "cuda-toolkit": "LicenseRef-NVIDIA-Proprietary",  # it is empty; the packages of NVIDIA that it installs say so
    "protobuf-py-ext": "Apache-2.0",  # protobuf-py says so, which comes from the same repository
    **dict.fromkeys(
        [f"sphinxcontrib-{each}" for each in ("applehelp", "devhelp", "htmlhelp", "qthelp", "serializinghtml")],
        "BSD-2-Clause",  # LICENCE.rst, which their wheels lack
    ),
}

#: Licences of which nobody needs to think twice.
_PERMISSIVE = set(
    "0BSD Apache-2.0 BSD-2-Clause BSD-3-Clause BSL-1.0 CC0-1.0 CNRI-Python HPND ISC MIT MIT-0 MIT-CMU NCSA PSF-2.0"
    " Python-2.0 Unlicense Zlib".split()
)

#: Classifiers that leave no doubt.
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "CC0 1.0 Universal (CC0 1.0) Public Domain Dedication": "CC0-1.0",
    "GNU General Public License v2 (GPLv2)": "GPL-2.0-only",
    "GNU General Public License v2 or later (GPLv2+)": "GPL-2.0-or-later",
    "GNU General Public License v3 (GPLv3)": "GPL-3.0-only",
    "GNU General Public License v3 or later (GPLv3+)": "GPL-3.0-or-later",
    "GNU Lesser General Public License v2 (LGPLv2)": "LGPL-2.0-only",
    "GNU Lesser General Public License v2 or later (LGPLv2+)": "LGPL-2.0-or-later",
    "GNU Lesser General Public License v3 (LGPLv3)": "LGPL-3.0-only",
    "GNU Lesser General Public License v3 or later (LGPLv3+)": "LGPL-3.0-or-later",
    "Historical Permission Notice and Disclaimer (HPND)": "HPND",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Mozilla Public License 1.1 (MPL 1.1)": "MPL-1.1",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
    "zlib/libpng License": "Zlib",
}

#: Short texts of people, and the one licence that each can mean.
_WORDS = {
    r"\bapache\b": "Apache-2.0",
    r"\bmit\b|\bexpat\b": "MIT",
    r"(?:3|three).?clause|(?:new|modified|revised).bsd": "BSD-3-Clause",
    r"(?:2|two).?clause|simplified.bsd": "BSD-2-Clause",
    r"(?:mozilla|mpl).*\b2": "MPL-2.0",
    r"python software foundation|\bpsf": "PSF-2.0",
    r"\bisc\b": "ISC",
    r"\bunlicense\b": "Unlicense",
    r"\bgpl|\blgpl|general public": "",  # which version is rarely said: the words stay as they are
}

#: Sentences of the licences themselves, all of which a text must have. The first that fits counts.
_SENTENCES = [
    ("Apache-2.0", (r"apache lic\w+", r"version 2\.0")),
    ("MPL-2.0", (r"mozilla public license,? (?:version|v\.) ?2\.0",)),
    ("BSD-3-Clause", (r"redistribution and use in source and binary forms", r"endorse or promote products")),
    ("BSD-2-Clause", (r"redistribution and use in source and binary forms",)),
    ("MIT", (r"permission is hereby granted, free of charge", r"the software is provided .as is")),
    ("ISC", (r"permission to use, copy, modify, and(?:/or)? distribute this software for any purpose",)),
]


def licence_of(name: str, declared: dict[str, Any]) -> str:
    """The licence of a package: an expression of SPDX, or the package's own words; empty if nobody says one."""
    text, files = declared["text"].strip(), declared["files"]
    named = [each for each in declared["classifiers"] if each != "OSI Approved"]
    if declared["expression"]:
        return _expression(declared["expression"]) or str(declared["expression"])
    if _expression(text) and not _contradicted(_expression(text), named):
        return _expression(text)
    if name in KNOWN:
        return KNOWN[name]
    if _contradicted(_expression(text), named) and (written := _of_files(files)):
        return written
    if named:
        return " AND ".join(dict.fromkeys(_CLASSIFIERS.get(each) or _vague(each, text, files) for each in named))
    if text and text != "UNKNOWN":
        return _vague(text, text, files)
    return _of_files(files)


def _contradicted(expression: str, classifiers: list[str]) -> bool:
    """Whether classifiers name only other licences than an expression does."""
    named = [_CLASSIFIERS[each] for each in classifiers if each in _CLASSIFIERS]
    return bool(expression and named) and not any(each in expression for each in named)


def permissive(licence: str) -> bool:
    """Whether a licence asks for no more than its own text, or leaves the choice of one that does."""
    choices = [licence] if "(" in licence else licence.split(" OR ")
    named = [re.split(r" (?:AND|OR) ", re.sub(r"[()]| WITH \S+", "", each)) for each in choices]
    return any(set(names) <= _PERMISSIVE for names in named)


def is_spdx(licence: str) -> bool:
    """Whether a licence is an expression of SPDX."""
    return bool(_expression(licence))


def _expression(text: str) -> str:
    """A text as an expression of SPDX; empty if it is none."""
    try:
        return str(canonicalize_license_expression(text)) if text and "\n" not in text else ""
    except InvalidLicenseExpression:
        return ""


def _vague(words: str, text: str, files: list[str]) -> str:
    """What words mean that leave the licence open: the short text says more, or the file of the licence does."""
    for said in (words, text):
        meant = {licence for pattern, licence in _WORDS.items() if re.search(pattern, said.lower()) and len(said) < 100}
        if len(meant) == 1 and (licence := meant.pop()):
            return licence
    if re.fullmatch(r"public domain|.*\b[al]?gpl\b.*|.*general public.*", words.lower()):
        return words
    return _of_text(text) or _of_files(files) or words.splitlines()[0][:80]


def _of_files(files: list[str]) -> str:
    """The licence whose text a file is."""
    return next((licence for each in files if (licence := _of_text(each))), "")


def _of_text(text: str) -> str:
    flat = re.sub(r"\s+", " ", text.lower())
    fitting = (licence for licence, sentences in _SENTENCES if all(re.search(each, flat) for each in sentences))
    return next(fitting, "")
