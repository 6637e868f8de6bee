"""Profiles: which file applies, how its paths are read, and what overrides it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.integration.client.certificates import Authority, needs_openssl

from ottla.base.config.secrets import is_secret
from ottla.base.errors import UserError
from ottla.client.config import CommonConfig
from ottla.client.inlined_files import with_inlined_files
from ottla.client.profile import load_profile
from ottla.streams.connection import connection_properties


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home directory with a default profile, whose broker is home:1."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OTTLA_PROFILE", raising=False)
    folder = tmp_path / ".config" / "ottla"
    folder.mkdir(parents=True)
    (folder / "client.properties").write_text("bootstrap.servers=home:1\nclient.id=home\n")
    return tmp_path


def named_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "named.properties"
    path.write_text("bootstrap.servers=named:1\nclient.id=named\n")
    monkeypatch.setenv("OTTLA_PROFILE", str(path))


# ----------------------------------------------------------------------------- which file applies


def test_the_file_in_the_home_directory_applies_if_nothing_else_names_brokers(home: Path) -> None:
    config = CommonConfig.of(None, None, {})
    assert (config.bootstrap_servers, config.client_id) == (["home:1"], "home")


@pytest.mark.parametrize(
    ("bootstrap", "keywords"),
    [("a:1", {}), ({"bootstrap.servers": "a:1"}, {}), (None, {"bootstrap_servers": "a:1"})],
)
def test_the_file_in_the_home_directory_is_not_used_for_other_brokers(
    home: Path, bootstrap: str | None, keywords: dict[str, str]
) -> None:
    config = CommonConfig.of(bootstrap, None, keywords)
    assert (config.bootstrap_servers, config.client_id) == (["a:1"], "ottla")


def test_the_environment_variable_applies_to_all_brokers(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named_profile(home, monkeypatch)
    assert CommonConfig.of(None, None, {}).bootstrap_servers == ["named:1"]
    config = CommonConfig.of("a:1", None, {})
    assert (config.bootstrap_servers, config.client_id) == (["a:1"], "named")


def test_an_explicit_profile_excludes_the_default_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named_profile(home, monkeypatch)
    assert CommonConfig.of(None, {}, {}).client_id == "ottla"


def test_an_empty_variable_turns_default_profiles_off(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_PROFILE", "")
    assert CommonConfig.of(None, None, {}).client_id == "ottla"


def test_a_missing_file_in_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PROFILE", "/no/such.properties")
    with pytest.raises(UserError, match=r"/no/such\.properties.*OTTLA_PROFILE names this file"):
        CommonConfig.of(None, None, {})


def test_tools_use_the_default_profile(home: Path) -> None:
    from ottla.cli.connection_options import ClusterOptions
    from ottla.cli.property_options import client_properties

    assert ClusterOptions(None, None).profile()["client.id"] == "home"
    assert "client.id" not in ClusterOptions("a:1", None).profile()
    unnamed = client_properties(ClusterOptions(None, None), [], {}, {})
    assert unnamed["bootstrap.servers"] == "home:1"
    named = client_properties(ClusterOptions(None, None), ["bootstrap.servers=a:1"], {}, {})
    assert named == {"bootstrap.servers": "a:1"}


def test_spark_uses_the_default_profile(home: Path) -> None:
    from ottla.spark.options import source_options

    found = source_options({"subscribe": "t"}, is_streaming=False).client
    assert (found["bootstrap.servers"], found["client.id"]) == ("home:1", "home")


def test_streams_use_the_default_profile(home: Path) -> None:
    assert connection_properties(None, None, {})["bootstrap.servers"] == "home:1"
    assert connection_properties("a:1", None, {}) == {"bootstrap.servers": "a:1"}


# -------------------------------------------------------------------------------- paths, overrides


def test_relative_paths_are_relative_to_the_profile(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(
        "ssl.ca.location=ca.pem\nproducer.ssl.keystore.location=keys/me.p12\n"
        "ssl.truststore.location=/etc/ca.pem\nclient.id=keys/me\nhttps.ca.location=idp.pem\n"
        "sasl.oauthbearer.token.endpoint.url=file:token\n"
    )
    assert load_profile(path) == {
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "producer.ssl.keystore.location": str(tmp_path / "keys" / "me.p12"),
        "ssl.truststore.location": "/etc/ca.pem",
        "client.id": "keys/me",
        "https.ca.location": str(tmp_path / "idp.pem"),
        "sasl.oauthbearer.token.endpoint.url": f"file://{tmp_path}/token",
    }


@pytest.mark.parametrize("url", ["https://idp/token", "file:///run/token", "file:/run/token"])
def test_addresses_of_tokens_stay_as_they_are(tmp_path: Path, url: str) -> None:
    path = tmp_path / "client.properties"
    path.write_text(f"sasl.oauthbearer.token.endpoint.url={url}\n")
    assert load_profile(path) == {"sasl.oauthbearer.token.endpoint.url": url}


def test_a_credential_replaces_every_form_of_it_in_the_profile() -> None:
    profile = {
        "ssl.keystore.key": "inline",
        "ssl.keystore.certificate.chain": "inline",
        "ssl.truststore.certificates": "inline",
        "sasl.username": "profile",
        "sasl.password": "profile",
    }
    config = CommonConfig.of("a:1", profile, {"ssl_keystore_location": "k", "ssl_ca_location": "c"})
    assert config.ssl_keystore_location == "k"
    assert not config.ssl_keystore_key
    assert not config.ssl_truststore_certificates
    assert config.sasl_username == "profile"
    config = CommonConfig.of("a:1", profile, {"sasl_jaas_config": "m required username=me;"})
    assert not config.sasl_username
    assert config.ssl_keystore_key == "inline"


# --------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_profile_with_secrets_that_others_can_read_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warns: bool
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("sasl.password=marker\n")
    path.chmod(mode)
    with caplog.at_level(logging.WARNING):
        load_profile(path)
        load_profile(path)
    expected = [
        f"{path} holds secrets, but every user of this machine can read it. Run: chmod 600 {path}"
    ]
    assert [each.getMessage() for each in caplog.records] == (expected if warns else [])


def test_a_profile_without_secrets_may_be_read_by_all(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=a:1\nssl.truststore.certificates=public\n")
    path.chmod(0o644)
    load_profile(path)
    assert not caplog.records


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("sasl.password", True),
        ("producer.override.sasl.jaas.config", True),
        ("ssl.keystore.key", True),
        ("ssl.keystore.password", True),
        ("sasl.oauthbearer.client.credentials.client.secret", True),
        ("sasl.oauthbearer.client.credentials.client.id", False),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("connection.password", True),
        ("value.converter.basic.auth.user.info", True),
        ("ssl.truststore.certificates", False),
        ("ssl.key.location", False),
        ("key.converter", False),
        ("tasks.max", False),
    ],
)
def test_secrets_are_recognized_by_name(name: str, secret: bool) -> None:
    assert is_secret(name) == secret


# --------------------------------------------------------------------------- files for executors


@needs_openssl
def test_files_are_replaced_by_their_contents(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("me", "DNS:me", password="open sesame")
    found = with_inlined_files(
        CommonConfig,
        {
            "security.protocol": "SSL",
            "ssl.ca.location": authority.certificate,
            "ssl.certificate.location": own.certificate,
            "ssl.key.location": own.key,
            "ssl.key.password": "open sesame",
        },
    )
    assert found == {
        "security.protocol": "SSL",
        "ssl.key.password": "open sesame",
        "ssl.keystore.key": Path(own.key).read_text().strip(),
        "ssl.keystore.certificate.chain": Path(own.certificate).read_text().strip(),
        "ssl.truststore.certificates": Path(authority.certificate).read_text(),
    }


def test_the_authority_of_the_identity_provider_is_replaced_as_well(tmp_path: Path) -> None:
    path = tmp_path / "idp.pem"
    path.write_text("one\n")
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "https.ca.location": str(path),
        "https.ca.pem": "two",
    }
    kept = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    assert with_inlined_files(CommonConfig, given) == {**kept, "https.ca.pem": "one\n\ntwo"}
    path.unlink()
    with pytest.raises(UserError, match=r"https\.ca\.location=.*idp\.pem cannot be used: no such"):
        with_inlined_files(CommonConfig, given)
    unused = {**given, "sasl.mechanism": "PLAIN"}
    assert with_inlined_files(CommonConfig, unused) == unused


def test_a_file_that_is_missing_is_named_when_files_are_replaced(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ssl\.ca\.location=/no/ca\.pem cannot be used"):
        with_inlined_files(
            CommonConfig, {"security.protocol": "SSL", "ssl.ca.location": "/no/ca.pem"}
        )


def test_options_of_executors_name_no_profile_and_no_files(tmp_path: Path) -> None:
    from ottla.spark.options import sink_options, without_profile

    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=a:1\nsasl.mechanisms=SCRAM-SHA-512\nacks=all\n")
    source = without_profile({"subscribe": "t", "Profile": str(path), "kafka.client.id": "me"})
    assert source == {
        "subscribe": "t",
        "kafka.bootstrap.servers": "a:1",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.acks": "all",
        "kafka.client.id": "me",
    }
    sink = without_profile({"topic": "t", "profile": str(path), "_realTime": "true"})
    assert sink["kafka.acks"] == "all"
    assert sink_options(sink, is_streaming=True).client["bootstrap.servers"] == "a:1"
