"""Tests of an application's files: checkpoints with their topology, the lock, and resets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ottla.streams as st
from ottla.base.errors import UserError
from ottla.streams.checkpoint import AppLock, LocalFiles, check_topology
from ottla.streams.internal_topics import internal_topics_of
from ottla.streams.reset import delete_files, files_of, sink_topics


def app(state_dir: Path, least: int = 5) -> st.App:
    made = st.App("shop", state_dir=state_dir)
    orders = made.stream("orders", value=st.Json("amount double"))
    orders.filter(lambda o: o.amount > least).to("big")
    return made


def check(made: st.App) -> None:
    check_topology(made.application(), made.sinks[0], LocalFiles())


def test_another_topology_is_refused_over_a_checkpoint_with_what_changed(tmp_path: Path) -> None:
    check(app(tmp_path))
    (tmp_path / "shop" / "big").mkdir()
    check(app(tmp_path))
    with pytest.raises(st.TopologyError, match=r"app\.reset\(\)") as refusal:
        check(app(tmp_path, least=6))
    assert str(refusal.value).endswith(
        "--- before\n+++ now\n- 2  filter  amount > 5\n+ 2  filter  amount > 6"
    )


def test_without_a_checkpoint_any_topology_will_do(tmp_path: Path) -> None:
    check(app(tmp_path))
    check(app(tmp_path, least=6))


def test_an_application_runs_once_at_a_time(tmp_path: Path) -> None:
    lock = AppLock(str(tmp_path), "shop")
    lock.acquire()
    with pytest.raises(UserError, match="is already running"):
        AppLock(str(tmp_path), "shop").acquire()
    AppLock(str(tmp_path), "other").acquire()
    lock.release()
    AppLock(str(tmp_path), "shop").acquire()


def test_a_process_that_dies_frees_its_lock(tmp_path: Path) -> None:
    program = (
        "import os, sys; from ottla.streams.checkpoint import AppLock; "
        "AppLock(sys.argv[1], 'shop').acquire(); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, timeout=60)
    AppLock(str(tmp_path), "shop").acquire()


def test_a_reset_deletes_everything_but_the_lock(tmp_path: Path) -> None:
    lock = AppLock(str(tmp_path), "shop")
    lock.acquire()
    home = tmp_path / "shop"
    (home / "big" / "state").mkdir(parents=True)
    (home / "big" / "state" / "0").write_text("x")
    for name in ("big.topology", "big.store", "big.store-wal"):
        (home / name).write_text("x")
    assert sink_topics(str(tmp_path), "shop", LocalFiles()) == ["big"]
    delete_files(str(tmp_path), "shop", LocalFiles())
    assert files_of(str(tmp_path), "shop", LocalFiles()) == []
    assert [each.name for each in home.iterdir()] == ["~lock"]


def test_internal_topics_are_known_by_their_names() -> None:
    topics = [
        "shop-totals-changelog", "shop-by-item-repartition", "shop-orders", "shopper-x-changelog",
        "orders", "shop-changelog", "shop-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000012-topic",
    ]  # fmt: skip
    assert internal_topics_of("shop", topics) == [
        "shop-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000012-topic",
        "shop-by-item-repartition",
        "shop-changelog",
        "shop-totals-changelog",
    ]
    ours = ["shop-items-changes", "shop-a-b-subscriptions"]
    assert internal_topics_of("shop", ours) == []
    assert internal_topics_of("shop", ours, written=[*ours, "orders"]) == sorted(ours)
    assert internal_topics_of("shop", topics, excluded=topics[:2]) == [
        "shop-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000012-topic",
        "shop-changelog",
    ]
