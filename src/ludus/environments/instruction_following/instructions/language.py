"""The language of a text, by langdetect.

langdetect draws random numbers: without a seed it can give the same text two languages. This module seeds a detector
factory of its own, so that a text always has the same language and langdetect's global settings stay unchanged.
"""

from __future__ import annotations

from importlib.util import find_spec
from threading import Lock
from typing import Any, Literal

from ludus.errors import missing_extra

Language = Literal[
    "ar", "bg", "bn", "de", "en", "es", "fa", "fi", "fr", "gu", "he", "hi", "it", "ja", "kn",
    "ko", "ml", "mr", "ne", "pa", "pl", "pt", "ru", "sw", "ta", "te", "th", "uk", "ur", "vi",
]  # fmt: skip

_lock = Lock()
_factories: list[Any] = []


def response_language(text: str, *, language: Language, compat: bool = False) -> bool:
    """The text is in the language. In the reference a text without a detectable language is in every language."""
    name = detected(text)
    return name == language or (compat and name is None)


def english_capital(text: str, *, compat: bool = False) -> bool:
    """The text is English, all in capitals."""
    return text.isupper() and _is_english(text, compat)


def english_lowercase(text: str, *, compat: bool = False) -> bool:
    """The text is English, all in lower case."""
    return text.islower() and _is_english(text, compat)


def require_langdetect() -> None:
    """Raise an error that names the extra to install if langdetect is missing."""
    if find_spec("langdetect") is None:
        raise missing_extra("langdetect", "instructions")


def detected(text: str) -> str | None:
    """The code of the most probable language; None if the text has no letters that point to one."""
    require_langdetect()
    from langdetect.lang_detect_exception import LangDetectException  # type: ignore[import-untyped]

    detector = _factory().create()
    try:
        detector.append(text)
        code: str = detector.detect()
    except LangDetectException:
        return None
    return None if code == "unknown" else code


def _is_english(text: str, compat: bool) -> bool:
    name = detected(text)
    return name == "en" or (compat and name is None)


def _factory() -> Any:
    """The seeded factory. Its language profiles are read once, which takes a third of a second."""
    from langdetect import detector_factory  # type: ignore[import-untyped]

    with _lock:
        if not _factories:
            factory = detector_factory.DetectorFactory()
            factory.load_profile(detector_factory.PROFILES_DIRECTORY)
            factory.set_seed(0)
            _factories.append(factory)
        return _factories[0]
