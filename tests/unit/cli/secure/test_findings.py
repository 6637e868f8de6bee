"""Tests of the findings of `ottla secure check`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from ottla.base.acl import (
    AclBinding,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from ottla.cli.main import ottla
from ottla.cli.secure import findings
from ottla.cli.secure.findings import Finding, Severity

HIGH, MEDIUM, LOW = Severity.HIGH, Severity.MEDIUM, Severity.LOW
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def severities(found: Iterable[Finding]) -> list[Severity]:
    return [each.severity for each in found]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, [HIGH]),
        ({"listeners": "PLAINTEXT://127.0.0.1:9092"}, []),
        ({"listeners": "PLAINTEXT://localhost:9092,SASL_SSL://:9093"}, []),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, [HIGH]),
        ({"listeners": "SASL_PLAINTEXT://:9092"}, [MEDIUM]),
        ({"listeners": "SSL://:9092"}, [HIGH]),
        ({"listeners": "SSL://:9092", "ssl.client.auth": "required"}, []),
        ({"listeners": "A://:1", "listener.security.protocol.map": "A:PLAINTEXT"}, [HIGH]),
        (
            {
                "listeners": "A://:1",
                "listener.security.protocol.map": "A:SSL",
                "listener.name.a.ssl.client.auth": "required",
            },
            [],
        ),
        (
            {
                "listeners": "SASL_SSL://:1,CONTROLLER://:2",
                "controller.listener.names": "CONTROLLER",
            },
            [],
        ),
        ({"listeners": "A://:1"}, [MEDIUM]),
    ],
)
def test_listeners_for_other_machines_are_checked(
    properties: dict[str, str], expected: list[Severity]
) -> None:
    found = findings.of_properties(
        "server.properties",
        {"super.users": "User:a", **properties},
        has_authorizer=True,
        is_complete=True,
    )
    assert severities(found) == expected


def test_what_a_broker_does_not_describe_is_not_known() -> None:
    described = {"listeners": "SSL://:9092", "ssl.client.auth": "none"}
    found = findings.of_properties("1", described, has_authorizer=True, is_complete=False)
    assert severities(found) == [LOW]


def test_the_authorizer_is_checked() -> None:
    local = {"listeners": "PLAINTEXT://127.0.0.1:1"}

    def of(*, has_authorizer: bool, **more: str) -> list[Severity]:
        properties = {**local, **{name.replace("_", "."): each for name, each in more.items()}}
        return severities(
            findings.of_properties(
                "server.properties", properties, has_authorizer=has_authorizer, is_complete=True
            )
        )

    assert of(has_authorizer=True) == [MEDIUM]
    assert of(has_authorizer=False) == [HIGH]
    open = of(has_authorizer=True, allow_everyone_if_no_acl_found="true", super_users="User:a")
    assert open == [HIGH]
    assert of(has_authorizer=True, super_users="User:admin") == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"principal": "User:*"}, [HIGH]),
        ({"principal": "User:*", "operation": AclOperation.DESCRIBE}, [MEDIUM]),
        ({"principal": "User:*", "permission": AclPermission.DENY}, []),
        ({"operation": AclOperation.ALL}, []),
        ({"operation": AclOperation.ALL, "name": "*"}, [MEDIUM]),
    ],
)
def test_acls_that_allow_much_are_found(
    changes: dict[str, object], expected: list[Severity]
) -> None:
    acl = acl_of("User:alice")._replace(**changes)  # type: ignore[arg-type]
    assert severities(findings.of_acls([acl])) == expected


def acl_of(principal: str) -> AclBinding:
    return AclBinding(
        AclResourceType.TOPIC,
        PatternType.LITERAL,
        "orders",
        principal,
        "*",
        AclOperation.READ,
        AclPermission.ALLOW,
    )


def test_users_and_acls_belong_together() -> None:
    acls = [acl_of("User:alice"), acl_of("User:gone"), acl_of("User:*")]
    found = findings.of_users(["alice", "admin", "idle"], acls, ["User:admin"])
    assert [(each.severity, each.subject) for each in found] == [
        (LOW, "User:idle"),
        (MEDIUM, "User:gone"),
    ]


@pytest.mark.parametrize(
    ("days", "expected"), [(31, []), (29, [MEDIUM]), (6, [HIGH]), (-1, [HIGH])]
)
def test_certificates_that_expire_are_found(days: int, expected: list[Severity]) -> None:
    found = list(findings.of_certificate("broker-1.pem", NOW + timedelta(days=days), NOW))
    assert severities(found) == expected
    if days < 0:
        assert found[0].text.startswith("The certificate expired on 2025-12-31.")


@pytest.mark.parametrize(("mode", "expected"), [(0o600, []), (0o640, [HIGH]), (0o604, [HIGH])])
def test_secret_files_that_others_can_read_are_found(mode: int, expected: list[Severity]) -> None:
    assert severities(findings.of_mode("ca.key", mode)) == expected


def test_files_are_checked_without_a_cluster(tmp_path: Path) -> None:
    configuration = tmp_path / "server.properties"
    configuration.write_text("listeners=PLAINTEXT://127.0.0.1:9092\n")
    directory = ("--dir", str(tmp_path / "absent"))
    check = ("secure", "check", "--files-only", *directory)
    ran = CliRunner().invoke(ottla, [*check, "--config", str(configuration)])
    assert ran.exit_code == 1
    assert ran.stdout == (
        f"HIGH   {configuration}: There is no authorizer, so every client may do everything. Set "
        "authorizer.class.name.\n1 finding, 1 of high severity.\n"
    )
    configuration.write_text(
        "listeners=PLAINTEXT://127.0.0.1:9092\nauthorizer.class.name=ottla\nsuper.users=User:a\n"
    )
    ran = CliRunner().invoke(ottla, [*check, "--config", str(configuration)])
    assert (ran.exit_code, ran.stdout) == (0, "No findings.\n")
    refused = CliRunner().invoke(ottla, check)
    assert "There are no files to check" in str(refused.exception)
