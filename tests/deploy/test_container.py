"""The container file, checked without a container engine: its steps run and name existing files."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.deploy.files import BROKER_OPTIONS, DEPLOY, PROJECT, ROOT, needs_check

from ottla.base.config.broker import BrokerConfig
from ottla.base.config.properties import load_properties

FILE = DEPLOY / "container" / "Containerfile"
INSTALL_TIMEOUT_S = 600


class Step(NamedTuple):
    word: str
    rest: str


def stages() -> list[list[Step]]:
    """Return the steps of each stage, beginning with its FROM."""
    found: list[list[Step]] = []
    for line in FILE.read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        word, _, rest = line.partition(" ")
        assert re.fullmatch("[A-Z]+", word), line
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append(Step(word, rest))
    return found


def of(stage: list[Step], word: str) -> list[str]:
    return [step.rest for step in stage if step.word == word]


def test_one_stage_builds_and_the_other_has_neither_compiler_nor_root() -> None:
    build, final = stages()
    assert of(build, "FROM") == ["${PYTHON} AS build"]
    assert of(final, "FROM") == ["${PYTHON}"]
    assert not any("pip" in each or "apt" in each for each in of(final, "RUN"))
    (user,) = of(final, "USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    words = [step.word for step in final]
    assert words.index("USER") > max(i for i, word in enumerate(words) if word in ("RUN", "COPY"))
    assert f"--uid {user.partition(':')[0]}" in of(final, "RUN")[0]


def test_the_base_image_has_a_python_that_ottla_supports() -> None:
    (image,) = re.findall(r"^ARG PYTHON=python:3\.(\d+)-slim$", FILE.read_text(), re.MULTILINE)
    (oldest,) = re.findall(r">=3\.(\d+)", PROJECT["requires-python"])
    assert int(image) >= int(oldest)


def test_what_is_copied_exists_and_is_sent_to_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    sent = [each[1:] for each in ignored if each.startswith("!")]
    build, final = stages()
    copied = [each.split()[:-1] for each in of(build, "COPY") + of(final, "COPY")]
    sources = [name for names in copied if not names[0].startswith("--from") for name in names]
    assert sources
    for name in sources:
        assert (ROOT / name).exists(), name
        assert any(fnmatch(name, each) or name.startswith(f"{each}/") for each in sent), name


def test_the_command_starts_a_broker_on_the_port_and_volume_of_the_image() -> None:
    _, final = stages()
    (entry,), (command,) = (
        list(map(json.loads, of(final, word))) for word in ("ENTRYPOINT", "CMD")
    )
    assert entry == ["ottla"]
    assert command[:2] == ["broker", "--config"]
    (copied,) = (each.split() for each in of(final, "COPY") if each.endswith(command[2]))
    given = load_properties(str(ROOT / copied[0]))
    config = BrokerConfig.from_properties(given)
    assert [str(each.port) for each in config.listeners] == of(final, "EXPOSE")
    assert config.log_dirs == of(final, "VOLUME")
    assert of(final, "EXPOSE")[0] in of(final, "HEALTHCHECK")[0]


@needs_check
def test_the_command_of_the_comment_has_options_that_exist() -> None:
    text = re.sub(r"\\\n# +", "", FILE.read_text())
    (line,) = re.findall(r"^# +podman run .* ottla +(broker .*)$", text, re.MULTILINE)
    assert {word for word in line.split() if word.startswith("--")} <= BROKER_OPTIONS


def test_the_health_check_fails_without_a_broker() -> None:
    _, final = stages()
    check = json.loads(of(final, "HEALTHCHECK")[0].partition("CMD ")[2])
    assert check[0] == "python"
    program = check[2].replace("9092", "1")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert ended.returncode != 0


@pytest.mark.chaos
@pytest.mark.timeout(INSTALL_TIMEOUT_S)
@pytest.mark.parametrize("extras", ["", "avro"])
def test_the_build_steps_install_an_ottla_that_runs(tmp_path: Path, extras: str) -> None:
    """Runs the steps of the build stage, with another folder for /opt/ottla."""
    home = tmp_path / "ottla"
    for step in of(stages()[0], "RUN"):
        command = step.replace("/opt/ottla", str(home)).replace("python ", f"{sys.executable} ")
        subprocess.run(
            command, shell=True, cwd=ROOT, check=True, timeout=INSTALL_TIMEOUT_S,
            env={"EXTRAS": extras, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )  # fmt: skip
    output = subprocess.run(
        [home / "bin" / "ottla", "connect", "plugins"], check=True, capture_output=True, text=True
    ).stdout
    assert "FileStreamSource" in output
    has_avro = subprocess.run([home / "bin" / "python", "-c", "import fastavro"], check=False)
    assert (has_avro.returncode == 0) is (extras == "avro")
