"""Settings of the Spark application whose tasks are those of connectors.

A task occupies a core of Spark for as long as it runs. A local master therefore gets
`TASK_SLOTS` more cores than it asks for: tasks of connectors mostly wait, and a machine can run
many of them. The number in `local[K]` remains the parallelism of Spark's own jobs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ottla.base.errors import UserError

TASK_SLOTS = 128
"""Maximum number of tasks on a local master. Each needs a Python process."""
MAX_FAILURES = 4
"""Spark's default of spark.task.maxFailures, which local masters do not have."""
_LOCAL = re.compile(r"local(?:\[\s*(\*|\d+)\s*(?:,\s*(\d+)\s*)?\])?")


def is_local(master: str | None) -> bool:
    return master is None or _LOCAL.fullmatch(master.strip()) is not None


def session_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the `spark.*` properties of the application for those of the worker.

    Raises:
        UserError: Speculation is on, which would run two instances of a task.
    """
    if given.get("spark.speculation", "false").strip().lower() == "true":
        raise UserError(
            "spark.speculation=true would run two instances of a task at once. Remove it, or set "
            "task.engine=threads."
        )
    settings = dict(given)
    master = given.get("spark.master") or os.environ.get("SPARK_MASTER")
    if not is_local(master):
        return settings
    cores, failures = local_cores(master)
    settings["spark.master"] = f"local[{cores + TASK_SLOTS},{failures}]"
    settings.setdefault("spark.default.parallelism", str(cores))
    settings.setdefault("spark.sql.shuffle.partitions", str(cores))
    return settings


def local_cores(master: str | None) -> tuple[int, int]:
    """Return the number of cores and of attempts that a local master names."""
    found = _LOCAL.fullmatch((master or "local[*]").strip())
    assert found is not None
    cores, failures = found[1], found[2]
    if master is not None and cores is None:
        count = 1
    else:
        count = (os.cpu_count() or 2) if cores in (None, "*") else max(1, int(cores))
    return count, int(failures) if failures else MAX_FAILURES
