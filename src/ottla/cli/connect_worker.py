"""Start of a Connect worker. All configuration files are checked before anything is started."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.base.config.properties import load_properties
from ottla.base.errors import UserError
from ottla.cli.log_output import log_to_standard_error

if TYPE_CHECKING:
    from ottla.connect.worker_config import WorkerConfig

logger = logging.getLogger(__name__)


def load_connector(path: str) -> dict[str, str]:
    """Return a connector's configuration from a properties or JSON file.

    A JSON file holds `{"name": …, "config": {…}}` or the configuration alone.

    Raises:
        UserError: The file cannot be read or parsed.
    """
    if not path.endswith(".json"):
        return load_properties(path)
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        reason = (error.strerror or "unknown reason").lower()
        raise UserError(f"Cannot read the configuration file {path}: {reason}.") from error
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}.") from None
    if isinstance(content, dict) and isinstance(content.get("config"), dict):
        name = {"name": content["name"]} if "name" in content else {}
        content = {**content["config"], **name}
    if not isinstance(content, dict):
        raise UserError(f"{path} must contain a JSON object with the connector's configuration.")
    return {name: _text(value) for name, value in content.items() if value is not None}


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)


def run_standalone(
    worker_file: str,
    connector_files: Iterable[str],
    log_level: str,
    *,
    master: str | None = None,
    daemon: bool = False,
) -> int:
    from ottla.connect.plugins import import_plugins_from
    from ottla.connect.standalone import StandaloneHerder
    from ottla.connect.worker_config import WorkerConfig

    config = WorkerConfig.of(_worker_properties(worker_file, master))
    import_plugins_from(config.settings["plugin.path"])
    connectors = _load_connectors(list(connector_files), config)

    def begin(herder: StandaloneHerder) -> None:
        for connector in connectors:
            herder.put(connector)
        logger.info("Kafka Connect standalone worker started, %d connectors", len(connectors))

    _prepare(log_level, daemon=daemon)
    return _run(StandaloneHerder(config), begin)


def run_distributed(
    worker_file: str, log_level: str, *, master: str | None = None, daemon: bool = False
) -> int:
    from ottla.connect.distributed.herder import DistributedHerder
    from ottla.connect.worker_config import DISTRIBUTED, WorkerConfig

    config = WorkerConfig.of(_worker_properties(worker_file, master), DISTRIBUTED)
    _prepare(log_level, daemon=daemon)
    return _run(DistributedHerder(config), lambda herder: None)


def _worker_properties(worker_file: str, master: str | None) -> dict[str, str]:
    from ottla.connect.worker_file import load_worker_file

    properties = load_worker_file(worker_file)
    return properties if master is None else {**properties, "spark.master": master}


def _load_connectors(files: list[str], config: WorkerConfig) -> list[dict[str, str]]:
    from ottla.connect.config import ConnectorConfig

    connectors = [load_connector(path) for path in files]
    names: dict[str, str] = {}
    for connector, path in zip(connectors, files, strict=True):
        try:
            name = ConnectorConfig.of(connector, config.given).name
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        if name in names:
            raise UserError(
                f"{names[name]} and {path} both configure a connector named {name}. Connector "
                "names must be unique."
            )
        names[name] = path
    return connectors


def _prepare(log_level: str, *, daemon: bool) -> None:
    if daemon:
        from ottla.cli.daemon import go_to_background

        go_to_background()
    log_to_standard_error(log_level)
    logging.getLogger("py4j").setLevel(logging.ERROR)


def _log_missing_plugins() -> None:
    from ottla.connect.plugins import EXTRAS, missing_package

    found: dict[str, list[str]] = {}
    for name in EXTRAS:
        missing = missing_package(name)
        if missing is not None:
            found.setdefault(missing, []).append(name)
    for missing, names in found.items():
        logger.info("not available: %s; install %s", ", ".join(names), missing)


def _run(herder: Any, begin: Callable[[Any], None]) -> int:
    """Run a worker until SIGINT or SIGTERM arrives, and return the exit code."""
    from ottla.connect.rest.server import RestServer

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: herder.request_stop())
    rest = RestServer(herder)
    try:
        rest.start()
        _log_missing_plugins()
        herder.start()
        begin(herder)
        herder.run()
        logger.info("the worker is shutting down")
    finally:
        rest.close()
        herder.close()
    return 0
