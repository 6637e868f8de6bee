"""kafka-producer-perf-test and kafka-consumer-perf-test against a broker."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from tests.integration.cli.running import Fail, Run, tool

from ottla.testing.broker import BrokerProcess, _environment

RECORDS = ("--num-records", "500")
TIMEOUT_S = 30.0
SIGNALS = pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
UNTHROTTLED = ("--throughput", "-1")


def test_what_is_written_is_read(succeed: Run, topic: str) -> None:
    written = succeed(
        "producer-perf-test", "--topic", topic, *RECORDS, "--record-size", "100", *UNTHROTTLED,
        "--producer-props", "acks=1", "linger.ms=1", "--print-metrics",
    )  # fmt: skip
    assert re.search(
        r"^500 records sent, [\d.]+ records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, "
        r"[\d.]+ ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th\.$",
        written.out,
        re.MULTILINE,
    )
    assert "producer-metrics:record-send-total:{client-id=perf-producer-client}" in written.out
    read = succeed("consumer-perf-test", "--topic", topic, "--messages", "500")
    header, figures = read.lines
    assert header == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
        "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )
    assert len(figures.split(", ")) == 10
    assert figures.split(", ")[2] == f"{500 * 100 / 2**20:.4f}"
    assert figures.split(", ")[4] == "500"


def test_json_has_the_figures(succeed: Run, topic: str) -> None:
    written = succeed(
        "producer-perf-test", "--topic", topic, *RECORDS, "--payload-monotonic", *UNTHROTTLED,
        "--warmup-records", "100", "--json",
    ).json  # fmt: skip
    assert (written["records"], written["errors"]) == (500, 0)
    assert written["steadyState"]["records"] == 400
    read = succeed("consumer-perf-test", "--topic", topic, *RECORDS, "--json").json
    assert read["data.consumed.in.nMsg"] == 500
    values = succeed(
        "console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "500"
    ).lines
    assert values == [str(number) for number in range(500)]


def test_tables_go_in_and_come_out(succeed: Run, topic: str) -> None:
    pytest.importorskip("pyarrow")
    pytest.importorskip("numba")
    written = succeed(
        "producer-perf-test", "--topic", topic, *RECORDS, "--record-size", "10", *UNTHROTTLED,
        "--columnar", "--json",
    ).json  # fmt: skip
    assert (written["records"], written["errors"]) == (500, 0)
    read = succeed("consumer-perf-test", "--topic", topic, *RECORDS, "--columnar", "--json").json
    assert read["data.consumed.in.nMsg"] == 500
    assert read["data.consumed.in.MB"] == pytest.approx(500 * 10 / 2**20)


def test_transactions_are_committed(succeed: Run, topic: str) -> None:
    succeed(
        "producer-perf-test", "--topic", topic, *RECORDS, "--payload-monotonic",
        "--throughput", "2500", "--transaction-duration-ms", "50",
    )  # fmt: skip
    values = succeed(
        "console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "500",
        "--isolation-level", "read_committed",
    ).lines  # fmt: skip
    assert values == [str(number) for number in range(500)]


def test_payloads_come_from_a_file(succeed: Run, fail: Fail, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "payloads"
    file.write_text("one;two;three")
    options = ("--payload-file", str(file), "--payload-delimiter", ";", *UNTHROTTLED)
    succeed("producer-perf-test", "--topic", topic, "--num-records", "50", *options)
    values = succeed(
        "console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "50"
    ).lines
    assert set(values) == {"one", "two", "three"}
    file.write_text("")
    assert "is empty" in fail("producer-perf-test", "--topic", topic, *RECORDS, *options)


def test_a_throttled_run_keeps_its_rate_and_reports_progress(succeed: Run, topic: str) -> None:
    written = succeed(
        "producer-perf-test", "--topic", topic, "--num-records", "400", "--record-size", "1",
        "--throughput", "1000", "--reporting-interval", "100",
    )  # fmt: skip
    *windows, total = written.lines
    assert windows
    rate = re.search(r"([\d.]+) records/sec", total)
    assert rate is not None
    assert float(rate[1]) <= 1_010


def test_too_few_records_are_reported(succeed: Run, topic: str) -> None:
    succeed("console-producer", "--topic", topic, stdin="only\n")
    read = succeed(
        "consumer-perf-test", "--topic", topic, *RECORDS, "--timeout", "500",
        "--show-detailed-stats", "--reporting-interval", "100", "--hide-header",
    )  # fmt: skip
    assert "WARNING: Exiting before consuming the expected number of records" in read.err
    assert all(len(line.split(", ")) == 10 for line in read.lines)
    assert read.lines[-1].split(", ")[4] == "1"


def test_what_excludes_each_other_is_reported(fail: Fail, topic: str) -> None:
    base = ("producer-perf-test", "--topic", topic, *RECORDS, *UNTHROTTLED)
    assert "Give exactly one of --record-size" in fail(*base)
    assert "Give exactly one of" in fail(*base, "--record-size", "1", "--payload-monotonic")
    assert "--warmup-records must be less" in fail(
        *base, "--record-size", "1", "--warmup-records", "500"
    )
    assert "Exactly one of --topic and --include" in fail("consumer-perf-test", *RECORDS)
    assert "--date-format" in fail(
        "consumer-perf-test", "--topic", topic, *RECORDS, "--date-format", "EEE"
    )


@SIGNALS
@pytest.mark.parametrize("more", [(), ("--transaction-duration-ms", "50")])
def test_an_interrupted_producer_prints_its_summary(
    broker: BrokerProcess, succeed: Run, topic: str, number: int, code: int, more: tuple[str, ...]
) -> None:
    succeed("topics", "--create", "--topic", topic)
    command = tool(
        "producer-perf-test", "--bootstrap-server", broker.bootstrap, "--topic", topic,
        "--num-records", "1000000", "--record-size", "10", "--throughput", "1000",
        "--reporting-interval", "100", *more,
    )  # fmt: skip
    with subprocess.Popen(
        command, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "records sent" in process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (code, "")
    summary = out.splitlines()[-1]
    assert re.match(r"\d+ records sent, .* ms avg latency, .* ms 99.9th\.$", summary)
    assert not summary.startswith("0 ")


@SIGNALS
def test_an_interrupted_consumer_prints_its_summary(
    broker: BrokerProcess, succeed: Run, topic: str, number: int, code: int
) -> None:
    succeed("producer-perf-test", "--topic", topic, *RECORDS, "--record-size", "10", *UNTHROTTLED)
    group = f"of-{topic}"
    command = tool(
        "consumer-perf-test", "--bootstrap-server", broker.bootstrap, "--topic", topic,
        "--num-records", "1000000", "--timeout", "120000", "--group", group,
        "--command-property", "auto.commit.interval.ms=50",
    )  # fmt: skip
    with subprocess.Popen(
        command, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_until_committed(succeed, group, 500)
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (code, "")
    header, summary = out.splitlines()
    assert header.startswith("start.time")
    assert summary.split(", ")[4] == "500"


def wait_until_committed(succeed: Run, group: str, offset: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        shown = succeed("consumer-groups", "--all-groups", "--describe").out
        # GROUP, TOPIC, PARTITION, CURRENT-OFFSET
        if re.search(rf"^{group} +\S+ +\d+ +{offset} ", shown, re.MULTILINE):
            return
    raise AssertionError(f"{group} has not committed {offset}")
