"""Start of a broker with the configuration of a file, options and overrides.

--override takes precedence over --data-dir, --listen and --advertise, and these take precedence
over the file. The configuration is validated first, in particular before the process detaches from
the terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.definition import ConfigError
from ottla.base.config.properties import load_properties, parse_override
from ottla.base.errors import UserError
from ottla.cli.listening import advertised_as, advertised_by_default, exposed
from ottla.cli.log_output import log_to_standard_error
from ottla.cli.paths import default_data_directory
from ottla.cli.pid_file import PidFile

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Launch:
    """The configuration that a broker is started with."""

    properties: dict[str, str]
    warnings: tuple[str, ...] = ()
    """Warnings about values that were chosen because the command line does not set them."""
    listens_by_option: bool = False
    """Whether the listeners are set on the command line, not in a file or by default."""


def load_launch(
    config_file: str | None,
    overrides: Iterable[str],
    *,
    data_dir: str | None = None,
    listen: str | None = None,
    advertise: str | None = None,
) -> Launch:
    """Merge a configuration file with the options of a command line.

    Raises:
        UserError: The file cannot be read, or an option is malformed.
    """
    properties = load_properties(config_file) if config_file else {}
    overridden = dict(map(parse_override, overrides))
    if data_dir is not None:
        properties["log.dirs"] = data_dir
    if listen is not None:
        properties["listeners"] = f"PLAINTEXT://{listen}"
    properties.update(overridden)
    if not {"log.dir", "log.dirs"} & properties.keys():
        properties["log.dirs"] = default_data_directory()
    warnings: tuple[str, ...] = ()
    try:
        if advertise is not None:
            own = {"advertised.listeners": advertised_as(properties, advertise)}
            properties = {**properties, **own, **overridden}
        elif listen is not None and "advertised.listeners" not in properties:
            warnings = _advertise_machine(properties)
    except ConfigError as error:
        raise UserError(str(error)) from None
    return Launch(properties, warnings, listen is not None or "listeners" in overridden)


def _advertise_machine(properties: dict[str, str]) -> tuple[str, ...]:
    """Advertise this machine's address if `--listen` listens on all interfaces."""
    found = advertised_by_default(properties)
    if found is None:
        return ()
    properties["advertised.listeners"] = found
    return (
        f"clients are sent to {found}, the address of this machine; set the address that they "
        f"use with --advertise HOST[:PORT]",
    )


def start(
    launch: Launch,
    log_level: str = "INFO",
    *,
    daemon: bool = False,
    allow_exposed: bool = True,
    pid_file: str | None = None,
) -> int:
    """Run a broker until it receives SIGTERM or SIGINT, and return the exit code.

    Args:
        launch: The configuration, from `gather`.
        log_level: Lowest level to log.
        daemon: Whether to run in the background.
        allow_exposed: Whether listeners from the command line may be open to other machines.
        pid_file: File that holds the process ID while the broker runs.

    Raises:
        UserError: The broker cannot start.
    """
    config = BrokerConfig.from_properties(launch.properties)
    warnings = exposure_warnings(launch, config, allow_exposed=allow_exposed)
    # Open the file while errors still reach the terminal; write it once the process ID is final.
    process_id: AbstractContextManager[object] = PidFile(pid_file) if pid_file else nullcontext()
    if daemon:
        from ottla.cli.daemon import go_to_background

        go_to_background()
    log_to_standard_error(log_level)
    for notice in config.notices():
        logger.log(notice.level, notice.text)
    for warning in (*launch.warnings, *warnings):
        logger.warning(warning)
    from ottla.broker.main import run

    with process_id:
        return run(config)


def exposure_warnings(launch: Launch, config: BrokerConfig, *, allow_exposed: bool) -> list[str]:
    """Return a warning for each listener that is open to other machines.

    Raises:
        UserError: The command line names such a listener without allowing it.
    """
    open_to_others = [
        (listener, _lacks(config, listener.name))
        for listener in exposed(config.listeners)
        if _lacks(config, listener.name)
    ]
    if open_to_others and launch.listens_by_option and not allow_exposed:
        listener, lack = open_to_others[0]
        raise UserError(
            f"{listener} is open to other machines, without {lack}. Add --insecure if that is "
            "intended, or listen on 127.0.0.1."
        )
    return [
        f"{listener} is open to other machines, without {lack}: everyone who can connect can "
        "read, write and delete all topics"
        for listener, lack in open_to_others
    ]


def _lacks(config: BrokerConfig, listener: str) -> str:
    """Return what a listener lacks to be safe in a network, or '' if it lacks nothing."""
    tls = config.tls_settings.get(listener)
    if tls is None:
        return "encryption or authentication"
    return "" if tls.client_auth == "required" else "authentication (ssl.client.auth=required)"
