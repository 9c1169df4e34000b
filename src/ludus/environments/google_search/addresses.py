"""The browser connects to public addresses only.

A URL that a model wrote must not reach this machine, its local network or a cloud's metadata service. Checking the host
name is not enough: the owner of a name can let it resolve to one address for the check and to another for the
connection (DNS rebinding). So names are resolved here, each address is checked, and the connection goes to the checked
address. A URL with an IP address follows the same rule, and only the standard notation is accepted.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from ludus.environments.google_search.domains import EXCLUDED, in_domains
from ludus.runtime.threads import in_thread

Address = IPv4Address | IPv6Address

_LONGEST = 2_000
_UNICAST = IPv6Network("2000::/3")  # the public web; most IPv6 forms that embed an IPv4 address are outside of it
_CLOSED = (
    IPv6Network("2001::/32"),  # Teredo and 6to4 embed an IPv4 address too
    IPv6Network("2002::/16"),
    IPv4Network("192.0.0.0/24"),  # protocol assignments; one cloud's metadata service is here
    IPv4Network("168.63.129.16/32"),  # a public number, but another cloud's internal service
)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_NUMBER = re.compile(r"(?:.*\.)?(?:0x[0-9a-f]*|[0-9]+)\.?", re.IGNORECASE | re.DOTALL)


class Forbidden(OSError):
    """The browser does not open this URL or address."""


def is_public(address: Address) -> bool:
    """Whether an address is on the public web: not loopback, private, link-local, reserved or multicast."""
    if isinstance(address, IPv6Address) and (address not in _UNICAST or address.scope_id):
        return False
    if any(address in network for network in _CLOSED):
        return False
    return address.is_global and not (address.is_multicast or address.is_reserved)


@dataclass(frozen=True)
class Reach:
    """What the browser may open: which addresses, which ports (None for all), and which domains are excluded."""

    address: Callable[[Address], bool] = is_public
    ports: frozenset[int] | None = frozenset({80, 443})
    excluded: frozenset[str] = frozenset()

    def url(self, text: str | URL) -> URL:
        """Check a URL without resolving its host name. Raises `Forbidden`."""
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
        if in_domains(str(url), self.excluded):
            raise Forbidden(EXCLUDED)
        return url.with_fragment(None)

    def check(self, written: str) -> None:
        """Check an IP address. Raises `Forbidden`."""
        try:
            address = ip_address(written)
        except ValueError:
            raise Forbidden("an address must be written plainly") from None
        if not self.address(address):
            raise Forbidden("the address is not on the public web")


#: All addresses and ports: for tests, and for operators who want the model in their own network.
EVERYWHERE = Reach(lambda _: True, None)


class CheckedResolver(AbstractResolver):
    """Resolves a name to its addresses that `Reach` allows; the connector uses only these."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The allowed addresses of a host. Raises `Forbidden` if there are none."""
        addresses = await in_thread(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM)
        checked = []
        for kind, _, proto, _, (address, *_) in addresses:
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
        """There is nothing to close."""
