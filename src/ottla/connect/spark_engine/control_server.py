"""The driver's end of the control channels: accepts the processes of runs and serves them.

The server refuses a process that does not know the key of a registered run. Each process has a
thread here, which passes its reports to the run and answers them, so that the process knows that
the driver is alive.
"""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from typing import Protocol

from ottla.connect.spark_engine.control_channel import (
    HEARTBEAT_S,
    ChannelClosed,
    ControlChannel,
    Message,
)

logger = logging.getLogger(__name__)

MAX_STRANGERS = 64
"""Maximum number of connections that have not authenticated."""


class ControlledRun(Protocol):
    """A run whose processes connect to the server. The server's threads call the methods."""

    def on_connected(self, channel: ControlChannel, hello: Message) -> Message:
        """Handle a new process, and return the reply that lets it begin or refuses it.

        `hello` has the number of Spark's `attempt`, and the `host` and `pid` of the process.
        """

    def on_report(self, report: Message) -> None:
        """Handle reports of a process."""

    def on_closed(self, channel: ControlChannel, *, is_silent: bool) -> None:
        """Handle the end of a channel; `is_silent` if the process did not close it itself."""


class ControlServer:
    """Listens for the processes of runs.

    Args:
        host: Address to listen on.
        port: Port to listen on; 0 for any free one.
    """

    def __init__(self, host: str, port: int = 0) -> None:
        self._listener = socket.create_server((host, port), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._runs: dict[str, tuple[bytes, ControlledRun]] = {}
        self._channels: dict[ControlChannel, str] = {}
        self._strangers = threading.Semaphore(MAX_STRANGERS)
        threading.Thread(target=self._accept, name="connect-control", daemon=True).start()

    def register(self, run: ControlledRun) -> tuple[str, bytes]:
        """Expect the processes of a run, and return its ID and its key."""
        id, key = secrets.token_hex(8), secrets.token_bytes(32)
        with self._lock:
            self._runs[id] = key, run
        return id, key

    def forget(self, id: str) -> None:
        """Close the channels of a run, and refuse further ones."""
        with self._lock:
            self._runs.pop(id, None)
            ending = [channel for channel, run in self._channels.items() if run == id]
        for channel in ending:
            channel.close()

    def send_to_all(self, message: Message) -> None:
        with self._lock:
            channels = list(self._channels)
        for channel in channels:
            try:
                channel.send(message)
            except ChannelClosed:
                channel.close()  # its thread reports the end

    def close(self) -> None:
        with self._lock:
            self._runs.clear()
            ending = list(self._channels)
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # a listening socket has no peer on some systems
        self._listener.close()
        for channel in ending:
            channel.close()

    # ------------------------------------------------------------------------------- threads

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if not self._strangers.acquire(blocking=False):
                sock.close()
                continue
            threading.Thread(
                target=self._serve, args=(sock,), name="connect-control-task", daemon=True
            ).start()

    def _serve(self, sock: socket.socket) -> None:
        channel = ControlChannel(sock, is_driver=True)
        try:
            id, run, hello = self._authenticated(channel)
        except (ChannelClosed, ValueError) as error:
            logger.debug("refused a control connection: %s", error)
            channel.close()
            return
        finally:
            self._strangers.release()
        with self._lock:
            is_known = id in self._runs
            if is_known:
                self._channels[channel] = id
        is_silent = False
        try:
            if is_known:
                channel.send(run.on_connected(channel, hello))
                self._receive(channel, run)
        except ChannelClosed as error:
            is_silent = error.is_timeout
        finally:
            with self._lock:
                self._channels.pop(channel, None)
            channel.close()
            if is_known:
                run.on_closed(channel, is_silent=is_silent)

    def _authenticated(self, channel: ControlChannel) -> tuple[str, ControlledRun, Message]:
        id, nonce = channel.challenge()
        with self._lock:
            found = self._runs.get(id)
        if found is None:
            raise ChannelClosed("the run is unknown or has ended")
        key, run = found
        return id, run, channel.authenticate(key, nonce)

    def _receive(self, channel: ControlChannel, run: ControlledRun) -> None:
        answered_at = 0.0
        while True:
            report = channel.receive()
            if report:
                run.on_report(report)
            if time.monotonic() - answered_at >= HEARTBEAT_S / 2:
                answered_at = time.monotonic()
                channel.send({})
