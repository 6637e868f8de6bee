"""Cache of the classes that Spark loads; saves a third of the JVM's CPU time until the first row.

    <cache directory>/KEY.cache    the cache, 50 to 200 MB
    <cache directory>/KEY.failed   reason why no cache could be made for this key
    <cache directory>/lock         locked while a cache is made

The directory is `ottla/java` in `XDG_CACHE_HOME` or `~/.cache`. The key is a hash of the Java
runtime and of Spark's jars, so an update of either makes a new cache. Beyond that, the JVM itself
compares the cache with its options and its class path, and starts without it if they differ; the
options here keep it from printing why. A cache holds code, so the directory is the user's alone,
and a file that others can write is not used.

The first session that finds no cache starts a shell that sleeps until the program ends, however it
ends, and then makes one at the lowest priority. So a program never competes with it. Making one
takes two steps: a training run that records the classes (`java_cache_training`), and a JVM that
writes them. From Java 25 on, it is an AOT cache (JEP 483, JEP 515), which also holds profiles for
the compiler; before, it is an archive of class data (JEP 310).

`OTTLA_JAVA_CACHE=off` turns all of this off. To make the cache at once, for example in a container
image: `python -m ottla.spark.java_cache`."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ottla.base.errors import UserError
from ottla.base.java import java_feature_version, java_home

VARIABLE = "OTTLA_JAVA_CACHE"
SUBMIT_OPTIONS = "SPARK_SUBMIT_OPTS"
"""Variable with options of the JVM that Spark's launcher starts, besides those of settings."""
MIN_JAVA = 17
FIRST_JAVA_WITH_AOT = 25
KEPT_CACHES = 2
"""Number of caches that are kept: those that were used last."""
CREATE_TIMEOUT_S = 600.0
TRAINING_TIMEOUT_S = 900.0
REPORT_CHARS = 2_000
_KEY_CHARS = 24


@dataclass(frozen=True)
class JavaCache:
    """The cache for a Java runtime and an installation of Spark."""

    home: Path
    """Home of the Java runtime."""
    java: int
    """Feature version of the Java runtime."""
    path: Path

    @property
    def failed(self) -> Path:
        return self.path.with_suffix(".failed")

    def options(self) -> list[str]:
        """Return the JVM options that use the cache."""
        if self.java >= FIRST_JAVA_WITH_AOT:
            quiet = ["-Xlog:aot*=off", "-Xlog:cds*=off"]
            return [f"-XX:AOTCache={self.path}", "-XX:AOTMode=auto", *quiet]
        return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto", "-Xlog:cds*=off"]

    def recording_options(self, recorded: Path) -> list[str]:
        """Return the JVM options that record the classes of a run."""
        if self.java >= FIRST_JAVA_WITH_AOT:
            return ["-XX:AOTMode=record", f"-XX:AOTConfiguration={recorded}", "-Xlog:aot*=off"]
        return [f"-XX:DumpLoadedClassList={recorded}", "-Xshare:off"]

    def create_options(self, recorded: Path, made: Path) -> list[str]:
        """Return the JVM options that write the cache from what was recorded."""
        if self.java >= FIRST_JAVA_WITH_AOT:
            named = [f"-XX:AOTConfiguration={recorded}", f"-XX:AOTCache={made}"]
            return ["-XX:AOTMode=create", *named, "-Xlog:aot*=off", "-Xlog:cds*=off"]
        named = [f"-XX:SharedClassListFile={recorded}", f"-XX:SharedArchiveFile={made}"]
        return ["-Xshare:dump", *named, "-Xlog:cds*=off"]


# ------------------------------------------------------------------------------------ the session


def is_enabled(environment: Mapping[str, str] = os.environ) -> bool:
    return environment.get(VARIABLE, "").strip().lower() not in ("off", "false", "0", "no")


@contextmanager
def options_for_session() -> Iterator[None]:
    """Let the JVM that Spark starts in this block use the cache, or have one made afterwards."""
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # the JVM is running already
    cache = find_cache() if is_enabled() and not is_submitted else None
    if cache is None:
        yield
        return
    before = os.environ.get(SUBMIT_OPTIONS)
    if is_usable(cache.path):
        os.environ[SUBMIT_OPTIONS] = " ".join(filter(None, (before, *cache.options())))
        with suppress(OSError):
            os.utime(cache.path)  # `remove_old` keeps what was used last
    elif not cache.failed.exists():
        make_after_this_program(cache)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(SUBMIT_OPTIONS, None)
        else:
            os.environ[SUBMIT_OPTIONS] = before


def find_cache() -> JavaCache | None:
    """Return the cache for the Java runtime and the Spark of this process.

    None if Java cannot have one, or if its path does not fit into an option.
    """
    spark = importlib.util.find_spec("pyspark")
    if spark is None or spark.origin is None:
        return None
    jars = Path(os.environ.get("SPARK_HOME") or Path(spark.origin).parent) / "jars"
    home = Path(os.environ["JAVA_HOME"]) if "JAVA_HOME" in os.environ else java_home()
    home = (home / "lib").resolve().parent  # `java_runtime` may have made a substitute
    java = java_feature_version(home)
    if java is None or java < MIN_JAVA:
        return None
    directory = cache_directory()
    if directory is None:
        return None
    return JavaCache(home, java, directory / f"{key_of(home, jars)}.cache")


def cache_directory() -> Path | None:
    """Return the directory of the caches, or None if an option cannot name it."""
    given = os.environ.get("XDG_CACHE_HOME")
    directory = (Path(given) if given else Path.home() / ".cache") / "ottla" / "java"
    # Spark splits the options at white space and quotes.
    return directory if re.fullmatch(r"[\w./@%+=:,~-]+", str(directory)) else None


def key_of(home: Path, jars: Path) -> str:
    """Return a hash of everything that a cache depends on."""
    files = [home / "release", home / "lib" / "modules", home / "lib" / "server" / "libjvm.so"]
    with suppress(OSError):
        files += sorted(jars.iterdir())
    described = []
    for file in files:
        with suppress(OSError):
            found = file.stat()
            described.append(f"{file} {found.st_size} {found.st_mtime_ns}")
    return hashlib.sha256("\n".join(described).encode()).hexdigest()[:_KEY_CHARS]


def is_usable(path: Path) -> bool:
    """Return whether a file exists that only this user can have written."""
    try:
        found, directory = path.lstat(), path.parent.stat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and all(
        each.st_uid == os.getuid() and not each.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        for each in (found, directory)
    )


# ------------------------------------------------------------------------------------- the making

_WAIT_THEN_RUN = 'read -r nothing; exec nice -n 19 "$@" >/dev/null 2>&1'
_waiting: subprocess.Popen[bytes] | None = None


def make_after_this_program(cache: JavaCache) -> None:
    """Start a shell that makes the cache once this process has ended.

    The shell reads from a pipe that this process never writes to, and that the kernel closes."""
    global _waiting
    if _waiting is not None:
        return
    command = [sys.executable, "-m", "ottla.spark.java_cache"]
    with suppress(OSError):  # the program works without a cache
        _waiting = subprocess.Popen(
            ["/bin/sh", "-c", _WAIT_THEN_RUN, "sh", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_environment(cache),
            cwd="/",
            start_new_session=True,  # not stopped together with the program
        )


def _environment(cache: JavaCache) -> dict[str, str]:
    """Return the environment of the training, without what this program has set for its Spark."""
    prefixes = ("PYSPARK_", "SPARK_")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(prefixes) or name in ("SPARK_HOME", "SPARK_CONF_DIR")
    }
    return {**kept, "JAVA_HOME": str(cache.home)}


@contextmanager
def _only_maker(directory: Path) -> Iterator[bool]:
    """Take the lock, and yield whether it was free."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True


def make(cache: JavaCache) -> bool:
    """Make a cache, and remove old ones.

    Returns:
        False if another process is making one.

    Raises:
        UserError: Java could not make the cache; the reason is kept in the directory.
    """
    with _only_maker(cache.path.parent) as is_free:
        if not is_free:
            return False
        if not is_usable(cache.path):
            with tempfile.TemporaryDirectory(prefix="new-", dir=cache.path.parent) as folder:
                try:
                    _make(cache, Path(folder))
                except UserError as error:
                    cache.failed.write_text(f"{error}\n")
                    raise
        cache.failed.unlink(missing_ok=True)
        remove_old(cache.path.parent)
    return True


def _make(cache: JavaCache, folder: Path) -> None:
    recorded, made, described = folder / "recorded", folder / "cache", folder / "command"
    environment = _environment(cache) | {
        SUBMIT_OPTIONS: " ".join(cache.recording_options(recorded)),
        VARIABLE: "off",
    }
    training = [sys.executable, "-m", "ottla.spark.java_cache_training", str(described)]
    _run(training, environment, TRAINING_TIMEOUT_S)
    if not recorded.exists() or not described.exists():
        raise UserError(f"Java {cache.java} recorded no classes.")
    class_path, *options = described.read_text().splitlines()
    command = [str(cache.home / "bin" / "java"), *create_options_of(options)]
    command += cache.create_options(recorded, made)
    _run([*command, "-cp", class_path, "-version"], environment, CREATE_TIMEOUT_S)
    if not made.exists():
        raise UserError(f"Java {cache.java} made no cache.")
    made.chmod(0o600)
    made.replace(cache.path)


def create_options_of(options: Sequence[str]) -> list[str]:
    """Return those options of the training that also decide how classes are loaded."""
    return [each for each in options if each.startswith(("--add-", "--enable-", "-XX:+Ignore"))]


def _run(command: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> None:
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{command[0]} did not end within {timeout_s:g} s.") from None
    if done.returncode != 0:
        report = done.stdout.decode(errors="replace")[-REPORT_CHARS:]
        raise UserError(f"{command[0]} ended with code {done.returncode}: {report}")


def remove_old(directory: Path) -> None:
    """Remove all caches but those used last, and what interrupted runs have left."""
    import shutil

    for folder in directory.glob("new-*"):
        shutil.rmtree(folder, ignore_errors=True)
    for pattern in ("*.cache", "*.failed"):
        found = sorted(directory.glob(pattern), key=lambda each: -each.stat().st_mtime_ns)
        for each in found[KEPT_CACHES:]:
            each.unlink(missing_ok=True)


def main() -> int:
    try:
        cache = find_cache()
        if cache is None:
            raise UserError("The installed Java or its location does not allow a cache.")
        is_made = make(cache)
    except UserError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    size_mb = cache.path.stat().st_size / 1e6 if is_made else 0
    text = f"{cache.path}: {size_mb:.0f} MB" if is_made else "Another process is making the cache."
    sys.stdout.write(f"{text}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
