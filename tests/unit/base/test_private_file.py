"""Files that only their owner can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.base.errors import UserError
from ottla.base.private_file import make_private_directory, write_private


def test_a_private_file_replaces_a_public_one(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("old")
    file.chmod(0o644)
    write_private(file, "new")
    assert file.read_text() == "new"
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


def test_an_empty_directory_is_closed_to_other_users(tmp_path: Path) -> None:
    directory = tmp_path / "secure"
    directory.mkdir()
    directory.chmod(0o777)
    make_private_directory(directory)
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_directory_in_which_others_have_put_a_key_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "ca.key").write_text("planted")
    tmp_path.chmod(mode)
    with pytest.raises(UserError, match="other users can put files there"):
        make_private_directory(tmp_path)
