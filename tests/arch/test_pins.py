"""Checks that `make` installs pinned versions of every dependency, for every supported Python."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
REFRESH = "run `make lock`"


def environment(python: str) -> dict[str, str]:
    return {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}


def declared() -> Iterator[Requirement]:
    """Yield every requirement of pyproject.toml: of Ottla itself, its extras and the groups."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    lists = [
        project["project"]["dependencies"],
        *project["project"]["optional-dependencies"].values(),
        *project["dependency-groups"].values(),
    ]
    for requirement in map(Requirement, (line for lines in lists for line in lines)):
        if requirement.name != "ottla":
            yield requirement


def pins(python: str) -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = [Requirement(line) for line in lines if re.match(r"[A-Za-z]", line)]
    return {
        canonicalize_name(each.name): str(each.specifier).removeprefix("==")
        for each in pinned
        if each.marker is None or each.marker.evaluate(environment(python))
    }


@pytest.mark.parametrize("python", PYTHONS)
def test_every_dependency_is_pinned_to_a_version_that_pyproject_allows(python: str) -> None:
    pinned = pins(python)
    for requirement in declared():
        if requirement.marker is not None and not requirement.marker.evaluate(environment(python)):
            continue
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not pinned: {REFRESH}"
        assert requirement.specifier.contains(version, prereleases=True), (
            f"{requirement} does not allow the pinned {version}: {REFRESH}"
        )


def test_tools_that_judge_the_code_are_pinned_exactly_in_pyproject() -> None:
    exact = {
        each.name for each in declared() if any(one.operator == "==" for one in each.specifier)
    }
    assert {"import-linter", "mypy", "ruff"} <= exact


def test_pins_name_no_host_and_no_folder() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    assert "--" not in text


def test_make_and_the_package_state_the_same_python_versions() -> None:
    makefile = (ROOT / "Makefile").read_text()
    supported = re.search(r"^SUPPORTED := (.*)$", makefile, re.MULTILINE)
    assert supported is not None
    assert tuple(supported[1].split()) == PYTHONS
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={PYTHONS[0]}"
    classifiers = [each.rpartition(" :: ")[2] for each in project["classifiers"]]
    assert set(PYTHONS) <= set(classifiers)
