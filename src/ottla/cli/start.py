"""Starting a broker: from files, options and overrides to a running process.

Later ones win: the file, then --data-dir and --listen, then --override. A configuration that is
wrong is refused before anything else happens, above all before the process goes to the
background."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.properties import load_properties, parse_override
from ottla.cli.paths import default_data_directory

LOG_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
logger = logging.getLogger(__name__)


def gather_properties(
    config_file: str | None,
    overrides: Iterable[str],
    *,
    data_dir: str | None = None,
    listen: str | None = None,
) -> dict[str, str]:
    properties = load_properties(config_file) if config_file else {}
    if data_dir is not None:
        properties["log.dirs"] = data_dir
    if listen is not None:
        properties["listeners"] = f"PLAINTEXT://{listen}"
    properties.update(parse_override(override) for override in overrides)
    if not {"log.dir", "log.dirs"} & properties.keys():
        properties["log.dirs"] = default_data_directory()
    return properties


def start(properties: dict[str, str], log_level: str = "INFO", *, daemon: bool = False) -> int:
    """Run a broker until it is told to stop; the exit code. UserError if it cannot start."""
    config = BrokerConfig.from_properties(properties)
    if daemon:
        from ottla.cli.daemon import go_to_background

        go_to_background()
    logging.basicConfig(level=log_level.upper(), format=LOG_FORMAT)
    for notice in config.notices():
        logger.log(notice.level, notice.text)
    from ottla.broker.main import run

    return run(config)
