"""A broker as a process: from a configuration to an exit code."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import signal

from ottla.base.config.broker import BrokerConfig
from ottla.broker.broker import Broker
from ottla.broker.clock import SystemClock
from ottla.broker.listening import file_limit
from ottla.storage.file import OsFileSystem

logger = logging.getLogger(__name__)

KEPT_BYTES = 32 * 1024 * 1024
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
FILES_FOR_LOGS = 0.2
"""The part of the open files that the system allows which logs may hold."""


def run(config: BrokerConfig) -> int:
    """Run a broker until SIGTERM or SIGINT. Raises UserError if it cannot start."""
    _keep_freed_memory()
    try:
        import uvloop
    except ImportError:  # a platform without it
        return asyncio.run(_run(config))
    return uvloop.run(_run(config))


def _keep_freed_memory() -> None:
    """Answers of a megabyte are made and dropped a thousand times a second. glibc would map and
    unmap the pages of each, which costs more than filling them; let it keep some instead."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)


async def _run(config: BrokerConfig) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopping.set)
    max_open = int(file_limit() * FILES_FOR_LOGS)
    broker = Broker(config, OsFileSystem(max(max_open, 64)), SystemClock())
    await broker.start()
    # What is there now stays: no collection need look at it again. Not for a broker inside another
    # program, whose objects these are too.
    gc.collect()
    gc.freeze()
    logger.info(
        "broker %d of cluster %s is ready; its data is in %s",
        broker.node_id,
        broker.cluster_id,
        ", ".join(config.log_dirs),
    )
    await stopping.wait()
    logger.info("stopping")
    await broker.stop()
    logger.info("stopped")
    return 0
