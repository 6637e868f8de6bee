"""The broker process, from its configuration to its exit code."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
import time

from ottla.base.config.broker import BrokerConfig
from ottla.broker.broker import Broker
from ottla.broker.clock import SystemClock
from ottla.broker.listening import file_limit
from ottla.storage.file import OsFileSystem

logger = logging.getLogger(__name__)

KEPT_BYTES = 32 * 1024 * 1024
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
SAME_REQUEST_S = 1.0
"""Signals within this time count as one request: Ctrl-C often reaches a broker twice, from the
terminal and from its supervisor."""
EXIT_BY_SIGNAL = 128
"""Added to the signal number to form the exit code, as shells do."""
FILES_FOR_LOGS = 0.2
"""Share of the open-file limit that logs may use."""


def run(config: BrokerConfig) -> int:
    """Run a broker until SIGTERM or SIGINT, and return the exit code.

    Raises:
        UserError: The broker cannot start.
    """
    _keep_freed_memory()
    try:
        import uvloop
    except ImportError:  # a platform without it
        return asyncio.run(_run(config))
    return uvloop.run(_run(config))


def _keep_freed_memory() -> None:
    """Let glibc keep freed memory instead of returning it to the system.

    A busy broker builds and drops 1 MB responses a thousand times a second. Mapping and unmapping
    the pages of each costs more than filling them."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


class StopRequest:
    """A request to stop, by SIGTERM or SIGINT.

    The first signal starts an orderly stop. A later one ends the process at once, like a crash: the
    next start has to recover the logs."""

    def __init__(self) -> None:
        self._received = asyncio.Event()
        self._received_at = 0.0
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)

    async def wait(self) -> None:
        await self._received.wait()

    def _on_signal(self, number: signal.Signals) -> None:
        now = time.monotonic()
        if not self._received.is_set():
            self._received_at = now
            self._received.set()
            logger.info("stopping: received %s", number.name)
        elif now - self._received_at >= SAME_REQUEST_S:
            logger.warning(
                "received %s again: stopping immediately. The logs are not closed; the next "
                "start recovers them.",
                number.name,
            )
            logging.shutdown()
            os._exit(EXIT_BY_SIGNAL + number)


async def _run(config: BrokerConfig) -> int:
    stop = StopRequest()
    max_open = int(file_limit() * FILES_FOR_LOGS)
    broker = Broker(config, OsFileSystem(max(max_open, 64)), SystemClock())
    if not await _started(broker, stop):
        logger.info("stopped before it was ready")
        return 0
    # These objects live as long as the process, so the collector need not scan them again. This is
    # done here and not in Broker, which may run inside another program.
    gc.collect()
    gc.freeze()
    logger.info(
        "broker %d of cluster %s is ready; its data is in %s",
        broker.node_id,
        broker.cluster_id,
        ", ".join(config.log_dirs),
    )
    await stop.wait()
    await broker.stop()
    logger.info("stopped")
    return 0


async def _started(broker: Broker, stop: StopRequest) -> bool:
    """Start the broker. Returns False if a stop was requested before it was ready."""
    starting = asyncio.create_task(broker.start(), name="start")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
    if starting.cancelled():
        return False
    starting.result()
    return True
