"""`ottla secure` from nothing to records: certificates, users and profiles with real clients."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.cli.running import Ran

from ottla import Admin, Consumer, Producer
from ottla.base.acl import AclBinding, AclFilter
from ottla.base.child_process import end_process
from ottla.base.config.properties import load_properties
from ottla.cli.secure.certificates import Authority
from ottla.client.errors import AuthenticationFailed, AuthorizationFailed, ClientError

TIMEOUT_S = 60.0
SOURCE = str(Path(__file__).parents[3] / "src")


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def free_port() -> int:
    """Return a free port that no outgoing connection takes until the broker listens on it."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Home:
    """A user's home directory, with a directory of `ottla secure init` and a broker."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.secure = path / "secure"
        self.port = free_port()
        self._broker: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "HOME": str(self.path), "PYTHONPATH": SOURCE}

    def run(self, *words: str, stdin: str | None = None) -> Ran:
        command = [sys.executable, "-m", "ottla", *words]
        done = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            cwd=self.path,
            env=self.environment,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def succeed(self, *words: str, stdin: str | None = None) -> str:
        ran = self.run(*words, stdin=stdin)
        assert ran.code == 0, ran
        return ran.out

    def fail(self, *words: str, stdin: str | None = None) -> str:
        ran = self.run(*words, stdin=stdin)
        assert ran.code == 1, ran
        return ran.err

    def init(self, *options: str) -> str:
        return self.succeed("secure", "init", "--advertise", f"127.0.0.1:{self.port}", *options)

    def start(self) -> None:
        command = [sys.executable, "-m", "ottla", "broker", "--secure", str(self.secure)]
        with (self.path / "broker.log").open("ab") as log:
            broker = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)
        self._broker = broker

        def is_ready() -> bool:
            assert broker.poll() is None, self.log
            return " is ready" in self.log

        wait_for(is_ready)

    def stop(self) -> None:
        if self._broker is not None:
            end_process(self._broker, signal.SIGTERM, TIMEOUT_S)

    @property
    def log(self) -> str:
        return (self.path / "broker.log").read_text()

    def profile(self, user: str | None = None) -> dict[str, str]:
        name = "client.properties" if user is None else f"users/{user}.properties"
        return load_properties(str(self.secure / name))

    def librdkafka(self, user: str | None = None) -> dict[str, str]:
        """Return the file for librdkafka as the documentation shows."""
        path = self.secure / ("librdkafka.conf" if user is None else f"users/{user}.conf")
        return dict(line.rstrip("\n").split("=", 1) for line in path.open())

    def acls(self, user: str) -> list[AclBinding]:
        """Return the ACLs of a user."""
        with Admin(profile=self.profile()) as admin:
            return admin.describe_acls(AclFilter(principal=f"User:{user}"))

    def presented(self) -> bytes:
        """Return the certificate that the broker presents."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", self.port), 10) as plain,
            context.wrap_socket(plain) as peer,
        ):
            certificate = peer.getpeercert(binary_form=True)
            assert certificate is not None
            return certificate


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A broker that was started with the files of `ottla secure init`."""
    home = Home(tmp_path_factory.mktemp("home"))
    home.init("--data-dir", str(home.path / "data"))
    try:
        home.start()
        yield home
    finally:
        home.stop()


def values(profile: dict[str, str], topic: str) -> list[bytes | None]:
    """Return the values of all records of a topic."""
    with Consumer(profile=profile, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        end = consumer.end_offsets([(topic, 0)])[topic, 0]
        found: list[bytes | None] = []
        deadline = time.monotonic() + TIMEOUT_S
        while len(found) < end and time.monotonic() < deadline:
            found += [record.value for record in consumer.poll(1.0)]
        return found


def test_init_says_what_it_made_and_what_comes_next(tmp_path: Path) -> None:
    home = Home(tmp_path)
    out = home.init()
    for name in ("ca.pem", "broker-1.pem", "server.properties", "client.properties"):
        assert f"Created {name}" in out
    assert "accepted the profile" in out
    assert out.endswith(
        "Start the broker, and list its topics, with:\n"
        "  ottla broker --secure secure\n"
        "  ottla topics --list --command-config secure/client.properties\n"
    )
    data = tmp_path / ".local/share/ottla"
    assert load_properties(str(home.secure / "server.properties"))["log.dirs"] == str(data)
    before = {each: each.read_bytes() for each in home.secure.iterdir()}
    again = home.init()
    assert "Created" not in again
    assert again.endswith("secure is complete; nothing was changed.\n")
    assert {each: each.read_bytes() for each in home.secure.iterdir()} == before


def test_every_file_is_private(home: Home) -> None:
    home.succeed("secure", "user", "add", "private")
    for each in home.secure.rglob("*"):
        assert stat.S_IMODE(each.stat().st_mode) == (0o700 if each.is_dir() else 0o600), each
    assert stat.S_IMODE(home.secure.stat().st_mode) == 0o700


def test_nothing_secret_is_printed_or_logged(home: Home) -> None:
    out = home.succeed("secure", "user", "add", "quiet")
    passwords = [home.librdkafka(user)["sasl.password"] for user in (None, "quiet")]
    for text in (out, home.log):
        assert "PRIVATE KEY" not in text
        assert not any(password in text for password in passwords)


def test_records_pass_with_the_console_tools(home: Home) -> None:
    options = ("--topic", "console")
    profile = str(home.secure / "client.properties")
    for file in (profile, str(home.secure / "librdkafka.conf")):
        home.succeed("console-producer", *options, "--producer.config", file, stdin="hello\n")
    out = home.succeed(
        *("console-consumer", *options, "--from-beginning", "--max-messages", "2"),
        *("--consumer.config", profile),
    )
    assert out.splitlines() == ["hello", "hello"]


def test_records_pass_with_confluent_kafka(home: Home) -> None:
    kafka = pytest.importorskip("confluent_kafka")
    producer = kafka.Producer(home.librdkafka())
    producer.produce("confluent", b"hello")
    assert producer.flush(TIMEOUT_S) == 0
    consumer = kafka.Consumer(
        {**home.librdkafka(), "group.id": "g", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["confluent"])
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert (message.error(), message.value()) == (None, b"hello")
    finally:
        consumer.close()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_records_pass_with_kcat(home: Home) -> None:
    kcat = ["kcat", "-F", str(home.secure / "librdkafka.conf"), "-t", "kcat"]
    subprocess.run([*kcat, "-P"], input=b"hello\n", timeout=TIMEOUT_S, check=True)
    assert subprocess.check_output([*kcat, "-C", "-e", "-q"], timeout=TIMEOUT_S) == b"hello\n"


def test_a_user_can_log_in_until_it_is_removed(home: Home) -> None:
    out = home.succeed("secure", "user", "add", "alice", "--produce", "users")
    assert str(home.secure / "users/alice.properties") in out
    assert "alice has 3 ACLs.\n" in out
    with Producer(profile=home.profile("alice")) as producer:
        producer.send("users", b"1").result()
    listed = home.succeed("secure", "user", "list")
    assert ["alice", "SCRAM-SHA-512", "3"] in [line.split() for line in listed.splitlines()]
    assert home.fail("secure", "user", "add", "alice") == (
        "The user alice exists. Change the password with: ottla secure user passwd alice\n"
    )
    profile = home.profile("alice")
    out = home.succeed("secure", "user", "remove", "alice")
    assert out.startswith("Removed the user alice and 3 ACLs.\n")
    assert home.acls("alice") == []
    assert not (home.secure / "users/alice.properties").exists()
    assert not (home.secure / "users/alice.conf").exists()
    with (
        pytest.raises(AuthenticationFailed),
        Admin(profile=profile, default_api_timeout_ms=5_000) as admin,
    ):
        admin.list_topics()
    assert "does not exist" in home.fail("secure", "user", "remove", "alice")
    assert "does not exist" in home.fail("secure", "user", "passwd", "alice")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password_can_be_chosen_and_changed(home: Home, mechanism: str) -> None:
    user, password = f"bob-{mechanism}", 'päss "word" \\ =:#!'
    home.succeed(
        *("secure", "user", "add", user, "--mechanism", mechanism, "--password-file", "-"),
        *("--produce", "users"),
        stdin=f"{password}\n",
    )
    first = home.profile(user)
    assert first["sasl.mechanism"] == mechanism
    assert home.librdkafka(user)["sasl.password"] == password
    with Producer(profile=first) as producer:
        producer.send("users", b"1").result()
    home.succeed("secure", "user", "passwd", user)
    with Producer(profile=home.profile(user)) as producer:
        producer.send("users", b"2").result()
    with (
        pytest.raises(AuthenticationFailed),
        Admin(profile=first, default_api_timeout_ms=5_000) as admin,
    ):
        admin.list_topics()


def test_the_administrator_changes_its_own_password(home: Home) -> None:
    before = home.librdkafka()["sasl.password"]
    home.succeed("secure", "user", "passwd", "admin")
    assert home.librdkafka()["sasl.password"] != before
    home.succeed("topics", "--list", "--command-config", str(home.secure / "client.properties"))
    assert not (home.secure / "users/admin.properties").exists()


def test_a_user_may_do_only_what_was_given(home: Home) -> None:
    out = home.succeed("secure", "user", "add", "erin")
    assert "erin has no ACLs, and may do nothing yet." in out
    home.succeed(
        *("secure", "user", "add", "dave", "--produce", "given", "--consume", "read-*"),
        *("--group", "dave-*"),
    )
    admin, dave = home.profile(), home.profile("dave")
    with Producer(profile=admin) as producer:
        for topic in ("read-1", "other"):
            producer.send(topic, b"1").result()
    with Producer(profile=dave) as producer:
        producer.send("given", b"1").result()
    assert values(dave, "read-1") == [b"1"]
    with Consumer(profile=dave, group_id="dave-1", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["read-1"])
        wait_for(lambda: bool(consumer.poll(0.5)))
        consumer.commit()
    with Producer(profile=dave) as producer, pytest.raises(AuthorizationFailed):
        producer.send("read-1", b"1").result()
    for profile in (dave, home.profile("erin")):
        with Admin(profile=profile) as client:
            assert "other" not in client.list_topics()
            with pytest.raises(AuthorizationFailed):
                client.describe_acls()


def test_a_decision_is_explained(home: Home) -> None:
    home.succeed("secure", "user", "add", "frank", "--produce", "frank-*")
    explain = ("secure", "explain", "User:frank")
    allowed = home.run(*explain, "DESCRIBE", "topic", "frank-1")
    assert (allowed.code, allowed.out) == (
        0,
        "Allowed: User:frank DESCRIBE on topic 'frank-1'.\n"
        "The ACL (principal=User:frank, host=*, operation=WRITE, permissionType=ALLOW) of "
        "ResourcePattern(resourceType=TOPIC, name=frank-, patternType=PREFIXED) allows DESCRIBE on "
        "topic 'frank-1', because WRITE implies DESCRIBE.\n",
    )
    denied = home.run(*explain, "READ", "topic", "frank-1")
    assert (denied.code, denied.out) == (
        1,
        "Denied: User:frank READ on topic 'frank-1'.\n"
        "Topic 'frank-1' has ACLs, but none of 3 ACLs applies to READ by User:frank. Allow it "
        "with: kafka-acls --add --allow-principal User:frank --operation Read --topic frank-1\n",
    )
    for words in (("WRITE", "topic", "orders"), ("ALTER", "cluster")):
        assert home.run("secure", "explain", "User:admin", *words).out.endswith(
            "User:admin is a super user, who may do everything.\n"
        )
    found = home.run(*explain, "READ", "topic", "frank-1", "--json").json
    assert (found["allowed"], found["acl"]) == (False, None)


def test_a_new_cluster_has_no_severe_findings(home: Home) -> None:
    home.succeed("secure", "user", "add", "grace")
    checked = home.run("secure", "check", "--json")
    found = checked.json["findings"]
    assert checked.code == 0, found
    assert {each["severity"] for each in found} <= {"low", "medium"}
    assert {
        "severity": "low",
        "subject": "User:grace",
        "text": "The user has no ACLs, and may do nothing. Give it permissions, or remove it.",
    } in found


def test_weaknesses_are_found_in_the_cluster_and_in_files(home: Home) -> None:
    profile = str(home.secure / "client.properties")
    rule = ("--allow-principal", "User:*", "--operation", "Write", "--topic", "*")
    home.succeed("acls", "--add", *rule, "--command-config", profile)
    home.succeed("secure", "user", "add", "heidi", "--produce", "t")
    key = home.secure / "users/heidi.properties"
    key.chmod(0o644)
    try:
        checked = home.run("secure", "check")
        lines = checked.out.splitlines()
        assert checked.code == 1
        assert any(
            line.startswith("HIGH   ACL (principal=User:*, host=*, operation=WRITE")
            for line in lines
        )
        assert f"HIGH   {key}: Other users of this machine can use the file (mode 644)." in "".join(
            lines
        )
        assert lines[-1].endswith("2 of high severity.")
    finally:
        key.chmod(0o600)
        home.succeed("acls", "--remove", "--force", *rule, "--command-config", profile)


def test_users_that_are_needed_are_not_removed(home: Home) -> None:
    assert "You are logged in as admin" in home.fail("secure", "user", "remove", "admin")
    for action in ("remove", "passwd"):
        assert "of the brokers" in home.fail("secure", "user", action, "broker")


def test_a_name_or_password_that_cannot_be_meant_is_refused(home: Home) -> None:
    for name in ("", " a", "a\nb", "x" * 201):
        assert "The name of a user must have" in home.fail("secure", "user", "add", name)
    add = ("secure", "user", "add", "carol", "--password-file", "-")
    assert "there is no password" in home.fail(*add, stdin="\n")
    assert "printable" in home.fail(*add, stdin="a\tb\n")
    assert "Cannot read absent" in home.fail(*add[:-1], "absent")


def test_a_client_that_trusts_another_authority_connects_to_nobody(home: Home) -> None:
    from datetime import UTC, datetime

    wrong = Authority.create(datetime.now(UTC)).certificate.decode()
    profile = {**home.profile(), "ssl.truststore.certificates": wrong}
    with (
        pytest.raises(ClientError, match="certificate"),
        Admin(profile=profile, default_api_timeout_ms=5_000) as admin,
    ):
        admin.list_topics()


class Sender:
    """A producer that sends numbers until it is stopped, each on an open connection."""

    def __init__(self, profile: dict[str, str], topic: str) -> None:
        self.count = 0
        self._profile, self._topic = profile, topic
        self._is_stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            with Producer(profile=self._profile, acks="all") as producer:
                while not self._is_stopped.is_set():
                    producer.send(self._topic, b"%d" % self.count).result()
                    self.count += 1
        except BaseException as error:
            self._failure = error

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join(TIMEOUT_S)
        if self._failure is not None:
            raise self._failure


def test_a_renewal_under_load_loses_nothing(home: Home) -> None:
    sender = Sender(home.profile(), "renewed")
    try:
        wait_for(lambda: sender.count > 10)
        before = home.presented()
        out = home.succeed("secure", "renew")
        assert "Renewed broker-1.pem for 127.0.0.1, localhost, ::1, valid until" in out
        wait_for(lambda: home.presented() != before)
        sent = sender.count
        wait_for(lambda: sender.count > sent + 10)
    finally:
        sender.stop()
    assert values(home.profile(), "renewed") == [b"%d" % each for each in range(sender.count)]


def test_the_authority_is_replaced_without_an_interruption(home: Home) -> None:
    old = home.profile()
    sender = Sender(old, "replaced")
    try:
        wait_for(lambda: sender.count > 10)
        before = home.presented()
        home.succeed("secure", "renew", "--ca")
        wait_for(lambda: home.presented() != before)
        for profile in (old, home.profile()):
            with Producer(profile=profile) as producer:
                producer.send("users", b"").result()
        before = home.presented()
        home.succeed("secure", "renew", "--drop-old-ca")
        wait_for(lambda: home.presented() != before)
        with Producer(profile=home.profile()) as producer:
            producer.send("users", b"").result()
        with (
            pytest.raises(ClientError, match="certificate"),
            Admin(profile=old, default_api_timeout_ms=5_000) as admin,
        ):
            admin.list_topics()
        sent = sender.count
        wait_for(lambda: sender.count > sent + 10)
    finally:
        sender.stop()
    assert values(home.profile(), "replaced") == [b"%d" % each for each in range(sender.count)]


def test_init_refuses_the_data_of_a_running_broker(home: Home, tmp_path: Path) -> None:
    other = Home(tmp_path)
    error = other.fail("secure", "init", "--data-dir", str(home.path / "data"))
    assert str(home.path / "data") in error
    assert not (other.secure / "client.properties").exists()


def test_only_force_replaces_passwords(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.init()
    before = home.librdkafka()["sasl.password"]
    other = ("--dir", str(tmp_path / "other"))
    assert "already has the user admin. Use --force" in home.fail("secure", "init", *other)
    assert not (tmp_path / "other/client.properties").exists()
    assert "Kept" not in home.init("--force")
    assert home.librdkafka()["sasl.password"] != before
