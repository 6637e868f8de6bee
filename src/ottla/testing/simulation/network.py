"""Network in memory for simulated processes: streams that are slow, cut, or never arrive.

A connection is two one-way streams. Bytes arrive in order, in pieces of any size, each after a
delay drawn from the seed. Like TCP, a stream never loses or reorders bytes. Possible events:

    a link is cut (`cut(a, b)`)   bytes are held back, and delivered if the link is healed before
                                  the peer gives up; otherwise the connection breaks
    a link is slow (`slow_down`)  everything on it takes longer
    a link is reset (`reset`)     its connections break now, and bytes in flight are lost
    a process is killed           its peers see a connection reset, after a delay
    no process listens            connection refused
    a link is cut at connecting   no answer: the connect hangs until the caller's timeout

Links can be cut in one direction or in both. Host names are process names; ports are those that
were requested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ottla.testing.simulation.scheduler import Process, Scheduler

FIRST_FREE_PORT = 40_000
MIN_DELAY_S = 0.000_05
MAX_DELAY_S = 0.002
RESET_AFTER_S = 30.0
"""Time for which TCP retransmits over a cut link before it gives up."""
HIGH_WATER_BYTES = 1 << 20
SPLIT_CHANCE = 0.1


class SimulatedNetwork:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._listeners: dict[tuple[str, int], SimulatedServer] = {}
        self._cut: set[tuple[str, str]] = set()
        self._held: list[ByteStream] = []
        self._slow: dict[tuple[str, str], float] = {}
        self._connections: list[tuple[SimulatedTransport, SimulatedTransport]] = []
        self._next_port = FIRST_FREE_PORT
        self.max_delay_s = MAX_DELAY_S

    def attach(self, process: Process) -> None:
        """Connect a process to the network. Must be called after each (re)start."""
        process.loop.network = self

    # ---------------------------------------------------------------------------------- faults

    def cut(self, sender: str, receiver: str, *, both: bool = True) -> None:
        self._cut.add((sender, receiver))
        if both:
            self._cut.add((receiver, sender))

    def heal(self, sender: str | None = None, receiver: str | None = None) -> None:
        """Heal all links, or both directions of one."""
        if sender is None or receiver is None:
            self._cut.clear()
            self._slow.clear()
        else:
            self._cut -= {(sender, receiver), (receiver, sender)}
        held, self._held = self._held, []
        for stream in held:
            stream.deliver_later()

    def slow_down(self, sender: str, receiver: str, max_delay_s: float) -> None:
        """Delay one direction of a link, until all links are healed."""
        self._slow[sender, receiver] = max_delay_s

    def reset(self, first: str, second: str) -> None:
        self._connections = [pair for pair in self._connections if pair[0].is_open]
        for near, far in self._connections:
            if {near.process.name, far.process.name} == {first, second}:
                near.tear()
                far.tear()

    def is_cut(self, sender: str, receiver: str) -> bool:
        return bool(self._cut) and (sender, receiver) in self._cut

    def hold(self, stream: ByteStream) -> None:
        self._held.append(stream)

    def delay_s(self, sender: str, receiver: str) -> float:
        most = self.max_delay_s
        if self._slow:
            most = self._slow.get((sender, receiver), most)
        return MIN_DELAY_S + (most - MIN_DELAY_S) * self._scheduler.random.random()

    def splits(self) -> bool:
        return self._scheduler.random.random() < SPLIT_CHANCE

    def draw(self, below: int) -> int:
        return self._scheduler.random.randrange(below)

    # ----------------------------------------------------------------------------- from loops

    async def create_server(
        self,
        process: Process,
        factory: Callable[[], Any],
        host: str | None = None,
        port: int = 0,
        *,
        sock: Any = None,
        **_options: Any,
    ) -> SimulatedServer:
        if sock is not None:
            port = sock.port
        if not port:
            port, self._next_port = self._next_port, self._next_port + 1
        key = (process.name, port)
        if key in self._listeners:
            raise OSError(98, "the address is in use")
        server = SimulatedServer(self, process, factory, port)
        self._listeners[key] = server
        process.on_kill.append(server.close)
        return server

    def forget(self, server: SimulatedServer) -> None:
        self._listeners.pop((server.process.name, server.port), None)

    async def create_connection(
        self, process: Process, factory: Callable[[], Any], host: str, port: int, **_options: Any
    ) -> tuple[SimulatedTransport, Any]:
        await asyncio.sleep(self.delay_s(process.name, host))
        if self.is_cut(process.name, host) or self.is_cut(host, process.name):
            await asyncio.sleep(RESET_AFTER_S)
            raise TimeoutError(110, f"no response from {host}")
        server = self._listeners.get((host, port))
        if server is None or not server.process.is_alive:
            raise ConnectionRefusedError(111, f"connection refused by {host}:{port}")
        near, far = self._pair(process, server.process, port)
        protocol = factory()
        near.begin(protocol)
        far_loop = server.process.loop
        far_loop.call_soon(lambda: far.begin(server.factory()))
        return near, protocol

    def _pair(
        self, client: Process, server: Process, port: int
    ) -> tuple[SimulatedTransport, SimulatedTransport]:
        near = SimulatedTransport(self, client, (server.name, port))
        far = SimulatedTransport(self, server, (client.name, 0))
        near.connect_to(far)
        far.connect_to(near)
        self._connections.append((near, far))
        return near, far


class SimulatedServer:
    def __init__(
        self, network: SimulatedNetwork, process: Process, factory: Callable[[], Any], port: int
    ) -> None:
        self._network = network
        self.process = process
        self.factory = factory
        self.port = port

    def close(self) -> None:
        self._network.forget(self)

    async def wait_closed(self) -> None:
        return None


class ByteStream:
    """One direction of a connection: bytes in flight from one transport to the other."""

    def __init__(self, sender: SimulatedTransport, receiver: SimulatedTransport) -> None:
        self.sender = sender
        self.receiver = receiver
        self._waiting: list[bytes] = []
        self.unsent = 0
        self._scheduled = False
        self._ended = False
        self._reset = False
        self._held_since: float | None = None

    def write(self, data: bytes) -> None:
        self._waiting.append(data)
        self.unsent += len(data)
        self.deliver_later()

    def end(self) -> None:
        self._ended = True
        self.deliver_later()

    def reset(self) -> None:
        self._reset = True
        self._waiting.clear()
        self.deliver_later()

    def forget(self) -> None:
        self._waiting.clear()
        self.unsent = 0

    def deliver_later(self) -> None:
        if self._scheduled:
            return
        self._scheduled = True
        network, scheduler = self.sender.network, self.sender.process.scheduler
        receiver = self.receiver.process
        due = scheduler.now + network.delay_s(self.sender.process.name, receiver.name)
        loop = receiver.loop
        loop.call_at(due * receiver.clock_rate, self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        network = self.sender.network
        if network.is_cut(self.sender.process.name, self.receiver.process.name):
            self._hold(network)
            return
        self._held_since = None
        if self._reset:
            self.receiver.broken(ConnectionResetError(104, "connection reset by peer"))
            return
        if self.receiver.is_reading_paused:
            self.receiver.waiting_stream = self
            return
        if self._waiting:
            self._hand_over(network)
        if self._waiting:
            self.deliver_later()
        elif self._ended:
            self.receiver.ended()

    def _hand_over(self, network: SimulatedNetwork) -> None:
        data = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
        self._waiting.clear()
        if len(data) > 1 and network.splits():
            split = 1 + network.draw(len(data) - 1)
            self._waiting.append(data[split:])
            data = data[:split]
        self.unsent -= len(data)
        self.sender.drained()
        self.receiver.received(data)

    def _hold(self, network: SimulatedNetwork) -> None:
        now = self.sender.process.scheduler.now
        if self._held_since is None:
            self._held_since = now
            network.hold(self)
            self.sender.process.loop.call_later(RESET_AFTER_S, self._give_up, now)

    def _give_up(self, since: float) -> None:
        if self._held_since == since:
            self.sender.broken(TimeoutError(110, "the peer cannot be reached"))


class SimulatedTransport(asyncio.Transport):
    def __init__(self, network: SimulatedNetwork, process: Process, peer: tuple[str, int]) -> None:
        super().__init__({"peername": peer, "sockname": (process.name, 0)})
        self.network = network
        self.process = process
        self._protocol: Any = None
        self._is_buffered = False
        """Whether the protocol supplies its own buffer."""
        self._out: ByteStream
        self._peer: SimulatedTransport
        self._closed = False
        self.is_reading_paused = False
        self.waiting_stream: ByteStream | None = None
        self._high = HIGH_WATER_BYTES
        self._writing_paused = False
        self._early: list[bytes] = []

    def connect_to(self, peer: SimulatedTransport) -> None:
        self._peer = peer
        self._out = ByteStream(self, peer)

    def begin(self, protocol: Any) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)
        self.process.on_kill.append(self._killed)
        protocol.connection_made(self)
        early, self._early = self._early, []
        for data in early:
            self.received(data)

    # ---------------------------------------------------------------------------- from streams

    def received(self, data: bytes) -> None:
        if self._closed:
            return
        if self._protocol is None:
            self._early.append(data)
            return
        if not self._is_buffered:
            self._protocol.data_received(data)
            return
        while data and not self._closed:
            buffer = memoryview(self._protocol.get_buffer(len(data)))
            count = min(len(buffer), len(data))
            buffer[:count] = data if count == len(data) else data[:count]
            self._protocol.buffer_updated(count)
            data = data[count:]
            if data and self.is_reading_paused:
                self._put_back(data)
                return

    def _put_back(self, data: bytes) -> None:
        stream = self._peer._out
        stream._waiting.insert(0, data)
        stream.unsent += len(data)
        self.waiting_stream = stream

    def drained(self) -> None:
        if self._writing_paused and not self._out.unsent:
            self._writing_paused = False
            self.process.loop.call_soon(self._protocol.resume_writing)

    def ended(self) -> None:
        if not self._closed and self._protocol is not None:
            self._protocol.eof_received()
            self.close()

    def broken(self, error: Exception) -> None:
        if not self._closed:
            self._closed = True
            if self._protocol is not None:
                self.process.loop.call_soon(self._protocol.connection_lost, error)

    @property
    def is_open(self) -> bool:
        return not self._closed or not self._peer._closed

    def tear(self) -> None:
        """Break the connection and discard all bytes in flight."""
        self._out.forget()
        self.broken(ConnectionResetError(104, "connection reset by peer"))

    def _killed(self) -> None:
        if not self._closed:
            self._closed = True
            self._out.reset()

    # ------------------------------------------------------------------------------- asyncio's

    def write(self, data: Any) -> None:
        if self._closed:
            return
        self._out.write(bytes(data))
        if self._out.unsent > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(bytes(piece) for piece in list_of_data))

    def get_write_buffer_size(self) -> int:
        return self._out.unsent

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high

    def pause_reading(self) -> None:
        self.is_reading_paused = True

    def resume_reading(self) -> None:
        self.is_reading_paused = False
        stream, self.waiting_stream = self.waiting_stream, None
        if stream is not None:
            stream.deliver_later()

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._out.end()
            self.process.loop.call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self._out.reset()
            self.process.loop.call_soon(self._protocol.connection_lost, None)
