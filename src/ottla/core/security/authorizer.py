"""The authorizer: decides whether a principal may do an operation on a resource.

The rules are those of Kafka's StandardAuthorizer:

1. A super user may do everything.
2. A binding applies if its pattern matches the resource, its principal is the client's or `User:*`,
   and its host is the client's address, a range that contains it, or `*`. The operation ALL stands
   for all operations. An allowed READ, WRITE, DELETE or ALTER implies DESCRIBE, and an allowed
   ALTER_CONFIGS implies DESCRIBE_CONFIGS; denials imply nothing.
3. If a binding that applies denies the operation, it is denied. Otherwise, if one allows it, it is
   allowed. Otherwise it is denied if any binding of any principal matches the resource; if none
   does, `allow.everyone.if.no.acl.found` decides.

Bindings are found by look-ups: those of a literal name, those of `*`, and those of each beginning
of the name whose length some prefix has. The bindings of one pattern and one principal are kept as
two sets of bits for each host and each range of hosts, which already contain what operations imply.
A decision therefore takes the same time with ten bindings and with a hundred thousand.

Addresses are compared as numbers, whatever form they are written in. An IPv4 address in IPv6, such
as `::ffff:10.0.0.1`, is the IPv4 address, and so is a range of them. Zones, as in `fe80::1%eth0`,
are ignored. A host that is neither an address nor a range is compared as text.

`generation` grows with every change. A cache of decisions is valid for one generation.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from ottla.base.acl import (
    CLUSTER_NAME,
    EVERY_USER,
    WILDCARD,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)

Masks: TypeAlias = tuple[int, int]
"""Operations that are allowed, and operations that are denied, as bits."""

Address: TypeAlias = tuple[int, int]
"""Version of IP, and the address as a number."""

_NO_MASKS: Masks = (0, 0)
_BITS = {4: 32, 6: 128}
_MAPPED = 0xFFFF
"""The upper 96 bits of the IPv6 addresses that stand for those of IPv4."""
_MAX_PARSED = 4096
"""Number of hosts whose addresses are remembered."""
_EVERY_OPERATION = sum(1 << each for each in AclOperation if each > AclOperation.ALL)
_IMPLIED = {
    AclOperation.READ: AclOperation.DESCRIBE,
    AclOperation.WRITE: AclOperation.DESCRIBE,
    AclOperation.DELETE: AclOperation.DESCRIBE,
    AclOperation.ALTER: AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
_PROBE = "hardcode"
"""Name that Kafka asks about to find out what is allowed on all resources of a type."""

OPERATIONS: dict[AclResourceType, tuple[AclOperation, ...]] = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DESCRIBE,
        AclOperation.DELETE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
    ),
    AclResourceType.TRANSACTIONAL_ID: (
        AclOperation.DESCRIBE,
        AclOperation.WRITE,
        AclOperation.TWO_PHASE_COMMIT,
    ),
    AclResourceType.DELEGATION_TOKEN: (AclOperation.DESCRIBE,),
    AclResourceType.USER: (AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS),
}
"""The operations that each type of resource has, as responses list the authorized ones."""


class Resource(NamedTuple):
    """A resource, by type and name."""

    type: AclResourceType
    name: str


CLUSTER = Resource(AclResourceType.CLUSTER, CLUSTER_NAME)


class Reason(Enum):
    """Cause of a decision that no binding made."""

    SUPER_USER = "the principal is a super user"
    NO_BINDING_APPLIES = "no ACL of the resource applies"
    NO_BINDINGS_DENY = "the resource has no ACLs"
    NO_BINDINGS_ALLOW = "the resource has no ACLs, and allow.everyone.if.no.acl.found is set"


class Decision(NamedTuple):
    """A decision with its cause, for the audit log and for explanations."""

    is_allowed: bool
    cause: AclBinding | Reason


class _Range(NamedTuple):
    """A range of addresses with a common beginning."""

    version: int
    shift: int
    """Number of bits that differ."""
    common: int
    """The bits before those."""

    def contains(self, host: str) -> bool:
        address = _address(host)
        return (
            address is not None
            and address[0] == self.version
            and address[1] >> self.shift == self.common
        )


class _Grants:
    """The bindings of one pattern and one principal, as bits by host."""

    __slots__ = ("_by_host", "_everywhere", "_is_stale", "_ranges", "bindings")

    def __init__(self) -> None:
        self.bindings: set[AclBinding] = set()
        self._is_stale = False
        self._everywhere: Masks = _NO_MASKS
        self._by_host: dict[str, Masks] = {}
        self._ranges: dict[tuple[int, int], dict[int, Masks]] = {}
        """Bits by the version and the shift of ranges, then by what their addresses share."""

    def masks(self, host: str) -> Masks:
        """Return what is allowed and denied to a host."""
        if self._is_stale:
            self._rebuild()
        allowed, denied = self._everywhere
        if self._by_host:
            more = self._by_host.get(host, _NO_MASKS)
            allowed, denied = allowed | more[0], denied | more[1]
        if self._ranges:
            address = _address(host)
            if address is not None:
                version, number = address
                for (of_version, shift), by_common in self._ranges.items():
                    if of_version == version:
                        more = by_common.get(number >> shift, _NO_MASKS)
                        allowed, denied = allowed | more[0], denied | more[1]
        return allowed, denied

    def add(self, binding: AclBinding) -> None:
        self.bindings.add(binding)
        self._include(binding)

    def remove(self, binding: AclBinding) -> None:
        self.bindings.remove(binding)
        self._is_stale = True

    def _rebuild(self) -> None:
        """Compute the bits again, once after any number of removals."""
        self._is_stale = False
        self._everywhere, self._by_host, self._ranges = _NO_MASKS, {}, {}
        for each in self.bindings:
            self._include(each)

    def _include(self, binding: AclBinding) -> None:
        masks = _masks_of(binding)
        if binding.host == WILDCARD:
            self._everywhere = _union(self._everywhere, masks)
        elif "/" in binding.host:
            found = _range(binding.host)
            if found is not None:
                by_common = self._ranges.setdefault((found.version, found.shift), {})
                by_common[found.common] = _union(by_common.get(found.common, _NO_MASKS), masks)
        else:
            host = canonical_host(binding.host)
            self._by_host[host] = _union(self._by_host.get(host, _NO_MASKS), masks)


_Pattern: TypeAlias = dict[str, _Grants]
"""The grants of one pattern by principal; never empty."""


class _Patterns:
    """The patterns of one type of resources."""

    __slots__ = ("by_principal", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.by_principal: dict[str, dict[_Grants, None]] = {}
        """The grants of each principal, whatever their patterns."""
        self.literal: dict[str, _Pattern] = {}
        self.prefixed: dict[str, _Pattern] = {}
        self.lengths: dict[int, int] = {}
        """Number of prefixes of each length, in ascending order of the lengths."""

    def of(self, binding: AclBinding) -> dict[str, _Pattern]:
        """Return the patterns of the same kind as the binding's."""
        return self.prefixed if binding.pattern_type is PatternType.PREFIXED else self.literal

    def matching(self, name: str) -> list[_Pattern]:
        """Return the patterns that match a name."""
        literal = self.literal
        found = [literal[each] for each in (name, WILDCARD) if each in literal]
        if self.lengths:
            prefixed, size = self.prefixed, len(name)
            for length in self.lengths:
                if length > size:
                    break
                pattern = prefixed.get(name[:length])
                if pattern is not None:
                    found.append(pattern)
        return found

    def count_length(self, length: int, change: int) -> None:
        count = self.lengths.get(length, 0) + change
        if count and length in self.lengths:
            self.lengths[length] = count
            return
        counts = {**self.lengths, length: count}
        self.lengths = {each: counts[each] for each in sorted(counts) if counts[each]}


class Authorizer:
    """The bindings of a cluster, and decisions by them."""

    def __init__(
        self,
        *,
        super_users: Iterable[str] = (),
        allow_if_no_binding: bool = False,
        bindings: Iterable[AclBinding] = (),
    ) -> None:
        """Create an authorizer.

        Args:
            super_users: Principals that may do everything, such as `User:admin`.
            allow_if_no_binding: Whether everybody may use resources that no binding matches.
            bindings: The initial bindings.
        """
        self.generation = 0
        """Grows with every change that may change a decision."""
        self._super_users = frozenset(super_users)
        self._allow_if_no_binding = allow_if_no_binding
        self._bindings: dict[AclBinding, None] = {}
        self._by_type = {each: _Patterns() for each in OPERATIONS}
        for binding in bindings:
            self.add(binding)

    # ------------------------------------------------------------------------------ bindings

    @property
    def bindings(self) -> Iterable[AclBinding]:
        """All bindings, in the order in which they were added."""
        return self._bindings

    def found_by(self, filter: AclFilter) -> Iterator[AclBinding]:
        """Yield the bindings that a filter matches."""
        return filter_bindings(self._bindings, filter)

    def add(self, binding: AclBinding) -> None:
        """Add a binding, unless it exists."""
        if binding in self._bindings:
            return
        self.generation += 1
        self._bindings[binding] = None
        patterns = self._by_type[binding.resource_type]
        by_name = patterns.of(binding)
        if binding.name not in by_name:
            by_name[binding.name] = {}
            if binding.pattern_type is PatternType.PREFIXED:
                patterns.count_length(len(binding.name), 1)
        pattern = by_name[binding.name]
        grants = pattern.get(binding.principal)
        if grants is None:
            grants = pattern[binding.principal] = _Grants()
            patterns.by_principal.setdefault(binding.principal, {})[grants] = None
        grants.add(binding)

    def remove(self, binding: AclBinding) -> None:
        """Remove a binding, if it exists."""
        if binding not in self._bindings:
            return
        self.generation += 1
        del self._bindings[binding]
        patterns = self._by_type[binding.resource_type]
        by_name = patterns.of(binding)
        pattern = by_name[binding.name]
        grants = pattern[binding.principal]
        grants.remove(binding)
        if not grants.bindings:
            del pattern[binding.principal]
            of_principal = patterns.by_principal[binding.principal]
            del of_principal[grants]
            if not of_principal:
                del patterns.by_principal[binding.principal]
        if not pattern:
            del by_name[binding.name]
            if binding.pattern_type is PatternType.PREFIXED:
                patterns.count_length(len(binding.name), -1)

    def set_super_users(self, super_users: Iterable[str]) -> None:
        """Replace the super users."""
        changed = frozenset(super_users)
        if changed != self._super_users:
            self.generation += 1
            self._super_users = changed

    def set_allow_if_no_binding(self, allow: bool) -> None:
        """Change whether everybody may use resources that no binding matches."""
        if allow != self._allow_if_no_binding:
            self.generation += 1
            self._allow_if_no_binding = allow

    # ----------------------------------------------------------------------------- decisions

    def is_allowed(
        self, principal: str, host: str, operation: AclOperation, resource: Resource
    ) -> bool:
        """Return whether a principal may do an operation on a resource.

        Args:
            principal: Type and name of the client's principal.
            host: Address of the client, as `canonical_host` returns it.
            operation: One operation; neither ANY nor ALL.
            resource: The resource.
        """
        if principal in self._super_users:
            return True
        bit = 1 << operation
        allowed = 0
        patterns = self._by_type[resource.type].matching(resource.name)
        for pattern in patterns:
            for who in (principal, EVERY_USER):
                grants = pattern.get(who)
                if grants is not None:
                    masks = grants.masks(host)
                    if masks[1] & bit:
                        return False
                    allowed |= masks[0] & bit
        return bool(allowed) or (self._allow_if_no_binding and not patterns)

    def allowed_operations(self, principal: str, host: str, resource: Resource) -> int:
        """Return the operations that a principal may do on a resource, as bits."""
        return sum(
            1 << each
            for each in OPERATIONS[resource.type]
            if self.is_allowed(principal, host, each, resource)
        )

    def is_allowed_on_any(
        self, principal: str, host: str, operation: AclOperation, type: AclResourceType
    ) -> bool:
        """Return whether a principal may do an operation on at least one resource of a type.

        The resource does not have to exist. As in Kafka, operations imply no others here.
        """
        if self.is_allowed(principal, host, operation, Resource(type, _PROBE)):
            return True
        allowing: list[AclBinding] = []
        denied = _Names()
        for binding in self._bindings_of(principal, host, operation, type):
            if binding.permission is AclPermission.DENY:
                denied.add(binding)
            else:
                allowing.append(binding)
        if WILDCARD in denied.literal:
            return False
        return any(_is_for_all(each) or not denied.dominate(each) for each in allowing)

    def explain(
        self, principal: str, host: str, operation: AclOperation, resource: Resource
    ) -> Decision:
        """Return a decision with its cause. It takes longer than `is_allowed`."""
        if principal in self._super_users:
            return Decision(True, Reason.SUPER_USER)
        patterns = self._by_type[resource.type].matching(resource.name)
        applying = [
            binding
            for pattern in patterns
            for who in (principal, EVERY_USER)
            if who in pattern
            for binding in sorted(pattern[who].bindings)
            if _applies_at(binding, host) and _covers(binding, operation)
        ]
        # DENY is the smaller code.
        for binding in sorted(applying, key=lambda each: each.permission):
            return Decision(binding.permission is AclPermission.ALLOW, binding)
        if patterns:
            return Decision(False, Reason.NO_BINDING_APPLIES)
        if self._allow_if_no_binding:
            return Decision(True, Reason.NO_BINDINGS_ALLOW)
        return Decision(False, Reason.NO_BINDINGS_DENY)

    def _bindings_of(
        self, principal: str, host: str, operation: AclOperation, type: AclResourceType
    ) -> Iterator[AclBinding]:
        """Yield the bindings of a type for a principal, a host and exactly an operation."""
        by_principal = self._by_type[type].by_principal
        for who in {principal, EVERY_USER}:
            for grants in by_principal.get(who, ()):
                for binding in grants.bindings:
                    if binding.operation in (operation, AclOperation.ALL) and _applies_at(
                        binding, host
                    ):
                        yield binding


class _Names:
    """Names of patterns that deny an operation."""

    __slots__ = ("_lengths", "_prefixes", "literal")

    def __init__(self) -> None:
        self.literal: set[str] = set()
        self._prefixes: set[str] = set()
        self._lengths: set[int] = set()

    def add(self, binding: AclBinding) -> None:
        if binding.pattern_type is PatternType.PREFIXED:
            self._prefixes.add(binding.name)
            self._lengths.add(len(binding.name))
        else:
            self.literal.add(binding.name)

    def dominate(self, allowing: AclBinding) -> bool:
        """Return whether these names cover everything that a permission allows."""
        name = allowing.name
        if allowing.pattern_type is PatternType.LITERAL and name in self.literal:
            return True
        return any(
            length <= len(name) and name[:length] in self._prefixes for length in self._lengths
        )


def filter_bindings(bindings: Iterable[AclBinding], filter: AclFilter) -> Iterator[AclBinding]:
    """Yield the bindings that a filter matches."""
    return (each for each in bindings if filter.matches(each))


def _masks_of(binding: AclBinding) -> Masks:
    operation = binding.operation
    bits = _EVERY_OPERATION if operation is AclOperation.ALL else 1 << operation
    if binding.permission is AclPermission.DENY:
        return 0, bits
    if operation in _IMPLIED:
        bits |= 1 << _IMPLIED[operation]
    return bits, 0


def _union(one: Masks, other: Masks) -> Masks:
    return one[0] | other[0], one[1] | other[1]


def _applies_at(binding: AclBinding, host: str) -> bool:
    if "/" in binding.host:
        found = _range(binding.host)
        return found is not None and found.contains(host)
    return binding.host == WILDCARD or canonical_host(binding.host) == host


def canonical_host(host: str) -> str:
    """Return the one form of an address with which decisions are made.

    Java writes IPv6 addresses in full, and a socket for both versions of IP reports IPv4 addresses
    as mapped ones.
    """
    address = _address(host)
    if address is None:
        return host
    version, number = address
    return str(ipaddress.IPv4Address(number) if version == 4 else ipaddress.IPv6Address(number))


@lru_cache(_MAX_PARSED)
def _address(host: str) -> Address | None:
    """Parse an address. Returns None for other text: a simulated network has names only."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    number = int(found)
    if found.version == 6 and number >> 32 == _MAPPED:
        return 4, number & 0xFFFFFFFF
    return found.version, number


@lru_cache(_MAX_PARSED)
def _range(text: str) -> _Range | None:
    """Parse a range in CIDR notation.

    Returns None for other text. ACLs are checked when they are created, but not when they are
    adopted.
    """
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None
    version, number = network.version, int(network.network_address)
    shift = _BITS[version] - network.prefixlen
    if version == 6 and shift <= 32 and number >> 32 == _MAPPED:
        version, number = 4, number & 0xFFFFFFFF
    return _Range(version, shift, number >> shift)


def _covers(binding: AclBinding, operation: AclOperation) -> bool:
    return bool(sum(_masks_of(binding)) & 1 << operation)


def _is_for_all(binding: AclBinding) -> bool:
    return binding.pattern_type is PatternType.LITERAL and binding.name == WILDCARD
