"""Checks of Java's tools on a broker with TLS and SASL listeners."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.jwt_issuer import AUDIENCE, ISSUER, SigningKey, TokenEndpoint, key_set

from compat.certificates import Certificates
from compat.java import Java, Output
from ottla.testing.broker import HOST, BrokerProcess

USER, PASSWORD = "alice", "alice's secret, with a comma"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OAUTHBEARER_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""Java property with the token endpoints that Java's clients may ask."""
RECORDS = 200


def _jaas(module: str, password: str = PASSWORD, more: str = "") -> str:
    return f'{module} required username="{USER}" password="{password}"{more};'


@dataclass
class Secured:
    """A broker with four listeners, and Java's tools with the properties for each."""

    java: Java
    scratch: Path
    certificates: Certificates
    strangers: Certificates
    """Certificates of an authority that nobody trusts."""
    ports: Mapping[str, int]
    tokens: TokenEndpoint
    _numbers: Iterator[int] = field(default_factory=count)

    def run(
        self, tool: str, *arguments: str, to: str, properties: Mapping[str, str], stdin: str = ""
    ) -> Output:
        """Run a tool on a listener with some client properties."""
        path = self.scratch / f"client-{next(self._numbers)}.properties"
        path.touch(mode=0o600)
        path.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
        return self.java.run(
            tool,
            *("--bootstrap-server", f"{HOST}:{self.ports[to]}", "--command-config", str(path)),
            *arguments,
            stdin=stdin,
            options=[f"-D{ALLOWED_URLS}={self.tokens.url}"],
        )

    def scram(self, number: str, password: str = PASSWORD) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": f"SCRAM-SHA-{number}",
            "sasl.jaas.config": _jaas(SCRAM_MODULE, password),
            **self.certificates.trusting_properties(),
        }

    def plain(self, password: str = PASSWORD) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": _jaas(PLAIN_MODULE, password),
            **self.certificates.trusting_properties(),
        }

    def oauthbearer(self) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{OAUTHBEARER_MODULE} required "
            f'clientId="{USER}" clientSecret="{PASSWORD}" scope="kafka";',
            "sasl.login.callback.handler.class": OAUTHBEARER_LOGIN,
            "sasl.oauthbearer.token.endpoint.url": self.tokens.url,
            **self.certificates.trusting_properties(),
        }

    def mutual(self) -> dict[str, str]:
        return {"security.protocol": "SSL", **self.certificates.client_properties()}

    def writes_and_reads(self, to: str, properties: Mapping[str, str]) -> None:
        """Create a topic, write to it and read from it, with Java's tools."""
        topic = f"secured-{next(self._numbers)}"
        created = self.run(
            "kafka-topics", "--create", "--topic", topic, to=to, properties=properties
        )
        assert not created.code, created.all
        text = "".join(f"line {number}\n" for number in range(RECORDS))
        written = self.run(
            "kafka-console-producer", "--topic", topic, to=to, properties=properties, stdin=text
        )
        assert not written.code, written.all
        read = self.run(
            "kafka-console-consumer",
            *("--topic", topic, "--from-beginning", "--max-messages", str(RECORDS)),
            *("--timeout-ms", "30000"),
            to=to,
            properties=properties,
        )
        assert sorted(read.lines) == sorted(text.splitlines()), read.all

    def measures(self, to: str, properties: Mapping[str, str]) -> None:
        """Write and read with Java's performance tools."""
        topic = f"measured-{next(self._numbers)}"
        written = self.run(
            "kafka-producer-perf-test",
            *("--topic", topic, "--num-records", "5000", "--record-size", "200"),
            *("--throughput", "-1"),
            to=to,
            properties=properties,
        )
        assert written.lines[-1].startswith("5000 records sent"), written.all
        read = self.run(
            "kafka-consumer-perf-test",
            *("--topic", topic, "--num-records", "5000", "--timeout", "30000"),
            to=to,
            properties=properties,
        )
        assert not read.code, read.all
        assert " 5000, " in f"{read.lines[-1]} ".replace(",", ", ").replace(",  ", ", "), read.all


@contextmanager
def secured_broker(
    java: Java, scratch: Path, more: Mapping[str, str] | None = None
) -> Iterator[Secured]:
    """Provide a broker whose user alice has passwords for PLAIN and, by Java's tool, for SCRAM.

    Args:
        java: Java.
        scratch: Directory to create.
        more: Further properties of the broker.
    """
    scratch.mkdir()
    directories = [scratch / name for name in ("certificates", "strangers")]
    for directory in directories:
        directory.mkdir()
    certificates, strangers = map(Certificates, directories)
    key, keys = SigningKey("k1", "RS256"), scratch / "keys.json"
    keys.write_bytes(key_set(key))
    plain = f'{PLAIN_MODULE} required user_{USER}="{PASSWORD}";'
    overrides = {
        "listeners": ",".join(
            f"{name}://{HOST}:0" for name in ("PLAINTEXT", "SASL_SSL", "MUTUAL", "SASL_PLAINTEXT")
        ),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,MUTUAL:SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "delegation.token.secret.key": "secret of the cluster",
        "super.users": f"User:{USER}",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain,
        **certificates.broker_properties(),
        **(more or {}),
    }
    with (
        TokenEndpoint(key, USER) as tokens,
        BrokerProcess(scratch / "broker", strict=True, overrides=overrides) as broker,
    ):
        secured = Secured(java, scratch, certificates, strangers, broker.ports, tokens)
        _set_passwords(secured)
        yield secured


def _set_passwords(secured: Secured) -> None:
    for number in ("256", "512"):
        password = f"SCRAM-SHA-{number}=[iterations=8192,password={PASSWORD}]"
        altered = secured.run(
            *("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", USER),
            *("--add-config", password),
            to="PLAINTEXT",
            properties={},
        )
        assert not altered.code, altered.all


def passwords_are_set_and_deleted(secured: Secured) -> None:
    """kafka-configs sets a user's password, which then works, and deletes it."""
    user = ("--entity-type", "users", "--entity-name", "bob")
    properties = secured.scram("256")
    properties["sasl.jaas.config"] = properties["sasl.jaas.config"].replace(f'"{USER}"', '"bob"')
    for arguments, works in (
        (("--add-config", f"SCRAM-SHA-256=[password={PASSWORD}]"), True),
        (("--delete-config", "SCRAM-SHA-256"), False),
    ):
        altered = secured.run(
            *("kafka-configs", "--alter", *user, *arguments), to="PLAINTEXT", properties={}
        )
        assert not altered.code, altered.all
        listed = secured.run("kafka-topics", "--list", to="SASL_SSL", properties=properties)
        assert (listed.code == 0) == works, listed.all


def scram_over_tls(secured: Secured) -> None:
    """The console and performance tools use SCRAM-SHA-512 and SCRAM-SHA-256 over TLS."""
    secured.writes_and_reads("SASL_SSL", secured.scram("512"))
    secured.measures("SASL_SSL", secured.scram("512"))
    secured.writes_and_reads("SASL_SSL", secured.scram("256"))


def plain_over_tls(secured: Secured) -> None:
    """The console and performance tools use PLAIN over TLS."""
    secured.writes_and_reads("SASL_SSL", secured.plain())
    secured.measures("SASL_SSL", secured.plain())


def oauthbearer_over_tls(secured: Secured) -> None:
    """The console and performance tools use OAUTHBEARER with client credentials over TLS."""
    secured.writes_and_reads("SASL_SSL", secured.oauthbearer())
    secured.measures("SASL_SSL", secured.oauthbearer())


def delegation_tokens(secured: Secured) -> None:
    """kafka-delegation-tokens creates, describes, renews and expires a token, which logs in."""
    owner = secured.scram("512")
    created = secured.run(
        "kafka-delegation-tokens",
        *("--create", "--max-life-time-period", "-1"),
        to="SASL_SSL",
        properties=owner,
    )
    assert not created.code, created.all
    token_id, secret = created.lines[-1].split()[:2]
    described = secured.run(
        "kafka-delegation-tokens",
        *("--describe", "--owner-principal", f"User:{USER}"),
        to="SASL_SSL",
        properties=owner,
    )
    assert token_id in described.out, described.all
    by_token = secured.scram("512")
    by_token["sasl.jaas.config"] = (
        f'{SCRAM_MODULE} required username="{token_id}" password="{secret}" tokenauth="true";'
    )
    secured.writes_and_reads("SASL_SSL", by_token)
    for action in (
        ("--renew", "--renew-time-period", "-1", "--hmac", secret),
        ("--expire", "--expiry-time-period", "-1", "--hmac", secret),
    ):
        done = secured.run("kafka-delegation-tokens", *action, to="SASL_SSL", properties=owner)
        assert not done.code, done.all
    refused = secured.run("kafka-topics", "--list", to="SASL_SSL", properties=by_token)
    assert refused.code, refused.all


def client_certificates(secured: Secured) -> None:
    """The console and performance tools use client certificates."""
    secured.writes_and_reads("MUTUAL", secured.mutual())
    secured.measures("MUTUAL", secured.mutual())


def sasl_without_tls(secured: Secured) -> None:
    """The console tools use PLAIN and SCRAM-SHA-512 without TLS."""
    for properties in (secured.plain(), secured.scram("512")):
        unencrypted = {**properties, "security.protocol": "SASL_PLAINTEXT"}
        secured.writes_and_reads("SASL_PLAINTEXT", unencrypted)


def wrong_credentials(secured: Secured) -> None:
    """A wrong password, a wrong user and a disabled mechanism end the tools with their reason."""
    for properties in (secured.scram("512", "wrong"), secured.plain("wrong")):
        refused = secured.run("kafka-topics", "--list", to="SASL_SSL", properties=properties)
        assert refused.code, refused.all
        assert "SaslAuthenticationException" in refused.all, refused.all
    stranger = secured.scram("512")
    stranger["sasl.jaas.config"] = stranger["sasl.jaas.config"].replace(f'"{USER}"', '"mallory"')
    refused = secured.run("kafka-topics", "--list", to="SASL_SSL", properties=stranger)
    assert "SaslAuthenticationException" in refused.all, refused.all
    other = {**secured.plain(), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}
    other["sasl.jaas.config"] = (
        "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;"
    )
    refused = secured.run("kafka-topics", "--list", to="SASL_PLAINTEXT", properties=other)
    assert refused.code, refused.all


def a_man_in_the_middle(secured: Secured) -> None:
    """A tool does not trust a broker of another authority, nor a broker a client of one."""
    for properties, to in (
        ({**secured.scram("512"), **secured.strangers.trusting_properties()}, "SASL_SSL"),
        ({**secured.mutual(), **secured.strangers.trusting_properties()}, "MUTUAL"),
        (
            {
                "security.protocol": "SSL",
                **secured.strangers.client_properties(),
                **secured.certificates.trusting_properties(),
            },
            "MUTUAL",
        ),
        ({"security.protocol": "SSL", **secured.certificates.trusting_properties()}, "MUTUAL"),
    ):
        refused = secured.run("kafka-topics", "--list", to=to, properties=properties)
        assert refused.code, refused.all
        assert "SslAuthenticationException" in refused.all or "SSL" in refused.all, refused.all


CHECKS = [
    passwords_are_set_and_deleted,
    scram_over_tls,
    plain_over_tls,
    oauthbearer_over_tls,
    delegation_tokens,
    client_certificates,
    sasl_without_tls,
    wrong_credentials,
    a_man_in_the_middle,
]
