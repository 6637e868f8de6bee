"""A pipeline from a file to a topic to another file, whose lines tests count one by one."""

from __future__ import annotations

from tests.connect.workers import SPARK_PATIENCE_S, WorkerProcess, wait_for


class FilePipeline:
    def __init__(self, worker: WorkerProcess, name: str) -> None:
        self.worker, self.name = worker, name
        self.source = worker.folder / f"{name}.in.txt"
        self.target = worker.folder / f"{name}.out.txt"
        self.written: list[str] = []
        self.connectors = f"{name}-source", f"{name}-sink"
        self.source.write_text("")
        self.create()

    def create(self) -> None:
        source, sink = self.connectors
        self.worker.put(source, "FileStreamSource", file=self.source, topic=self.name)
        self.worker.put(sink, "FileStreamSink", file=self.target, topics=self.name)

    def add(self, count: int) -> None:
        lines = [f"line {len(self.written) + n}" for n in range(count)]
        self.written += lines
        with self.source.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    def wait(self) -> None:
        """Wait until all lines are in the target; each must be there exactly once, in order."""
        size = self.source.stat().st_size

        def has_all() -> bool:
            return self.target.exists() and self.target.stat().st_size >= size

        wait_for(has_all, f"the lines of {self.name}", SPARK_PATIENCE_S)
        assert self.target.read_text().splitlines() == self.written

    def delete(self) -> None:
        for each in self.connectors:
            assert self.worker.ask("DELETE", f"/connectors/{each}")[0] == 204
