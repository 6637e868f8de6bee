"""Recognition of the other brokers of a cluster.

Being a broker is a property of a connection, never of a name in a request. A connection is a peer
if another broker opened it, which is decided by the listener that accepted it and by its principal:

    inter-broker listener   a connection to it is a peer
    authenticates clients   if its principal is that of this broker, or one of `super.users`
    authenticates nobody    always: nothing distinguishes brokers from clients

Connections to other listeners are never peers. As in Kafka without an authorizer, a listener
without authentication protects brokers only as far as the network keeps clients away from it.

With an authorizer, a connection to the inter-broker listener is a peer if its principal has the
permission CLUSTER_ACTION, which super users have.
"""

from __future__ import annotations

from dataclasses import dataclass

from ottla.base.errors import ErrorCode, KafkaError
from ottla.core.security.principal import ANONYMOUS, Principal


def parse_principals(text: str) -> frozenset[Principal]:
    """Parse the value of `super.users`: `Type:name` pairs, separated by semicolons.

    Names may contain colons and commas; the configuration has checked that each pair has a type.
    """
    pairs = (each.strip().partition(":") for each in text.split(";") if each.strip())
    return frozenset(Principal(type_, name) for type_, _, name in pairs)


@dataclass(frozen=True, slots=True)
class PeerRule:
    """The rule by which a broker recognizes the other brokers of its cluster."""

    listener: str
    """Name of the inter-broker listener."""
    authenticates: bool
    """Whether that listener establishes the principals of its clients."""
    super_users: frozenset[Principal] = frozenset()
    own: Principal | None = None
    """Principal of this broker when it connects to another one, or None if it is unknown."""

    def is_peer(self, listener: str, principal: Principal) -> bool:
        """Return whether a connection is one of another broker.

        Args:
            listener: Name of the listener that accepted the connection.
            principal: Principal of the connection.
        """
        if listener != self.listener:
            return False
        if not self.authenticates:
            return True
        return principal == self.own or principal in self.super_users

    @property
    def principal_of_brokers(self) -> Principal:
        """A principal that the other brokers recognize as one of a broker."""
        if not self.authenticates:
            return ANONYMOUS
        return self.own or min(self.super_users, key=str, default=ANONYMOUS)

    def is_super_user(self, principal: Principal) -> bool:
        return principal in self.super_users

    def check_manages_brokers(self, principal: Principal) -> None:
        """Check that a client may change users, and properties and loggers of brokers.

        A client that can do that can become any other user, also after ACLs were added. If
        `super.users` is set, only these, brokers, and clients of listeners without authentication
        may do it. The latter give the first super user a password.

        Raises:
            KafkaError: CLUSTER_AUTHORIZATION_FAILED.
        """
        if self.super_users and principal not in (ANONYMOUS, self.own, *self.super_users):
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"{principal} is not one of super.users, so it may not change users or brokers.",
            )
