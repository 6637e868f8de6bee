"""Pytest plugin: a real broker as a fixture, in the test's own process.

    def test_orders_are_kept(ottla_broker):
        producer = Producer({"bootstrap.servers": ottla_broker.bootstrap})

| fixture | value |
|---|---|
| `ottla_broker` | a broker for this test alone (`ottla.testing.broker_thread.BrokerThread`) |
| `ottla_session_broker` | one broker for the whole run: faster still, but shared |
| `ottla_broker_factory` | a function that starts brokers, each with its own overrides |

`@pytest.mark.ottla(overrides={"auto.create.topics.enable": False})` sets broker properties for the
`ottla_broker` of a test, a class or a module (`pytestmark`). For each property, the closest mark
takes precedence.

pytest loads this module in every project where Ottla is installed, so it imports nothing until a
test that is about to run uses one of the fixtures. The broker is then imported between collection
and the first test, so that no test's duration includes the import.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing.broker_thread import BrokerThread

MARK = "ottla"
FIXTURES = frozenset({"ottla_broker", "ottla_session_broker", "ottla_broker_factory"})


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", f"{MARK}(overrides): broker properties for the `ottla_broker` fixture"
    )
    _disable_assertion_rewriting(config)


def _disable_assertion_rewriting(config: pytest.Config) -> None:
    """Exclude Ottla from pytest's assertion rewriting.

    pytest treats every module of a package with a plugin as a test and parses it again. Brokers
    import some modules in threads, and CPython 3.11 cannot parse in two threads at once.
    """
    hook = getattr(config.pluginmanager, "rewrite_hook", None)
    getattr(hook, "_must_rewrite", set()).discard("ottla")


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.config.option.collectonly:
        return
    if any(not FIXTURES.isdisjoint(getattr(item, "fixturenames", ())) for item in session.items):
        import ottla.testing.broker_thread  # noqa: F401


@pytest.fixture
def ottla_broker(request: pytest.FixtureRequest) -> Iterator[BrokerThread]:
    """Provide a broker for a single test.

    Args:
        request: The request of pytest, for the properties in `@pytest.mark.ottla`.
    """
    from ottla.testing.broker_thread import BrokerThread

    with BrokerThread(overrides=_marked_overrides(request.node)) as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_session_broker() -> Iterator[BrokerThread]:
    """Provide one broker for all tests, which use different topics and groups."""
    from ottla.testing.broker_thread import BrokerThread

    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def ottla_broker_factory() -> Iterator[Callable[..., BrokerThread]]:
    """Provide a function that starts brokers: `ottla_broker_factory(overrides={...})`.

    Its argument `data_dir` keeps the data in a directory of the test. All brokers are stopped when
    the test ends.
    """
    from ottla.testing.broker_thread import BrokerThread

    with ExitStack() as brokers:
        yield lambda data_dir=None, *, overrides=None: brokers.enter_context(
            BrokerThread(data_dir, overrides=overrides)
        )


def _marked_overrides(item: pytest.Item) -> dict[str, object]:
    overrides: dict[str, object] = {}
    for mark in reversed(list(item.iter_markers(MARK))):
        overrides.update(_overrides_of(mark))
    return overrides


def _overrides_of(mark: pytest.Mark) -> dict[str, object]:
    overrides: Any = mark.kwargs.get("overrides")
    if mark.args or set(mark.kwargs) != {"overrides"} or not isinstance(overrides, dict):
        raise pytest.UsageError(
            f"Write @pytest.mark.{MARK}(overrides={{'property.name': value}}), "
            f"not {MARK}(*{mark.args!r}, **{mark.kwargs!r})."
        )
    return overrides
