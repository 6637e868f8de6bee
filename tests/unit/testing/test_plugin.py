"""Tests of the pytest plugin, run in a nested pytest."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.arch.test_imports import modules_after

# Import it first, because a nested pytest finally unloads the modules that it imported itself.
import ottla.testing.broker_thread  # noqa: F401

pytest_plugins = ["pytester"]

PLUGIN = "ottla.testing.plugin"


@contextmanager
def garbage_at_rest() -> Iterator[None]:
    """Collect the garbage of earlier tests and disable the collector meanwhile.

    pytest parses source code to show a failure. If a finalizer warns during this, pytest parses
    again to format the warning, and CPython 3.11 raises SystemError for the nested call."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.fixture
def run(pytester: pytest.Pytester, request: pytest.FixtureRequest):
    """Return a function that runs a test file with the plugin, loading it if necessary."""
    loaded = request.config.pluginmanager.hasplugin("ottla")

    def run(source: str, *options: str, apart: bool = False) -> pytest.RunResult:
        """Run a test file; with `apart`, in a separate process."""
        pytester.makepyfile(source)
        plugin = () if loaded else ("-p", PLUGIN)
        start = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
        with garbage_at_rest():
            return start(*plugin, "-p", "no:cacheprovider", *options)

    return run


def test_a_test_gets_a_broker_of_its_own(run) -> None:
    source = """
        import socket

        def test_first(ottla_broker):
            ottla_broker.create_topic("orders", 3)
            assert ottla_broker.topics() == ["orders"]
            socket.create_connection(("127.0.0.1", ottla_broker.port), 5).close()

        def test_second(ottla_broker):
            assert ottla_broker.topics() == []
    """
    run(source).assert_outcomes(passed=2)


def test_a_session_broker_is_shared_and_no_other(run) -> None:
    source = """
        ports = set()

        def test_first(ottla_session_broker, ottla_broker):
            ottla_session_broker.create_topic("orders")
            ports.update((ottla_session_broker.port, ottla_broker.port))

        def test_second(ottla_session_broker):
            assert ottla_session_broker.topics() == ["orders"]
            assert ottla_session_broker.port in ports
            assert len(ports) == 2
    """
    run(source).assert_outcomes(passed=2)


def test_marks_set_properties_and_the_nearest_wins(run) -> None:
    source = """
        import pytest

        pytestmark = pytest.mark.ottla(overrides={"num.partitions": 3, "message.max.bytes": 5000})

        def config(broker):
            return broker.call(lambda: broker.broker.config)

        @pytest.mark.ottla(overrides={"num.partitions": 7, "auto.create.topics.enable": False})
        def test_marked(ottla_broker):
            found = config(ottla_broker)
            assert (found.num_partitions, found.message_max_bytes) == (7, 5000)
            assert found.auto_create_topics_enable is False

        def test_of_the_module(ottla_broker):
            assert config(ottla_broker).num_partitions == 3
    """
    run(source, "--strict-markers").assert_outcomes(passed=2)


def test_a_wrong_mark_is_reported_in_a_sentence(run) -> None:
    source = """
        import pytest

        @pytest.mark.ottla({"num.partitions": 3})
        def test_it(ottla_broker):
            pass
    """
    result = run(source)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*Write @pytest.mark.ottla(overrides={'property.name': value})*"])


def test_a_property_that_the_broker_refuses_is_reported_in_a_sentence(run) -> None:
    source = """
        import pytest

        @pytest.mark.ottla(overrides={"num.partitions": "many"})
        def test_it(ottla_broker):
            pass
    """
    result = run(source)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*BrokerFailed: the broker did not start: *num.partitions*"])


def test_a_factory_starts_several_and_stops_them(run) -> None:
    source = """
        import socket
        import pytest

        ports = []

        def test_two(ottla_broker_factory, tmp_path):
            first = ottla_broker_factory(overrides={"num.partitions": 2})
            second = ottla_broker_factory(tmp_path / "data")
            second.create_topic("kept")
            ports.extend((first.port, second.port))
            assert len(set(ports)) == 2
            assert (tmp_path / "data" / "kept-0").is_dir()

        def test_they_are_gone():
            for port in ports:
                with pytest.raises(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port), 5)
    """
    run(source).assert_outcomes(passed=2)


def test_what_the_broker_logs_is_in_the_report_of_a_failed_test(run) -> None:
    source = """
        def test_it(ottla_broker):
            assert False
    """
    result = run(source, "--log-level=INFO")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*listening on PLAINTEXT://127.0.0.1:*"])


def test_the_broker_is_imported_before_the_first_test_and_only_if_one_asks(run) -> None:
    source = """
        import sys

        def test_it(LOADED):
            assert ("ottla.broker.broker" in sys.modules) is EXPECTED
    """
    asking = source.replace("LOADED", "ottla_broker_factory").replace("EXPECTED", "True")
    run(asking, apart=True).assert_outcomes(passed=1)
    not_asking = source.replace("LOADED", "").replace("EXPECTED", "False")
    run(not_asking, apart=True).assert_outcomes(passed=1)


def test_loading_the_plugin_loads_nothing_but_pytest() -> None:
    before = modules_after("import pytest, contextlib, typing, collections.abc")
    loaded = modules_after(f"import pytest, {PLUGIN}") - before
    light = {"ottla", "ottla.base", "ottla.base.lazy_names"}
    assert loaded == {*light, "ottla.testing", PLUGIN}


def test_help_names_the_fixtures(run) -> None:
    result = run("", "--fixtures")
    result.stdout.fnmatch_lines(["ottla_broker *", "*Provide a broker for a single test.*"])


def test_the_modules_of_ottla_are_imported_as_they_are(run) -> None:
    """pytest must not rewrite their assertions, perhaps in two threads at once."""
    source = """
        def test_import():
            import ottla.connect.connectors.jdbc.sink as module
            assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    """
    run(source, apart=True).assert_outcomes(passed=1)
