"""Access to the files under deploy/ for tests."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from ottla.cli.broker import broker

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BROKER_OPTIONS = {name for option in broker.params for name in option.opts}
needs_check = pytest.mark.skipif(
    not {"--check", "--advertise"} <= BROKER_OPTIONS, reason="ottla broker has no --check yet"
)
