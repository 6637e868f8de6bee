"""A broker as a process: from a configuration to an exit code."""

from __future__ import annotations

import asyncio
import logging
import signal

from ottla.base.config.broker import BrokerConfig
from ottla.broker.broker import Broker
from ottla.broker.clock import SystemClock
from ottla.broker.listening import file_limit
from ottla.storage.file import OsFileSystem

logger = logging.getLogger(__name__)

FILES_FOR_LOGS = 0.2
"""The part of the open files that the system allows which logs may hold."""


def run(config: BrokerConfig) -> int:
    """Run a broker until SIGTERM or SIGINT. Raises UserError if it cannot start."""
    try:
        import uvloop
    except ImportError:  # a platform without it
        return asyncio.run(_run(config))
    return uvloop.run(_run(config))


async def _run(config: BrokerConfig) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopping.set)
    max_open = int(file_limit() * FILES_FOR_LOGS)
    broker = Broker(config, OsFileSystem(max(max_open, 64)), SystemClock())
    await broker.start()
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
