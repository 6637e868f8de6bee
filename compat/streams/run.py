"""Check stream applications on Apache Kafka and on a standalone Spark cluster.

    python -m compat.streams.run [--bench]

Run an example as a program (`ottla run`) on Apache Kafka's broker: first on this machine, then,
after a restart, on a standalone Spark cluster of two workers, where an executor is killed. The
output must be exact, and Apache Kafka's tools must show the group. With --bench, print the rows per
second of a windowed count with Kafka Streams in Java and with ours, on the same topic.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from compat import jars as kafka_jars  # noqa: E402
from compat.apache_kafka import ApacheKafka  # noqa: E402
from compat.java import Java  # noqa: E402
from ottla import Admin, Consumer, NewTopic, Producer, TopicPartition  # noqa: E402

HERE = Path(__file__).parent
WAIT_S = 900.0
BASE_MS = 1_767_225_600_000
ITEMS = ("tea", "jam", "milk")
BENCH_ROWS = 2_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bench", action="store_true")
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    try:
        directory = kafka_jars.directory()
        java = Java(kafka_jars.java_command(), str(directory / "*"), directory / "classes.jsa")
    except kafka_jars.NotAvailable as reason:
        print(f"skipped: {reason}")
        return 0
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-compat-")))
        bootstrap = stack.enter_context(ApacheKafka(java, home / "kafka")).bootstrap
        if arguments.bench:
            return _bench(bootstrap, home)
        return _check(stack, bootstrap, home, java)


# ---------------------------------------------------------------------------------- the example


def _check(stack: ExitStack, bootstrap: str, home: Path, java: Java) -> int:
    with Admin(bootstrap) as admin:
        keep = {"retention.ms": "-1"}
        admin.create_topics(
            NewTopic("orders", 3, configs=keep), NewTopic("totals", 2, configs=keep)
        )
    sent: Counter[tuple[str, int]] = Counter()
    _send(bootstrap, sent, 0)
    with _running(bootstrap, home, "local[2]") as process:
        _await(bootstrap, sent, process, home)
    print("exact      Apache Kafka, local[2]", flush=True)

    from tests.spark.test_standalone import standalone

    (home / "spark").mkdir()
    url = stack.enter_context(standalone(home / "spark"))
    _send(bootstrap, sent, 1)
    with _running(bootstrap, home, url) as process:
        _await(bootstrap, sent, process, home)
        print("exact      Apache Kafka, standalone Spark, from the same checkpoint", flush=True)
        killed = _kill_executor(url)
        _send(bootstrap, sent, 2)
        _await(bootstrap, sent, process, home)
        print(f"exact      after an executor was killed (process {killed})", flush=True)
    java.succeed("kafka-consumer-groups", "--bootstrap-server", bootstrap, "--describe",
                 "--group", "orders")  # fmt: skip
    print("found      by Kafka's kafka-consumer-groups", flush=True)
    return 0


def _send(bootstrap: str, sent: Counter[tuple[str, int]], round_: int) -> None:
    with Producer(bootstrap) as producer:
        for number in range(3_000):
            item, minute = ITEMS[number % 3], 2 * round_ + number // 1_500
            order = {"id": str(number), "item": item, "amount": 20.0}
            at_ms = BASE_MS + minute * 60_000 + number % 1_000
            producer.send("orders", json.dumps(order).encode(), key=str(number), timestamp=at_ms)
            sent[item, minute] += 1
        producer.flush()


@contextmanager
def _running(bootstrap: str, home: Path, master: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [
        sys.executable, "-m", "ottla", "run", str(ROOT / "examples" / "windowed_totals.py"),
        "--bootstrap-server", bootstrap, "--master", master, "--state-dir", str(home / "state"),
        "--conf", "spark.executor.memory=512m", "--conf", "spark.cores.max=2",
        "--conf", "spark.executor.cores=1", "--conf", "spark.sql.shuffle.partitions=2",
    ]  # fmt: skip
    with (home / "app.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, _log(home)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _await(
    bootstrap: str,
    sent: Counter[tuple[str, int]],
    process: subprocess.Popen[bytes],
    home: Path,
) -> None:
    deadline = time.monotonic() + WAIT_S
    while (found := _totals(bootstrap)) != sent:
        assert process.poll() is None, _log(home)
        assert time.monotonic() < deadline, f"{found} is not {sent}\n{_log(home)}"
        time.sleep(0.5)


def _totals(bootstrap: str) -> dict[tuple[str, int], int]:
    """Return the last change of each count.

    Counts must only grow, which shows that no change is written twice.
    """
    found: dict[tuple[str, int], int] = {}
    with Consumer(bootstrap, isolation_level="read_committed") as consumer:
        tps = [TopicPartition("totals", each) for each in range(2)]
        consumer.assign(tps)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(*tps)
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for each in consumer.poll(timeout_s=1):
                start_ms = int.from_bytes(each.key[-8:], "big")
                place = each.key[:-8].decode(), (start_ms - BASE_MS) // 60_000
                n = json.loads(each.value)["n"]
                assert n > found.get(place, 0), f"{place} was {found.get(place)} and became {n}"
                found[place] = n
    return found


def _kill_executor(url: str) -> int:
    """Kill the JVM of one executor of this cluster, and with it its Python workers."""
    for each in Path("/proc").iterdir():
        if not each.name.isdecimal() or b"CoarseGrainedExecutorBackend" not in _command(each):
            continue
        parent = (each / "stat").read_text().rpartition(")")[2].split()[1]
        if url.encode() in _command(Path("/proc", parent)):
            os.kill(int(each.name), signal.SIGKILL)
            return int(each.name)
    raise AssertionError("no executor is running")


def _command(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def _log(home: Path) -> str:
    return (home / "app.log").read_text(errors="replace")[-6000:]


# ----------------------------------------------------------------------------------- the bench


def _bench(bootstrap: str, home: Path) -> int:
    import ottla.spark
    import ottla.streams as st
    from ottla.streams.run import start

    classes = compiled_class(home, "WindowedCount.java")
    if classes is None:
        print("skipped: Kafka Streams is not available (javac, Maven or Maven Central is missing)")
        return 0
    spark = ottla.spark.session("local[2]", **{"spark.sql.session.timeZone": "UTC"})
    spark.sparkContext.setLogLevel("OFF")
    for keys in (1_000, 100_000):
        source = f"bench-{keys}"
        with Admin(bootstrap) as admin:
            keep = {"retention.ms": "-1"}
            topics = (source, f"java-{keys}", f"ours-{keys}")
            admin.create_topics(*(NewTopic(each, 2, configs=keep) for each in topics))
        rows = spark.range(0, BENCH_ROWS, 1, 2).selectExpr(
            f"concat('key-', id % {keys}) key", "rpad(string(id), 100, 'x') value",
            f"timestamp_millis({BASE_MS} + cast(id * 600000 / {BENCH_ROWS} as bigint)) timestamp",
        )  # fmt: skip
        options = {"kafka.bootstrap.servers": bootstrap, "topic": source}
        rows.write.format("ottla").mode("append").options(**options).save()
        result = subprocess.run(
            [
                "java", "-Xmx1g", "-cp", classes, "WindowedCount", bootstrap, source,
                f"java-{keys}", str(BENCH_ROWS), str(home / f"java-{keys}"), "2",
            ],
            capture_output=True, text=True, timeout=1800, check=True,
        )  # fmt: skip
        print(
            f"Kafka Streams {keys:7} keys {float(result.stdout.split()[-1]):12,.0f} rows/s",
            flush=True,
        )
        app = st.App(f"ours-{keys}", bootstrap=bootstrap, state_dir=home / "bench")
        windows = app.stream(source).group_by_key()
        windows.windowed(st.tumbling("1 minute", grace="1 hour")).count().to(f"ours-{keys}")
        began = time.perf_counter()
        running = start(app.application(), spark)
        running.process_all_available()
        rate = BENCH_ROWS / (time.perf_counter() - began)
        running.stop()
        print(f"ottla.streams {keys:7} keys {rate:12,.0f} rows/s", flush=True)
    spark.stop()
    return 0


def compiled_class(home: Path, name: str) -> str | None:
    """Compile a program of this directory, and return the class path, or None without the tools."""
    maven, javac = shutil.which("mvn"), shutil.which("javac")
    if maven is None or javac is None:
        return None
    version = kafka_jars.version_in_pom()
    target = HERE.parent / ".cache" / f"kafka-streams-{version}"
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        result = subprocess.run(
            [
                maven, "--quiet", "--batch-mode", "--file", str(HERE / "pom.xml"),
                f"-Dkafka.version={version}", f"-DoutputDirectory={target}",
                "dependency:copy-dependencies",
            ],
            check=False, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        if result.returncode:
            shutil.rmtree(target, ignore_errors=True)
            return None
    path = os.pathsep.join((f"{target}/*", str(home)))
    subprocess.run([javac, "-cp", path, "-d", str(home), str(HERE / name)], check=True)
    return path


if __name__ == "__main__":
    sys.exit(main())
