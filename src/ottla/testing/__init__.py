"""Brokers and connector kits for tests, of Ottla itself and of programs that use it.

    BrokerThread     a broker in the test's own process; the pytest fixtures return one
    BrokerProcess    a broker in its own process, which can be killed
    EmbeddedBroker   a broker on the running event loop
    SourceKit, SinkKit, check_source, check_sink   run a connector without a cluster

`simulation` holds the simulated disk, clock, network and cluster of Ottla's own tests. No other
package of Ottla imports this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.base.lazy_names import lazy_names

if TYPE_CHECKING:
    from ottla.testing.broker import BrokerFailed, BrokerProcess, EmbeddedBroker
    from ottla.testing.broker_thread import BrokerThread
    from ottla.testing.connectors import SinkKit, SourceKit, check_sink, check_source

_MODULES = {
    "BrokerFailed": "ottla.testing.broker",
    "BrokerProcess": "ottla.testing.broker",
    "BrokerThread": "ottla.testing.broker_thread",
    "EmbeddedBroker": "ottla.testing.broker",
    "SinkKit": "ottla.testing.connectors",
    "SourceKit": "ottla.testing.connectors",
    "check_sink": "ottla.testing.connectors",
    "check_source": "ottla.testing.connectors",
}
__all__ = [
    "BrokerFailed", "BrokerProcess", "BrokerThread", "EmbeddedBroker",
    "SinkKit", "SourceKit", "check_sink", "check_source",
]  # fmt: skip

__getattr__ = lazy_names(__name__, _MODULES)
