"""The sweep over many worlds: its counts, and when it stops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.sim.cluster import sweep
from tests.sim.cluster.sweep import Outcome, main


def test_a_sweep_runs_whole_worlds_in_processes_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seeds", "2", "--faults", "1", "--jobs", "1"]) == 0
    *_, summary, verdict = capsys.readouterr().out.splitlines()
    assert summary.startswith("2 of 2 worlds")
    fewest = summary.partition("(at least ")[2].partition(" each")[0]
    assert int(fewest.replace(",", "")) >= 1_000
    assert verdict == "no violation"


def test_a_sweep_stops_at_the_first_violation_and_prints_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[int] = []

    def outcomes(seeds: range, faults: int, jobs: int) -> Iterator[Outcome]:
        for seed in seeds:
            begun.append(seed)
            yield Outcome(seed, 5_000, 30.0, False, "3: committed twice" if seed == 12 else "")

    monkeypatch.setattr(sweep, "outcomes", outcomes)
    assert main(["--first", "10", "--seeds", "100", "--faults", "7"]) == 1
    assert begun == [10, 11, 12]
    out = capsys.readouterr().out
    assert "2 of 100 worlds" in out
    assert "10,000 events" in out
    assert "3: committed twice" in out
    assert out.endswith("again: make sim SEED=12 FAULTS=7\n")


def test_a_sweep_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--seeds", "0"])
    assert ended.value.code == 2
    assert "--seeds and --jobs must be at least 1" in capsys.readouterr().err
