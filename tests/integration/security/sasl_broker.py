"""A broker with SASL listeners, and its users."""

from __future__ import annotations

from ottla import Admin
from ottla.client.admin import ScramMechanism, UserScramCredentialUpsertion
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


def add_users(broker: BrokerThread) -> None:
    """Give all users SCRAM credentials."""
    with Admin(address(broker, "PLAINTEXT")) as admin:
        admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(user, mechanism, password)
                for user, password in PASSWORDS.items()
                for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
            ]
        )


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
