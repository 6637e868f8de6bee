"""Files that only their owner can read."""

from __future__ import annotations

from pathlib import Path

from ottla.base.private_file import write_private


def test_a_private_file_replaces_a_public_one(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, "new")
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]
