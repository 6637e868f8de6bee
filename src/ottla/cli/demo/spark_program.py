"""The demo's Spark program: the Streams application and a Connect worker, in one Spark application.

python -m ottla.cli.demo.spark_program BOOTSTRAP STATE_DIR WORKER_FILE [CONNECTOR_FILE …]

The tasks of the connectors and the queries of the application run on the same local Spark. Two
programs would start two JVMs, which takes longer and needs twice the memory. A real pipeline
usually has a program for each, with `ottla run` and `connect-distributed`."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import ottla.spark
import ottla.streams as st
from ottla.base.config.properties import load_properties
from ottla.cli.connect_worker import load_connector
from ottla.cli.demo.application import NAME, SPARK, build
from ottla.cli.log_output import log_to_standard_error
from ottla.connect import session
from ottla.connect.rest.server import RestServer
from ottla.connect.standalone import StandaloneHerder
from ottla.connect.worker_config import WorkerConfig


@contextmanager
def connect_worker(config: WorkerConfig, connector_files: Sequence[str]) -> Iterator[None]:
    """Run a standalone worker while the body runs."""
    herder = StandaloneHerder(config)
    rest = RestServer(herder)
    rest.start()
    herder.start()
    for file in connector_files:
        herder.put(load_connector(file))
    thread = threading.Thread(target=herder.run, name="connect", daemon=True)
    thread.start()
    try:
        yield
    finally:
        herder.request_stop()
        thread.join()
        rest.close()
        herder.close()


def main(bootstrap: str, state_dir: str, worker_file: str, *connector_files: str) -> None:
    """Run the application and the worker until the program is stopped."""
    log_to_standard_error("info")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    config = WorkerConfig.of(load_properties(worker_file))
    settings = config.session_settings
    master = settings.pop("spark.master")
    app = st.App(NAME, bootstrap, state_dir=state_dir, master=master, spark=SPARK | settings)
    build(app)
    spark = ottla.spark.session(master, app_name=NAME, **SPARK, **settings)
    spark.sparkContext.setLogLevel("OFF")
    session.share(spark)
    try:
        with connect_worker(config, connector_files):
            app.run()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
