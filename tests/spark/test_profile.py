"""Spark reads a profile on the driver, and shows none of its secrets."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.client.certificates import Authority, needs_openssl

from ottla.testing.broker import BrokerProcess

pytestmark = [needs_openssl, pytest.mark.timeout(600)]
PASSWORD = "MARKER-of-the-key"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("profile")


@pytest.fixture(scope="module")
def authority(home: Path) -> Authority:
    return Authority(home)


@pytest.fixture(scope="module")
def broker(home: Path, authority: Authority) -> Iterator[BrokerProcess]:
    signed = authority.sign("broker", "DNS:localhost,IP:127.0.0.1")
    (home / "broker.pem").write_text(
        Path(signed.key).read_text() + Path(signed.certificate).read_text()
    )
    overrides = {
        "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.certificate,
        "ssl.client.auth": "required",
    }
    with BrokerProcess(overrides=overrides) as broker:
        yield broker


@pytest.fixture(scope="module")
def profile(home: Path, broker: BrokerProcess, authority: Authority) -> str:
    """A profile with relative paths and an encrypted key."""
    authority.sign("client", "DNS:client", password=PASSWORD)
    path = home / "client.properties"
    path.write_text(
        f"bootstrap.servers=127.0.0.1:{broker.ports['SSL']}\nsecurity.protocol=SSL\n"
        "ssl.ca.location=ca.pem\nssl.certificate.location=client.pem\n"
        f"ssl.key.location=client.key\nssl.key.password={PASSWORD}\n"
    )
    path.chmod(0o600)
    return str(path)


PROGRAM = """
import contextlib, io, json, logging, sys
from ottla import Producer, Consumer
from ottla.spark import session, table

profile, home = sys.argv[1:]
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
logging.getLogger("py4j").setLevel(logging.INFO)  # logs what the program itself passes to Spark
with Producer(profile=profile) as producer:
    for number in range(3):
        producer.send("numbers", b"%d" % number)
spark = session("local[2]", **{
    "spark.eventLog.enabled": True, "spark.eventLog.compress": False,
    "spark.eventLog.dir": f"file:{home}/events", "spark.ui.enabled": True,
})

def show(frame):
    for mode in ("simple", "extended", "formatted", "cost"):
        frame.explain(mode)
    print(repr(frame), frame.schema)

def by_profile(io):
    return io.option("profile", profile)

def by_options(io):
    from ottla.client.inlined_files import with_inlined_files
    from ottla.client.config import CommonConfig
    from ottla.client.profile import load_profile
    inlined = with_inlined_files(CommonConfig, load_profile(profile))
    assert inlined["ssl.keystore.key"]
    more = {"sasl.password": "MARKER-pw", "sasl.jaas.config": "MARKER-jaas"}
    return io.options(**{f"kafka.{name}": value for name, value in (inlined | more).items()})

for number, connected in enumerate((by_profile, by_options)):
    reader = connected(spark.read.format("ottla")).option("subscribe", "numbers").load()
    show(reader)
    assert reader.count() == 3
    written = reader.selectExpr("value").write.format("ottla").option("topic", f"batch-{number}")
    connected(written).mode("append").save()
    rows = connected(spark.readStream.format("ottla")).options(
        subscribe="numbers", startingOffsets="earliest"
    ).load()
    show(rows)
    query = connected(rows.selectExpr("value").writeStream.format("ottla")).options(
        topic=f"stream-{number}", checkpointLocation=f"{home}/checkpoint-{number}"
    ).trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(True)
    print(json.dumps([str(each) for each in query.recentProgress]), query.status)
    real_time = connected(rows.selectExpr("value").writeStream.format("ottla")).options(
        topic=f"real-time-{number}", checkpointLocation=f"{home}/real-time-{number}"
    ).outputMode("update").trigger(realTime="5 seconds").start()
    with Consumer(profile=profile, auto_offset_reset="earliest", group_id=f"g{number}") as seen:
        seen.subscribe([f"real-time-{number}"])
        found = 0
        while found < 3:
            assert real_time.exception() is None, real_time.exception()
            found += len(seen.poll(timeout_s=1))
    real_time.explain(True)
    real_time.stop()
show(table("numbers", profile=profile, mode="drop", schema="a int", value_format="json"))
show(table("numbers", profile=profile, mode="dead-letter", dead_letter="bad", schema="a int",
           value_format="json"))
assert table("numbers", profile=profile).count() == 3
import urllib.request
address = spark.sparkContext.uiWebUrl
application = spark.sparkContext.applicationId
for path in ("/environment/", "/SQL/", "/StreamingQuery/", "/jobs/", "/stages/",
             f"/api/v1/applications/{application}/sql?details=true&planDescription=true",
             f"/api/v1/applications/{application}/environment"):
    print(urllib.request.urlopen(address + path).read().decode())
for wrong in ({"kafka.ssl.keystore.key": "MARKER-key"}, {"kafka.sasl.mechanism": "MARKERLESS"}):
    try:
        by_options(spark.read.format("ottla")).options(subscribe="numbers", **wrong).load().count()
    except Exception as error:
        logging.exception("refused: %s", error)
    else:
        raise AssertionError(wrong)
spark.stop()
"""


def test_no_secret_is_shown_anywhere(home: Path, profile: str, broker: BrokerProcess) -> None:
    """Read and write in every way, and search all output, the web UI and the event log."""
    (home / "events").mkdir()
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), profile, str(home)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    output = found.stdout + found.stderr
    assert found.returncode == 0, output[-8_000:]
    events = [each for each in (home / "events").rglob("*") if each.is_file()]
    assert sum(each.stat().st_size for each in events) > 10_000
    shown = [output, broker.log(), *(each.read_text() for each in events)]
    checkpoints = [*home.glob("checkpoint-*/**/*"), *home.glob("real-time-*/**/*")]
    shown += [each.read_text(errors="replace") for each in checkpoints if each.is_file()]
    for text in shown:
        lines = [line for line in text.splitlines() if "MARKER" in line or "PRIVATE KEY" in line]
        # A traceback quotes the source line of this program.
        assert not [each for each in lines if "MARKERLESS" not in each], lines[:5]
