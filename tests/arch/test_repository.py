"""Checks that paths, make targets and versions named in the repository's own files exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
GUIDES = ("CONTRIBUTING.md", "docs/release.md", ".github/pull_request_template.md")
YAML = sorted(
    str(path.relative_to(ROOT))
    for path in [*(ROOT / ".github").rglob("*.yml"), ROOT / ".pre-commit-config.yaml"]
)


def load(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def test_paths_in_the_contributing_guide_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:src|tests|docs)/[\w./-]*)`", text)
    assert len(named) > 30
    assert [each for each in named if not (ROOT / each).exists()] == []
    linked = re.findall(r"\]\(([^):]+)\)", text)
    assert [each for each in linked if not (ROOT / each).exists()] == []


def test_paths_in_the_description_of_the_architecture_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`([\w/]+(?:\.(?:py|md|svg|toml)|/))`", text)
    assert len(named) > 90
    roots = (ROOT, ROOT / "src" / "ottla")
    assert [each for each in named if not any((root / each).exists() for root in roots)] == []


@pytest.mark.parametrize("guide", GUIDES)
def test_make_targets_in_guides_exist(guide: str) -> None:
    named = re.findall(r"make (?:[A-Z]+=\S+ )*([a-z-]+)", (ROOT / guide).read_text())
    code = [each for each in named if f"make {each}" in MAKEFILE or each in TARGETS]
    assert code == named


@pytest.mark.parametrize("name", YAML)
def test_yaml_can_be_read(name: str) -> None:
    assert load(name)


def test_the_workflow_runs_targets_of_make_on_supported_versions() -> None:
    jobs = load(".github/workflows/test.yml")["jobs"]
    steps = [step.get("run", "") for job in jobs.values() for step in job["steps"]]
    run = {each.split()[1] for each in steps if each.startswith("make ")}
    assert run == {"test", "docs"}
    supported = re.search(r"^SUPPORTED := (.*)$", MAKEFILE, re.MULTILINE)
    assert supported is not None
    assert set(jobs["test"]["strategy"]["matrix"]["python"]) <= set(supported[1].split())


def test_hooks_run_tools_that_setup_installs() -> None:
    (local,) = load(".pre-commit-config.yaml")["repos"]
    tools = {hook["entry"].split()[0] for hook in local["hooks"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {each.partition("==")[0] for each in project["optional-dependencies"]["dev"]}
    assert {each.removeprefix(".venv/bin/") for each in tools} <= pinned


def test_the_changelog_has_versions_with_dates_newest_first() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    form = re.compile(r"\[(\d+)\.(\d+)\.(\d+)\] - (Unreleased|\d{4}-\d\d-\d\d)")
    found = [form.fullmatch(each) for each in headings]
    assert all(found), headings
    versions = [tuple(map(int, each.groups()[:3])) for each in found if each]
    assert versions == sorted(versions, reverse=True)
    assert all(each and each[4] != "Unreleased" for each in found[1:])
    sections = set(re.findall(r"^### (.*)$", text, re.MULTILINE))
    allowed = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert sections <= allowed
