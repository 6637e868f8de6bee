"""A proxy in front of a broker that cuts connections at random bytes, in either direction.

The broker must advertise the proxy's address. Cutting means a reset: bytes that were forwarded
before it may or may not have been read, as on a real network."""

from __future__ import annotations

import asyncio
import random
import socket
from types import TracebackType
from typing import Self

from ottla.client.blocking import LoopThread

HOST = "127.0.0.1"
CHUNK_BYTES = 4096


class CuttingProxy:
    def __init__(self) -> None:
        self.cuts = 0
        self._target_port = 0
        self._mean_bytes: float | None = None
        self._chance = random.Random()
        self._thread = LoopThread("cutting-proxy")
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = self._thread.run(self._listen)
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def forward_to(self, port: int) -> None:
        self._target_port = port

    def cut(self, mean_bytes: float | None, seed: int = 0) -> None:
        """Cut each connection after this many bytes on average, or stop cutting if None."""
        self._mean_bytes = mean_bytes
        self._chance = random.Random(seed)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, HOST, 0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            broker = await asyncio.open_connection(HOST, self._target_port)
        except OSError:
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, broker[1]))
                group.create_task(self._pump(broker[0], writer))
        except* (OSError, EOFError):
            pass
        finally:
            for side in (writer, broker[1]):
                _reset(side)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left: float | None = None
        while chunk := await reader.read(CHUNK_BYTES):
            if self._mean_bytes is not None:
                if left is None:
                    left = self._chance.expovariate(1 / self._mean_bytes)
                if len(chunk) > left:
                    writer.write(chunk[: int(left)])
                    await writer.drain()
                    self.cuts += 1
                    raise EOFError("cut here")
                left -= len(chunk)
            writer.write(chunk)
            await writer.drain()
        raise EOFError("closed")

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._thread.run(end)
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        except OSError:
            pass
    writer.transport.abort()
