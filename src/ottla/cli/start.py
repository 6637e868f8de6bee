"""Start of a broker with the configuration of a file, options and overrides.

--override takes precedence over --data-dir, --listen and --advertise, and these take precedence
over the file. The configuration is validated first, in particular before the process detaches from
the terminal."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.definition import ConfigError
from ottla.base.config.listener import Listener, SecurityProtocol
from ottla.base.config.properties import load_properties, parse_override
from ottla.base.errors import UserError
from ottla.cli.listening import (
    advertised_as,
    advertised_by_default,
    configured_listeners,
    exposed,
)
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
        properties["listeners"] = f"{_listener_name(properties)}://{listen}"
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


def _listener_name(properties: Mapping[str, str]) -> str:
    """Return the name of the listener whose address `--listen` sets.

    It is the one in the file, so that an address on the command line never turns off encryption.
    """
    if "listeners" not in properties:
        return "PLAINTEXT"
    try:
        listeners = configured_listeners(properties)
    except ConfigError as error:
        raise UserError(str(error)) from None
    if len(listeners) != 1:
        names = ", ".join(listener.name for listener in listeners)
        raise UserError(
            f"--listen sets the address of one listener, but the file has {len(listeners)} "
            f"({names}). Change listeners in the file instead."
        )
    return listeners[0].name


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
        launch: The configuration, from `load_launch`.
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
        (listener, gap)
        for listener in exposed(config.listeners)
        if (gap := _gap(config, listener)) is not None
    ]
    if open_to_others and launch.listens_by_option and not allow_exposed:
        listener, gap = open_to_others[0]
        raise UserError(
            f"{listener} is open to other machines, without {gap.lacks}. Create certificates and "
            "users with `ottla secure init`, listen on 127.0.0.1, or add --insecure if that is "
            "intended."
        )
    return [
        f"{listener} is open to other machines, without {gap.lacks}: {gap.risk}"
        for listener, gap in open_to_others
    ]


class _Gap(NamedTuple):
    """The protection that a listener lacks in a network."""

    lacks: str
    risk: str


_ANYBODY = "everyone who can connect can read, write and delete all topics"
_PLAINTEXT = _Gap("encryption or authentication", _ANYBODY)
_SSL = _Gap("authentication (SASL_SSL, or ssl.client.auth=required)", _ANYBODY)
_SASL_PLAINTEXT = _Gap(
    "encryption",
    "everyone on the way to a client can read its records, and its password with some mechanisms",
)


def _gap(config: BrokerConfig, listener: Listener) -> _Gap | None:
    protocol = config.listener_protocols[listener.name]
    if protocol is SecurityProtocol.PLAINTEXT:
        return _PLAINTEXT
    if protocol is SecurityProtocol.SASL_PLAINTEXT:
        return _SASL_PLAINTEXT
    if protocol is SecurityProtocol.SSL:
        is_closed = config.tls_settings[listener.name].client_auth == "required"
        return None if is_closed else _SSL
    return None
