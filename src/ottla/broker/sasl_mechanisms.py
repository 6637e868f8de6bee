"""The SASL mechanisms that listeners offer, by name.

To add one, implement `Mechanism` (core/security/sasl.py) and add a function to `MECHANISMS`, and
the name to `SASL_MECHANISMS` (base/config/broker_sasl_table.py)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from typing import Protocol

from ottla.base.config.broker_sasl_table import OAUTHBEARER, PLAIN
from ottla.base.config.sasl_settings import MechanismSettings
from ottla.base.scram import ScramCredential, ScramMechanism
from ottla.broker.delegation_tokens import DelegationTokens
from ottla.broker.ports import Metadata
from ottla.broker.token_verifier import TokenVerifiers
from ottla.core.security.plain import PlainMechanism
from ottla.core.security.sasl import Mechanism
from ottla.core.security.scram import ScramMechanismServer

NONCE_BYTES = 24
_SECRET = secrets.token_bytes(32)
"""Secret of this process, from which the challenges of unknown users are derived while there are no
users."""


class MechanismPorts(Metadata, Protocol):
    """The parts of a broker that mechanisms use."""

    @property
    def delegation_tokens(self) -> DelegationTokens:
        """The cluster's delegation tokens."""

    @property
    def token_verifiers(self) -> TokenVerifiers:
        """The verifiers of tokens for OAUTHBEARER."""


class ImageCredentials:
    """The credentials in the metadata of the cluster."""

    def __init__(self, broker: Metadata) -> None:
        self._broker = broker

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self._broker.image.scram_credential(mechanism, user)

    def example(self, mechanism: ScramMechanism) -> ScramCredential | None:
        return self._broker.image.scram_example(mechanism)


def _plain(settings: MechanismSettings, broker: MechanismPorts) -> Mechanism:
    return PlainMechanism(settings.jaas.users if settings.jaas is not None else {})


def _scram(mechanism: ScramMechanism) -> Callable[[MechanismSettings, MechanismPorts], Mechanism]:
    def create(settings: MechanismSettings, broker: MechanismPorts) -> Mechanism:
        return ScramMechanismServer(
            mechanism,
            ImageCredentials(broker),
            broker.delegation_tokens,
            secret=_SECRET,
            new_nonce=lambda: secrets.token_urlsafe(NONCE_BYTES),
        )

    return create


def _oauthbearer(settings: MechanismSettings, broker: MechanismPorts) -> Mechanism:
    assert settings.oauthbearer is not None
    return broker.token_verifiers.mechanism(settings.oauthbearer)


MECHANISMS: Mapping[str, Callable[[MechanismSettings, MechanismPorts], Mechanism]] = {
    PLAIN: _plain,
    **{each.sasl_name: _scram(each) for each in ScramMechanism},
    OAUTHBEARER: _oauthbearer,
}
