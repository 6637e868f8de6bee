"""Config providers: values from files and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.config.providers import ConfigProviders, resolved
from ottla.base.errors import UserError

JAVA = "org.apache.kafka.common.config.provider"


def providers(**classes: str) -> dict[str, str]:
    """Return definitions of providers; two underscores in a name stand for a dot."""
    found = {"config.providers": ",".join(name for name in classes if "__" not in name)}
    for name, value in classes.items():
        key = name.replace("__", ".") if "__" in name else f"{name}.class"
        found[f"config.providers.{key}"] = value
    return found


def test_a_property_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secrets.properties"
    file.write_text("password=hunter2\nuser=me\n")
    given = providers(file=f"{JAVA}.FileConfigProvider") | {
        "plain": "none",
        "both": f"user=${{file:{file}:user}} password=${{file:{file}:password}};",
    }
    found = resolved(given)
    assert found["both"] == "user=me password=hunter2;"
    assert found["plain"] == "none"


def test_a_file_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2")
    found = ConfigProviders(providers(dir="DirectoryConfigProvider"))
    assert found.resolve(f"${{dir:{tmp_path}:password}}") == "hunter2"


def test_a_variable_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_TEST_PASSWORD", "hunter2")
    found = ConfigProviders(providers(env=f"{JAVA}.EnvVarConfigProvider"))
    assert found.resolve("${env:OTTLA_TEST_PASSWORD}") == "hunter2"


@pytest.mark.parametrize(
    "text", ["${topic}", "${vault:a:b}", "a ${ b", "$file:/x:y", "${secretsmanager:x}"]
)
def test_text_that_names_no_provider_stays(text: str) -> None:
    assert ConfigProviders(providers(env="EnvVarConfigProvider")).resolve(text) == text


def test_without_providers_nothing_changes() -> None:
    assert resolved({"a": "${env:HOME}"}) == {"a": "${env:HOME}"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${file:/no/such:key}", r"Cannot read the configuration file /no/such: no such file"),
        ("${env:OTTLA_NOT_SET}", r"The variable \$\{env:OTTLA_NOT_SET\} has no value\."),
        ("${dir:/etc:../etc/passwd}", r"has no value"),
        ("${dir:/etc:..}", r"has no value"),
        ("${limited:/etc/passwd:root}", r"/etc/passwd is not below config\.providers\.limited\."),
        ("${few:HOME}", r"has no value"),
    ],
)
def test_a_variable_without_a_value_is_an_error(text: str, message: str) -> None:
    found = ConfigProviders(
        providers(
            file="FileConfigProvider",
            env="EnvVarConfigProvider",
            dir="DirectoryConfigProvider",
            limited="FileConfigProvider",
            limited__param__allowed__paths="/run/secrets,/run/other",
            few="EnvVarConfigProvider",
            few__param__allowlist__pattern="OTTLA_.*",
        )
    )
    with pytest.raises(UserError, match=message):
        found.resolve(text)


def test_a_link_does_not_leave_the_allowed_directories(tmp_path: Path) -> None:
    (tmp_path / "allowed").mkdir()
    (tmp_path / "secret").write_text("key=value\n")
    (tmp_path / "allowed" / "link").symlink_to(tmp_path / "secret")
    found = ConfigProviders(
        providers(file="FileConfigProvider", file__param__allowed__paths=str(tmp_path / "allowed"))
    )
    with pytest.raises(UserError, match="is not below"):
        found.resolve(f"${{file:{tmp_path}/allowed/link:key}}")


@pytest.mark.parametrize("name", ["", "com.example.VaultConfigProvider"])
def test_an_unknown_class_is_an_error(name: str) -> None:
    with pytest.raises(UserError, match=r"config\.providers\.own\.class must be one of File"):
        ConfigProviders(providers(own=name))
