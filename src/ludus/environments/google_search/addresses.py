"""Where a model may send the browser: to public addresses and nowhere else.

A URL that a model wrote must not reach this machine, the network around it or the metadata service of a cloud. A check
of the name alone is no protection, since whoever owns a name can have it answer with one address while it is checked
and another while it is used. So names are resolved here, each address is checked, and the connection is made to the
checked address. Addresses that are written out are held to the same rule, and must be written plainly.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from ludus.runtime.threads import in_thread

Address = IPv4Address | IPv6Address

_LONGEST = 2_000
_UNICAST = IPv6Network("2000::/3")  # all that is on the public web; forms that hold an IPv4 address lie outside of it
_CLOSED = (
    IPv6Network("2001::/32"),  # Teredo and 6to4, which hold one after all
    IPv6Network("2002::/16"),
    IPv4Network("192.0.0.0/24"),  # for protocols; one cloud keeps its metadata there
    IPv4Network("168.63.129.16/32"),  # public by number only: another cloud's service for its own machines
)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NUMBER = re.compile(r"(?:.*\.)?(?:0x[0-9a-f]*|[0-9]+)\.?", re.IGNORECASE | re.DOTALL)

#: Why a URL of an excluded domain is not opened.
EXCLUDED = "URL is in excluded domains"


class Forbidden(OSError):
    """A place where the browser does not go."""


def is_public(address: Address) -> bool:
    """Whether an address is one of the public web: none of this machine, of a private network or for a group."""
    if isinstance(address, IPv6Address) and (address not in _UNICAST or address.scope_id):
        return False
    if any(address in network for network in _CLOSED):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


def domain_of(url: str) -> str:
    """The host of a URL, or an empty text where there is none."""
    try:
        return (urlsplit(url.strip()).hostname or "").strip(".").lower()
    except ValueError:
        return ""


def within(url: str, domains: frozenset[str]) -> bool:
    """Whether a URL belongs to one of some domains, or to a part of one."""
    labels = domain_of(url).split(".")
    return any(".".join(labels[start:]) in domains for start in range(len(labels)))


@dataclass(frozen=True)
class Reach:
    """How far the browser goes: which addresses, on which ports (None for all), and to which domains not at all."""

    address: Callable[[Address], bool] = is_public
    ports: frozenset[int] | None = frozenset({80, 443})
    excluded: frozenset[str] = frozenset()

    def url(self, text: str | URL) -> URL:
        """Check a URL as far as that is possible without resolving its name. Raises `Forbidden`."""
        if len(str(text)) > _LONGEST:
            raise Forbidden("the URL is too long")
        try:
            url = URL(text.strip() if isinstance(text, str) else text)
            host, port = url.raw_host or "", url.port
        except ValueError:
            raise Forbidden("this is not a URL") from None
        if url.scheme not in ("http", "https") or not host:
            raise Forbidden("only http and https URLs can be opened")
        if url.raw_user is not None or url.raw_password is not None:
            raise Forbidden("a URL must not hold a user name or a password")
        if self.ports is not None and port not in self.ports:
            raise Forbidden(f"port {port} is not open to the browser")
        if ":" in host or _NUMBER.fullmatch(host):
            self.check(host)
        elif not _NAME.fullmatch(host):
            raise Forbidden("this is not a URL")
        if within(str(url), self.excluded):
            raise Forbidden(EXCLUDED)
        return url.with_fragment(None)

    def check(self, written: str) -> None:
        """Check an address that is written out. Raises `Forbidden`."""
        try:
            address = ip_address(written)
        except ValueError:
            raise Forbidden("an address must be written plainly") from None
        if not self.address(address):
            raise Forbidden("the address is not on the public web")


#: Private addresses and every port as well: for tests, and for operators who want the model in their own network.
EVERYWHERE = Reach(lambda _: True, None)


class CheckedResolver(AbstractResolver):
    """Resolves names to those of their addresses that are within reach; the connector connects to nothing else."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a host that may be connected to. Raises `Forbidden` when there is none."""
        found = await in_thread(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM)
        checked = []
        for kind, _, proto, _, (address, *_) in found:
            try:
                self._reach.check(str(address))
            except Forbidden:
                continue
            entry = ResolveResult(
                hostname=host, host=str(address), port=port, family=kind, proto=proto, flags=socket.AI_NUMERICHOST
            )
            checked.append(entry)
        if not checked:
            raise Forbidden("the address is not on the public web")
        return checked

    async def close(self) -> None:
        """Nothing is held."""
