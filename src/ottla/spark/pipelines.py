"""`spark-pipelines` with the Java runtime and the Python that Ottla's sessions use.

    python -m ottla.spark.pipelines run --spec spark-pipeline.yml

Spark's own command needs an installed Java with all modules, and takes the first `python3` on the
path. Arguments, output and exit code are those of `spark-pipelines`. Needs the `pipelines` extra.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ottla.base.errors import UserError
from ottla.base.installation import install_extra
from ottla.spark.java_cache import options_for_session
from ottla.spark.spark_session import prepare_environment

PACKAGES = ("pyspark", "grpc", "grpc_status", "yaml")


def main(arguments: Sequence[str]) -> int:
    missing = [each for each in PACKAGES if importlib.util.find_spec(each) is None]
    if missing:
        sys.stderr.write(
            f"Pipelines need the package {missing[0]}. Install it with: "
            f"{install_extra('pipelines')}\n"
        )
        return 1
    try:
        prepare_environment(is_local=True)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    command = [str(home / "bin" / "spark-pipelines"), *arguments]
    with options_for_session():
        environment = {**os.environ, "SPARK_HOME": str(home)}
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
