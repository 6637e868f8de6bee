"""The first user of a broker that has no listener without authentication."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla import Admin
from ottla.cli.main import ottla
from ottla.client.admin import (
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from ottla.client.errors import AuthenticationFailed
from ottla.testing.broker_thread import BrokerThread

SHA_512 = ScramMechanism.SCRAM_SHA_512
JAAS = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}";'
)
PROPERTIES = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": JAAS.format("admin", "secret"),
}


def profile(user: str, password: str) -> dict[str, str]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user,
        "sasl.password": password,
    }


def test_the_first_user_logs_in_and_manages_the_others(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    properties = {**PROPERTIES, "log.dirs": str(tmp_path / "data"), "node.id": "1"}
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    user = "SCRAM-SHA-512=[name=admin,password=secret,iterations=8192]"
    words = ["storage", "format", "-c", str(config), "-t", "AAAAAAAAQACAAAAAAAAAAQ", "-S", user]
    assert CliRunner().invoke(ottla, words).exit_code == 0
    with BrokerThread(tmp_path / "data", overrides=PROPERTIES) as broker:
        bootstrap = f"127.0.0.1:{broker.broker.ports['SASL_PLAINTEXT']}"
        with Admin(bootstrap, profile=profile("admin", "secret")) as admin:
            assert admin.describe_cluster().cluster_id == "AAAAAAAAQACAAAAAAAAAAQ"
            admin.alter_user_scram_credentials(UserScramCredentialUpsertion("bob", SHA_512, "x"))
            with Admin(bootstrap, profile=profile("bob", "x")) as other:
                assert set(other.describe_user_scram_credentials()) == {"admin", "bob"}
            admin.alter_user_scram_credentials(UserScramCredentialDeletion("bob", SHA_512))
            with pytest.raises(AuthenticationFailed):
                Admin(bootstrap, profile=profile("bob", "x")).describe_cluster()
        with pytest.raises(AuthenticationFailed):
            Admin(bootstrap, profile=profile("admin", "wrong")).describe_cluster()
