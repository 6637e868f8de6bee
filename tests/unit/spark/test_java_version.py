"""Tests of reading a Java runtime's version from its `release` file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.java import java_feature_version


@pytest.mark.parametrize(
    ("described", "version"),
    [
        ('IMPLEMENTOR="Debian"\nJAVA_VERSION="17.0.15"\n', 17),
        ('JAVA_VERSION="25"\n', 25),
        ('JAVA_VERSION="1.8.0_392"\n', 8),
        ('JAVA_VERSION="unknown"\n', None),
        ("", None),
    ],
)
def test_the_version_of_a_runtime_is_read(
    tmp_path: Path, described: str, version: int | None
) -> None:
    (tmp_path / "release").write_text(described)
    assert java_feature_version(tmp_path) == version


def test_a_runtime_without_a_description_is_of_no_version(tmp_path: Path) -> None:
    assert java_feature_version(tmp_path) is None
