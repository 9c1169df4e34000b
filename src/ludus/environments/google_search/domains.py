"""The domains of URLs, and those that no page may come from."""

from __future__ import annotations

from urllib.parse import urlsplit

#: The reason that the model sees for a URL of an excluded domain.
EXCLUDED = "URL is in excluded domains"


def domain_of(url: str) -> str:
    """The host of a URL, or an empty text if it has none."""
    try:
        return (urlsplit(url.strip()).hostname or "").strip(".").lower()
    except ValueError:
        return ""


def in_domains(url: str, domains: frozenset[str]) -> bool:
    """Whether a URL's host is one of the domains or a subdomain of one."""
    labels = domain_of(url).split(".")
    return any(".".join(labels[start:]) in domains for start in range(len(labels)))
