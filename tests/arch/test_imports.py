"""Checks that an import loads only the modules that it needs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import ottla

HEAVY = {"numba", "numpy", "pandas", "pyarrow", "pyspark", "llvmlite"}


def modules_after(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after a statement."""
    script = f"import sys, json\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    # -I and -S prevent imports that site-packages and the environment would cause, so the script
    # sets the search path itself.
    path = f"import sys; sys.path[:] = {sys.path!r}\n"
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-c", path + script],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    return set(json.loads(result.stdout))


def roots(modules: set[str]) -> set[str]:
    return {module.partition(".")[0] for module in modules}


def test_import_ottla_loads_nothing_else() -> None:
    nothing = modules_after("pass")
    assert modules_after("import ottla") - nothing == {"ottla"}


def test_help_loads_click_and_the_standard_library_only() -> None:
    loaded = roots(modules_after("import ottla.cli.main"))
    assert loaded - set(sys.stdlib_module_names) - {"__main__"} <= {"click", "ottla"}
    assert "asyncio" not in loaded


def test_starting_a_broker_loads_no_data_frame_library() -> None:
    loaded = roots(modules_after("import ottla.cli.start, ottla.broker.main"))
    assert not loaded & HEAVY
    assert not loaded & {"click", "rich"}


def test_clients_and_brokers_load_no_types_of_messages() -> None:
    clients = "ottla.client.admin, ottla.client.consumer, ottla.client.producer"
    loaded = modules_after(f"import ottla.broker.main, {clients}")
    assert "ottla.wire.rpc" in loaded
    assert not {module for module in loaded if module.startswith("ottla.wire.messages")}


def test_type_checkers_see_the_public_names() -> None:
    stub = ast.parse((Path(ottla.__file__).with_suffix(".pyi")).read_text())
    declared = {
        alias.name: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert declared == ottla._MODULES
    assert all(getattr(ottla, name) is not None for name in declared)


def test_writing_a_connector_loads_no_data_frame_library() -> None:
    statement = "from ottla.connect import ConnectRecord, Definition, Polled, SourceConnector, key"
    assert not roots(modules_after(statement)) & HEAVY
