"""Process on the driver that replaces the profile in a query's options by its properties.

The processes beside the tasks of a real-time query get the options from the JVM, on machines that
have neither the profile nor the files that it names.
"""

from __future__ import annotations

import json

from ottla.spark.options import without_profile
from ottla.spark.realtime.frames import FramePipe, Setup, run_end


def run(pipe: FramePipe, setup: Setup) -> None:
    pipe.write(b"O", json.dumps(without_profile(setup.options)).encode())


if __name__ == "__main__":
    run_end(run)
