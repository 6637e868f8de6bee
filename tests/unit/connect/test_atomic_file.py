"""Tests that IDs and small files are written atomically."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.connect.atomic_file import lasting_id


def test_an_id_is_made_once(tmp_path: Path) -> None:
    first = lasting_id(tmp_path / "mark")
    assert len(first) == 32
    assert lasting_id(tmp_path / "mark") == first
    assert lasting_id(tmp_path / "other") != first


def test_a_crash_while_an_id_is_made_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        with pytest.raises(KeyboardInterrupt):
            lasting_id(tmp_path / "mark")
    assert not (tmp_path / "mark").exists()
    assert len(lasting_id(tmp_path / "mark")) == 32
