"""The client's side of channels: it asks a server for carriers, and opens another one when all are full."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from ludus.http.channels import MOST_CHANNELS, SWITCHED, Carrier, ChannelProtocol

#: How long a server may take to switch to channels. After that, requests get sockets of their own.
HANDSHAKE_SECONDS = 5.0


class Handshake(asyncio.Protocol):
    """A client's new connection until the server has switched it to channels. `switched` is whether it did."""

    def __init__(self, request: bytes) -> None:
        self._request, self._got = request, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.switched: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        if self._got == SWITCHED:
            self._end(True)
        elif not SWITCHED.startswith(self._got):
            self._end(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(False)

    def _end(self, switched: bool) -> None:
        if not self.switched.done():
            self.switched.set_result(switched)

    async def carrier(self) -> Carrier | None:
        """The carrier that this connection becomes; None if the server has none."""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                switched = await self.switched
        except TimeoutError:  # a proxy on the way may swallow `Upgrade`
            switched = False
        except BaseException:
            self.transport.abort()
            raise
        if not switched:
            self.transport.abort()
            return None
        carrier = Carrier()
        self.transport.set_protocol(carrier)
        carrier.connection_made(self.transport)
        return carrier


class Carriers:
    """The carriers of a client to one server. `connect` opens a connection for a protocol."""

    def __init__(self, connect: Callable[[Callable[[], Handshake]], Awaitable[Handshake]], request: bytes) -> None:
        self._connect, self._request = connect, request
        self._carriers: list[Carrier] = []
        self._opening = asyncio.Lock()
        self.refused = False  #: the server takes no more carriers

    async def open(self, protocol: ChannelProtocol) -> bool:
        """Open a channel for a protocol. False if the server has no channels; raises `OSError` if it is unreachable."""
        carrier = self._free()
        while carrier is None and not self.refused:
            async with self._opening:
                if self._free() is None and not self.refused:
                    opened = await (await self._connect(lambda: Handshake(self._request))).carrier()
                    if opened is None:
                        self.refused = True
                    else:
                        self._carriers = [old for old in self._carriers if old.is_open] + [opened]
            carrier = self._free()
        if carrier is None:
            return False
        carrier.open(protocol)
        return True

    def _free(self) -> Carrier | None:
        for carrier in self._carriers:
            if carrier.is_open and len(carrier) < MOST_CHANNELS:
                return carrier
        return None

    def close(self) -> None:
        """Close all sockets, each after the last reply that is under way."""
        for carrier in self._carriers:
            if len(carrier):
                carrier.stop()
            else:
                carrier.transport.abort()
