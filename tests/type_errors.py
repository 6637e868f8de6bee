"""Comparison of mypy's errors in a snippet with those that its comments name."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def check_type_errors(snippet: str, directory: Path) -> None:
    """Check that mypy reports exactly the errors that comments such as `# error: call-arg` name.

    Args:
        snippet: The source.
        directory: A directory for the file.
    """
    file = directory / "snippet.py"
    file.write_text(snippet, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", file],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    errors = re.findall(r"snippet\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE)
    found = [(int(line), code) for line, code in errors]
    expected = [
        (number, line.partition("# error: ")[2])
        for number, line in enumerate(snippet.splitlines(), 1)
        if "# error: " in line
    ]
    assert found == expected, done.stdout + done.stderr
