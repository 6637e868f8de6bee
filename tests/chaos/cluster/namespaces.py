"""Brokers in network namespaces of their own, so that tests can cut the links between them.

All namespaces are on one bridge with the test and ZooKeeper. A blackhole route cuts a link, which
can therefore fail in one direction only. Needs root and `ip`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ottla.testing.broker import BrokerProcess

BRIDGE = "ottla-br"
NETWORK = "10.213.77"
HOST_ADDRESS = f"{NETWORK}.254"
BROKER_PORT = 9092


def are_available() -> bool:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    probe = subprocess.run(["ip", "netns", "add", "ottla-probe"], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", "ottla-probe"], capture_output=True, check=False)
    return probe.returncode == 0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Namespaces:
    """One network namespace per broker; broker `n` has the address `10.213.77.n`."""

    def __init__(self, count: int) -> None:
        self._numbers = range(1, count + 1)
        self.close()
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{HOST_ADDRESS}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for number in self._numbers:
            self._add(number)

    def _add(self, number: int) -> None:
        name, inner = namespace(number), f"ottla-i{number}"
        ip("netns", "add", name)
        ip("link", "add", outer(number), "type", "veth", "peer", "name", inner, "netns", name)
        ip("link", "set", outer(number), "master", BRIDGE)
        ip("link", "set", outer(number), "up")
        ip("-n", name, "addr", "add", f"{address(number)}/24", "dev", inner)
        ip("-n", name, "link", "set", inner, "up")
        ip("-n", name, "link", "set", "lo", "up")

    def cut(self, number: int, target: str) -> None:
        """Drop everything that this broker sends to the target address."""
        ip("-n", namespace(number), "route", "add", "blackhole", f"{target}/32")

    def heal(self) -> None:
        for number in self._numbers:
            command = ["ip", "-n", namespace(number), "route", "flush", "type", "blackhole"]
            subprocess.run(command, check=False, capture_output=True)

    def close(self) -> None:
        for number in self._numbers:
            # Delete the link explicitly: the kernel removes the link of a deleted namespace only
            # some time later, and its name must be free at once.
            for words in (["link", "del", outer(number)], ["netns", "del", namespace(number)]):
                subprocess.run(["ip", *words], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", BRIDGE], check=False, capture_output=True)


def namespace(number: int) -> str:
    return f"ottla-{number}"


def outer(number: int) -> str:
    return f"ottla-o{number}"


def address(number: int) -> str:
    return f"{NETWORK}.{number}"


class NamespacedBroker(BrokerProcess):
    def __init__(self, number: int, data_dir: Path, overrides: dict[str, str]) -> None:
        super().__init__(data_dir, overrides=overrides, port=BROKER_PORT)
        self._number = number

    def command(self) -> list[str]:
        words = super().command()
        words[words.index("--listen") + 1] = f"{address(self._number)}:{BROKER_PORT}"
        words.append("--insecure")  # the namespaces have no other users
        return ["ip", "netns", "exec", namespace(self._number), *words]

    @property
    def bootstrap(self) -> str:
        return f"{address(self._number)}:{BROKER_PORT}"
