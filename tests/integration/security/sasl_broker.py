"""A broker with SASL listeners, and its users."""

from __future__ import annotations

import os

from ottla.base.scram import ScramCredential, ScramMechanism, derive_credential, salt_password
from ottla.testing.broker_thread import BrokerThread

TIMEOUT_S = 20.0
PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret", "we=i,rd": "pass word"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def plain_jaas(passwords: dict[str, str]) -> str:
    users = " ".join(f'"user_{name}"="{password}"' for name, password in passwords.items())
    return f"{PLAIN_MODULE} required {users};"


def sasl_properties(**more: str) -> dict[str, str]:
    """Return the properties of a broker with the listeners SASL_PLAINTEXT and PLAINTEXT."""
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain_jaas(PASSWORDS),
        **{name.replace("__", "."): value for name, value in more.items()},
    }


def credential_of(
    mechanism: ScramMechanism, password: str, iterations: int = 4096
) -> ScramCredential:
    salt = os.urandom(24)
    salted = salt_password(mechanism, password, salt, iterations)
    return derive_credential(mechanism, salted, salt, iterations)


def add_users(broker: BrokerThread) -> None:
    """Give all users SCRAM credentials."""
    found = {
        (mechanism, user): credential_of(mechanism, password)
        for user, password in PASSWORDS.items()
        for mechanism in ScramMechanism
    }
    image = broker.broker.image
    image.scram_credential = lambda mechanism, user: found.get((mechanism, user))  # type: ignore[attr-defined]


def address(broker: BrokerThread, listener: str = "SASL_PLAINTEXT") -> str:
    return f"127.0.0.1:{broker.broker.ports[listener]}"


def profile(user: str, mechanism: str, password: str | None = None) -> dict[str, str]:
    """Return the properties of one of our clients."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": PASSWORDS[user] if password is None else password,
    }
