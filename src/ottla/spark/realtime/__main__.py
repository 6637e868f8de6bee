"""Write the JAR of the JVM part: `python -m ottla.spark.realtime PATH`."""

from __future__ import annotations

import sys
from pathlib import Path

import ottla.spark
from ottla.spark.realtime import jvm_part


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.stderr.write(f"Usage: {jvm_part.WRITE_JAR}\n")
        return 2
    spark = ottla.spark.session("local[1]")
    jvm_part.write_jar(spark, Path(sys.argv[1]))
    spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
