"""Checks that each layer imports only the layers it may know."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "ottla"
WITHOUT_CONTRACT = {"testing"}
"""Packages that may import anything; the other layers' contracts forbid importing them."""
WITH_A_FACE = {"connect", "spark", "streams", "testing"}
"""Packages whose `__init__` exports names for users, such as `ottla.spark.session()`."""


def packages() -> list[str]:
    return sorted(init.parent.name for init in SOURCE.glob("*/__init__.py"))


def contracts() -> list[dict[str, list[str]]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[dict[str, list[str]]] = settings["tool"]["importlinter"]["contracts"]
    return found


def imported_roots(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
    return found


def test_the_import_contracts_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "src"))
    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0


@pytest.mark.parametrize("package", [name for name in packages() if name not in WITHOUT_CONTRACT])
def test_every_package_is_held_to_a_contract_that_forbids_testing(package: str) -> None:
    held = [each for each in contracts() if each["source_modules"] == [f"ottla.{package}.**"]]
    assert any("ottla.testing.**" in each["forbidden_modules"] for each in held)


@pytest.mark.parametrize("file", sorted(SOURCE.glob("base/**/*.py")), ids=lambda file: file.stem)
def test_base_imports_the_standard_library_only(file: Path) -> None:
    assert imported_roots(file) <= {*sys.stdlib_module_names, "ottla"}


@pytest.mark.parametrize("package", [name for name in packages() if name not in WITH_A_FACE])
def test_a_packages_init_holds_no_code(package: str) -> None:
    """The pattern `.**` of the import contracts does not cover a package's `__init__`."""
    tree = ast.parse((SOURCE / package / "__init__.py").read_text())
    assert [type(node) for node in tree.body] in ([], [ast.Expr])


@pytest.mark.parametrize("package", sorted(WITH_A_FACE))
def test_a_packages_face_knows_base_and_its_own_package_only(package: str) -> None:
    tree = ast.parse((SOURCE / package / "__init__.py").read_text())
    found = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in found if name.partition(".")[0] not in sys.stdlib_module_names}
    assert all(name.startswith((f"ottla.{package}.", "ottla.base.")) for name in ours)
