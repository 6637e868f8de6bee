"""Property names of librdkafka, which confluent-kafka's users write as dotted dictionary keys.

Most of librdkafka's properties have Kafka's names. `ALIASES` holds those that librdkafka documents
as other names of Kafka properties. `REMEDIES` holds those that exist only in librdkafka; `remedy`
returns a sentence that says what to use instead."""

from __future__ import annotations

ALIASES = {
    "compression.codec": "compression.type",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.id": "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.secret": "sasl.oauthbearer.client.credentials.client.secret",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}

_LOGGING = "Ottla logs with Python's logging, under the logger 'ottla'"
_FUTURE = "use the future that send returns"
_RAISED = "errors are raised by the call that fails"
_VERSIONS = "Ottla always requests the broker's API versions"
_BUFFER = "set buffer.memory, in bytes"
_READ_AHEAD = "set fetch.max.bytes, which also bounds the bytes read ahead"

REMEDIES = {
    "api.version.fallback.ms": _VERSIONS,
    "api.version.request": _VERSIONS,
    "api.version.request.timeout.ms": _VERSIONS,
    "auto.commit.enable": "set enable.auto.commit",
    "batch.num.messages": "set batch.size, in bytes",
    "broker.version.fallback": _VERSIONS,
    "consume.callback.max.messages": "set max.poll.records",
    "debug": _LOGGING,
    "default.topic.config": "set topic properties together with the others",
    "delivery.report.only.error": _FUTURE,
    "dr.cb": _FUTURE,
    "dr.msg.cb": _FUTURE,
    "enable.auto.offset.store": (
        "set enable.auto.commit=false and commit the offsets of the records that you have "
        "processed with commit()"
    ),
    "enable.partition.eof": "compare position() with end_offsets()",
    "enable.sasl.oauthbearer.unsecure.jwt": "unsecured tokens are not supported",
    "enable.ssl.certificate.verification": (
        "set ssl.ca.location to the authority that signed the brokers' certificates"
    ),
    "error.cb": _RAISED,
    "fetch.error.backoff.ms": "set retry.backoff.ms",
    "log.cb": _LOGGING,
    "log.level": _LOGGING,
    "logger": _LOGGING,
    "message.max.bytes": "set max.request.size",
    "on.commit": "pass a callback to commit_async()",
    "on.delivery": _FUTURE,
    "queue.buffering.max.kbytes": _BUFFER,
    "queue.buffering.max.messages": _BUFFER,
    "queued.max.messages.kbytes": _READ_AHEAD,
    "queued.min.messages": _READ_AHEAD,
    "receive.message.max.bytes": "set fetch.max.bytes",
    "security.providers": "set the ssl and sasl properties",
    "socket.timeout.ms": "set request.timeout.ms",
    "statistics.interval.ms": "Ottla has no statistics callback, so leave it out",
    "stats.cb": "Ottla has no statistics callback, so leave it out",
    "throttle.cb": "Ottla always honours the broker's throttle time, so leave it out",
    "topic.metadata.refresh.interval.ms": "set metadata.max.age.ms",
}  # fmt: skip


def remedy(name: str, written: str) -> str | None:
    """Return advice on what to use instead of a property that only librdkafka has.

    Args:
        name: Name of the property, with dots.
        written: Name of the property as the user wrote it.

    Returns:
        One sentence, or None if librdkafka has no such property of its own.
    """
    instead = REMEDIES.get(name)
    if instead is None:
        return None
    return f"Ottla does not have the librdkafka property {written}: {instead}."
