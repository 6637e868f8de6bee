"""Connect on a cluster of `ottla secure init`, where users may do only what ACLs allow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.connect.file_pipeline import FilePipeline
from tests.connect.workers import WorkerProcess
from tests.integration.cli.test_secure import Home

LINES = 200
OF_CONNECT = (
    *("--produce", "connect-*", "--consume", "connect-*"),
    *("--group", "connect-*", "--transactional-id", "connect-*"),
)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("home"))
    home.init("--data-dir", str(home.path / "data"))
    try:
        home.start()
        home.succeed("secure", "user", "add", "connect", *OF_CONNECT)
        yield home
    finally:
        home.stop()


@pytest.mark.parametrize("user", [None, "connect"])
@pytest.mark.parametrize("kind", ["standalone", "distributed"])
def test_connectors_copy_lines(closed: Home, tmp_path: Path, user: str | None, kind: str) -> None:
    name = f"connect-{user or 'admin'}-{kind}"
    folder = tmp_path / name
    folder.mkdir()
    worker = WorkerProcess(
        kind, folder, f"127.0.0.1:{closed.port}", {**properties(name), **profile(closed, user)}
    )
    worker.start()
    try:
        pipeline = FilePipeline(worker, name)
        pipeline.add(LINES)
        pipeline.wait()
        assert worker.stop() == 0
    finally:
        worker.kill()
    assert "AUTHORIZATION_FAILED" not in worker.log.read_text()


def properties(name: str) -> dict[str, str]:
    """Return the internal topics and the group of a worker, with names that the ACLs allow."""
    internal = {
        f"{each}.storage.topic": f"{name}-{each}" for each in ("config", "offset", "status")
    }
    return {**internal, "group.id": name}


def profile(closed: Home, user: str | None) -> dict[str, str]:
    """Return the profile of a user in a file, because its values have several lines."""
    found = closed.profile(user)
    del found["bootstrap.servers"]
    return {key: value.replace("\n", "\\n") for key, value in found.items()}
