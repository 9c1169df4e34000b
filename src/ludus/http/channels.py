"""Many HTTP connections over one socket, between a client and a server of ours.

Thousands of rollouts make small requests at the same time. With a socket for each, reading and writing sockets costs as
much CPU as the requests. A `Carrier` is one socket with many channels. A channel is a connection like any other: it
carries HTTP/1.1 between the same two protocols, under the same rules and limits, as a socket of its own would. All that
the channels write in one turn of the event loop leaves in one write.

A client asks for a carrier with `Upgrade: ludus-channels`, and asks only a server that announced channels in a reply. A
frame is the number of a channel, a length, and that many bytes. The client numbers its channels from 1 on, in the order
of their first frames; that frame opens the channel, and a frame of length 0 closes it. Such a frame for channel 0 says
that the sender wants no new channels.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from time import monotonic
from typing import Any, Protocol, cast

#: The name of the protocol in the header `Upgrade`.
UPGRADE = b"ludus-channels"
#: The header by which a server announces channels.
ANNOUNCED = b"x-ludus-channels"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: ludus-channels\r\n\r\n"

#: The most channels of a carrier. A client opens another carrier for more, so that workers and balancers get shares.
MOST_CHANNELS = 64

_HEAD = Struct("!II")


class ChannelProtocol(Protocol):
    """What reads one channel: the connection of our client or of our server."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The channel is open."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel is closed."""

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived."""

    def pause_writing(self) -> None:
        """The other side reads slowly."""

    def resume_writing(self) -> None:
        """The other side has read what was sent."""


class HttpChannel:
    """The transport of one channel. Its `number` is 0 until its first frame."""

    __slots__ = ("_carrier", "_closing", "number", "protocol")

    def __init__(self, carrier: Carrier, number: int, protocol: ChannelProtocol) -> None:
        self._carrier, self.number, self.protocol = carrier, number, protocol
        self._closing = False

    def write(self, data: bytes) -> None:
        """Send data as one frame."""
        if data and not self._closing:
            self._carrier.send(self.number or self._carrier.number(self), data)

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        """Send data as one frame."""
        self.write(b"".join(parts))

    def close(self) -> None:
        """Close the channel, after what was written."""
        if not self._closing:
            if self.number:
                self._carrier.send(self.number, b"")
            self.lose(None)

    abort = close

    def lose(self, exc: Exception | None) -> None:
        """The channel is closed, on this side or on the other."""
        if not self._closing:
            self._closing = True
            self._carrier.forget(self)
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, exc)

    def is_closing(self) -> bool:
        """Whether the channel is closed."""
        return self._closing

    def get_write_buffer_size(self) -> int:
        """Always 0: the carrier holds what is not sent yet."""
        return 0

    def get_extra_info(self, name: str) -> Any:
        """The addresses of the socket."""
        return self._carrier.transport.get_extra_info(name)

    def pause_reading(self) -> None:
        """Read nothing from the socket for now: its channels share one stream."""
        self._carrier.pause_reading(self)

    def resume_reading(self) -> None:
        """Read from the socket again, when no other channel has paused it."""
        self._carrier.resume_reading(self)


class Carrier(asyncio.Protocol):
    """One socket with many channels. `accept` makes the protocol of a channel that the other side opens."""

    transport: asyncio.Transport

    def __init__(self, accept: Callable[[], ChannelProtocol] | None = None) -> None:
        self._accept = accept
        self._channels: dict[int, HttpChannel] = {}
        self._unused: set[HttpChannel] = set()  # those without a number
        self._paused: set[HttpChannel] = set()
        self._last = 0  # the last number that was used
        self._head = b""
        self._number = self._left = 0  # the frame that is being read, and how many of its bytes are missing
        self.stopping = self._writes_wait = False
        self._idle_since = monotonic()
        self._frames: list[bytes] = []

    def __len__(self) -> int:
        return len(self._channels) + len(self._unused)

    @property
    def is_open(self) -> bool:
        """Whether new channels may be opened."""
        return not (self.stopping or self.transport.is_closing())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        self.closed = self._loop.create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        for channel in self._all():
            channel.lose(exc)
        if not self.closed.done():
            self.closed.set_result(None)

    def open(self, protocol: ChannelProtocol) -> None:
        """Open a channel for a protocol."""
        channel = HttpChannel(self, 0, protocol)
        self._unused.add(channel)
        self._begin(channel)

    def _begin(self, channel: HttpChannel) -> None:
        channel.protocol.connection_made(cast("asyncio.BaseTransport", channel))
        if self._writes_wait:
            channel.protocol.pause_writing()

    def number(self, channel: HttpChannel) -> int:
        """Give a channel its number."""
        self._last += 1
        channel.number = self._last
        self._unused.discard(channel)
        self._channels[channel.number] = channel
        return channel.number

    def _all(self) -> list[HttpChannel]:
        return [*self._channels.values(), *self._unused]

    def send(self, number: int, data: bytes) -> None:
        """Send a frame, with all others of this turn of the event loop."""
        if not self._frames:
            self._loop.call_soon(self._flush)
        self._frames += (_HEAD.pack(number, len(data)), data)

    def _flush(self) -> None:
        frames, self._frames = self._frames, []
        if not self.transport.is_closing():
            self.transport.write(b"".join(frames))

    def data_received(self, data: bytes) -> None:
        at, end = 0, len(data)
        if self._head:
            data, self._head = self._head + data, b""
            end = len(data)
        while at < end:
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                self._left -= len(piece)
                self._deliver(self._number, piece)
            elif end - at < _HEAD.size:
                self._head = data[at:]
                return
            else:
                self._number, self._left = _HEAD.unpack_from(data, at)
                at += _HEAD.size
                if not self._left:
                    self._end(self._number)

    def _end(self, number: int) -> None:
        if number == 0:
            self.stopping = True
            self._close_if_unused()
        elif (channel := self._channels.get(number)) is not None:
            channel.lose(None)

    def _deliver(self, number: int, piece: bytes) -> None:
        channel = self._channels.get(number)
        if channel is None:
            if self._accept is None or number <= self._last:  # the channel is closed already
                return
            self._last = number
            if len(self._channels) >= MOST_CHANNELS or self.stopping:
                self.send(number, b"")
                return
            channel = self._channels[number] = HttpChannel(self, number, self._accept())
            self._begin(channel)
        channel.protocol.data_received(piece)

    def forget(self, channel: HttpChannel) -> None:
        """A channel is closed."""
        self._channels.pop(channel.number, None)
        self._unused.discard(channel)
        self.resume_reading(channel)
        if not len(self):
            self._idle_since = monotonic()
            self._close_if_unused()

    def pause_reading(self, channel: HttpChannel) -> None:
        """A channel has more data than its protocol can take."""
        if not self._paused:
            self.transport.pause_reading()
        self._paused.add(channel)

    def resume_reading(self, channel: HttpChannel) -> None:
        """A channel's protocol can take more data."""
        if channel in self._paused:
            self._paused.discard(channel)
            if not self._paused and not self.transport.is_closing():
                self.transport.resume_reading()

    def pause_writing(self) -> None:
        self._writes_wait = True
        for channel in self._all():
            channel.protocol.pause_writing()

    def resume_writing(self) -> None:
        self._writes_wait = False
        for channel in self._all():
            channel.protocol.resume_writing()

    def stop(self) -> None:
        """Open no more channels, and close the socket when the last one is closed."""
        if not self.stopping:
            self.stopping = True
            self.send(0, b"")
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self.stopping and not len(self):
            self._loop.call_soon(self.transport.close)  # after the frames of this turn

    def waits_for(self, now: float) -> tuple[str, float]:
        """A carrier without channels waits for the `next` request. Its channels are watched for themselves."""
        return ("reply", 0.0) if len(self) else ("next", now - self._idle_since)
