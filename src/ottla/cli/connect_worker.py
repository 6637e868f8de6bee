"""Running a standalone worker: from files to a process. What is wrong in any of the files is told
before anything is started."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterable

from ottla.base.config.properties import load_properties
from ottla.base.errors import UserError
from ottla.cli.start import LOG_FORMAT

logger = logging.getLogger(__name__)


def load_connector(path: str) -> dict[str, str]:
    """A connector's properties, or JSON: {"name": …, "config": {…}}, or the config alone."""
    if not path.endswith(".json"):
        return load_properties(path)
    try:
        with open(path, encoding="utf-8") as file:
            told = json.load(file)
    except OSError as error:
        reason = (error.strerror or "it cannot be read").lower()
        raise UserError(f"Cannot read the configuration file {path}: {reason}.") from error
    except ValueError as error:
        raise UserError(f"{path} is no JSON: {error}.") from None
    if isinstance(told, dict) and isinstance(told.get("config"), dict):
        told = {**told["config"], **({"name": told["name"]} if "name" in told else {})}
    if not isinstance(told, dict):
        raise UserError(f"{path} must hold an object.")
    return {name: _text(value) for name, value in told.items() if value is not None}


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)


def run_standalone(
    worker_file: str, connector_files: Iterable[str], log_level: str, *, daemon: bool = False
) -> int:
    from ottla.connect.config import ConnectorConfig
    from ottla.connect.rest_server import RestServer
    from ottla.connect.worker import Worker
    from ottla.connect.worker_config import WorkerConfig

    config = WorkerConfig.of(load_properties(worker_file))
    connectors = [load_connector(path) for path in connector_files]
    names: dict[str, str] = {}
    for given, path in zip(connectors, connector_files, strict=True):
        try:
            name = ConnectorConfig.of(given, config.given).name
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        if name in names:
            raise UserError(f"{path} and {names[name]} both name their connector {name}.")
        names[name] = path
    if daemon:
        from ottla.cli.daemon import go_to_background

        go_to_background()
    logging.basicConfig(level=log_level.upper(), format=LOG_FORMAT)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    worker = Worker(config)
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: worker.request_stop())
    rest = RestServer(worker)
    try:
        rest.start()
        worker.start()
        for given in connectors:
            worker.put(given)
        logger.info("Kafka Connect standalone worker started, %d connectors", len(connectors))
        worker.run()
        logger.info("the worker stops")
    finally:
        rest.close()
        worker.close()
    return 0
