"""Python workers that Spark hung up on."""

from __future__ import annotations

from ottla.spark.quiet_daemon import HUNG_UP, quiet


def test_a_worker_whose_spark_hung_up_ends_without_a_word() -> None:
    def hung_up(sock: object, authenticated: bool) -> int:
        raise BrokenPipeError

    assert quiet(hung_up)(None, True) == HUNG_UP
    assert quiet(lambda sock, authenticated: 0)(None, True) == 0
