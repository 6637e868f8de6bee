"""Terminal output of the demo: steps with their times, progress bars and a summary.

If the output is not a terminal, steps are plain lines and there are no progress bars."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from ottla.cli.demo.verification import Check


class Screen:
    """Writer for the demo's output."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(highlight=False)
        self._began = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def title(self, text: str, picture: str) -> None:
        self.console.print(f"[bold]{text}[/bold]")
        self.console.print(f"[dim]{escape(picture)}[/dim]")

    def done(self, text: str) -> None:
        self._line("[green]✓[/green]", text)

    def note(self, text: str) -> None:
        self._line("[yellow]![/yellow]", text)

    def _line(self, mark: str, text: str) -> None:
        at = f"[dim]{self.elapsed_s:5.1f} s[/dim]"
        self.console.print(f"{at} {mark} {escape(text)}", soft_wrap=True)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show a spinner while the body runs, if the output is a terminal."""
        if not self.console.is_terminal:
            yield
            return
        with self.console.status(escape(text)):
            yield

    @contextmanager
    def bars(self, names: Sequence[str], total: int) -> Iterator[Bars]:
        progress = Progress(
            TextColumn("        {task.description}", justify="left"),
            BarColumn(),
            MofNCompleteColumn(),
            console=self.console,
            auto_refresh=False,
        )
        bars = Bars(progress, [progress.add_task(name, total=total) for name in names])
        if not self.console.is_terminal:
            yield bars
            return
        with Live(progress, console=self.console, refresh_per_second=8, transient=True):
            yield bars

    def summary(
        self, flow: Sequence[tuple[str, str]], checks: Sequence[Check], hints: Sequence[str]
    ) -> None:
        self.console.print()
        counted = Table(title="Records processed", title_justify="left", show_header=False)
        counted.add_column(style="dim")
        counted.add_column()
        for name, text in flow:
            counted.add_row(name, escape(text))
        self.console.print(counted)
        proof = Table(title="No losses, no duplicates", title_justify="left")
        for column, justify in (
            ("", "left"),
            ("expected", "right"),
            ("found", "right"),
            ("", "left"),
        ):
            proof.add_column(column, justify=justify)  # type: ignore[arg-type]
        for check in checks:
            mark = "[green]✓[/green]" if check.is_right else "[red]✗[/red]"
            proof.add_row(escape(check.what), f"{check.wanted:,}", f"{check.found:,}", mark)
        self.console.print(proof)
        for line in hints:
            self.console.print(escape(line), soft_wrap=True)


class Bars:
    """Progress bars, one for each stage of the pipeline."""

    def __init__(self, progress: Progress, tasks: Sequence[TaskID]) -> None:
        self._progress = progress
        self._tasks = tasks

    def show(self, *done: int) -> None:
        """Set the progress of each bar, in the order of the bars."""
        for task, completed in zip(self._tasks, done, strict=True):
            self._progress.update(task, completed=completed)
