"""`kafka-delegation-tokens`: create, renew, expire and describe delegation tokens."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option
from ottla.cli.tool import Tool, action_option, run_tool

if TYPE_CHECKING:
    from ottla.client.admin import Admin, DelegationToken

EXAMPLES = """
kafka-delegation-tokens --create --max-life-time-period -1 --command-config client.properties
kafka-delegation-tokens --create --max-life-time-period -1 --renewer-principal User:bob
kafka-delegation-tokens --renew --renew-time-period -1 --hmac …
kafka-delegation-tokens --expire --expiry-time-period -1 --hmac …
kafka-delegation-tokens --describe --owner-principal User:alice
"""
_ALLOWED = {
    "create": ("owner_principal", "renewer_principal", "max_life_time_period"),
    "renew": ("hmac", "renew_time_period"),
    "expire": ("hmac", "expiry_time_period"),
    "describe": ("owner_principal",),
}
_REQUIRED = {
    "create": ("max_life_time_period",),
    "renew": ("hmac", "renew_time_period"),
    "expire": ("hmac", "expiry_time_period"),
    "describe": (),
}
_COLUMNS = (
    ("TOKENID", 15),
    ("HMAC", 30),
    ("OWNER", 15),
    ("REQUESTER", 15),
    ("RENEWERS", 25),
    ("ISSUEDATE", 15),
    ("EXPIRYDATE", 15),
    ("MAXDATE", 15),
)
"""Kafka's columns with their widths. Longer values are not cut."""


@dataclass(frozen=True)
class Options:
    """Values of the options; `hmac` is in base64."""

    owner_principal: tuple[str, ...]
    renewer_principal: tuple[str, ...]
    max_life_time_period: int | None
    renew_time_period: int | None
    expiry_time_period: int | None
    hmac: str | None


@click.command(cls=Tool, examples=EXAMPLES)
@cluster_options()
@action_option("create", "Create a delegation token.")
@action_option("renew", "Renew a delegation token.")
@action_option("expire", "Let a delegation token expire.")
@action_option("describe", "Describe delegation tokens.")
@click.option(
    "--owner-principal",
    multiple=True,
    metavar="TYPE:NAME",
    help="Owner of the new token, or owner or renewer of the tokens to describe. By default, the "
    "user that connects, or all tokens that this user may see.",
)
@click.option(
    "--renewer-principal",
    multiple=True,
    metavar="TYPE:NAME",
    help="Principal that may renew the token, besides its owner.",
)
@click.option(
    "--max-life-time-period",
    type=int,
    metavar="MS",
    help="Time after which the token cannot be renewed, in milliseconds; -1 for the broker's "
    "delegation.token.max.lifetime.ms.",
)
@click.option(
    "--renew-time-period",
    type=int,
    metavar="MS",
    help="New time to live, in milliseconds; -1 for the broker's delegation.token.expiry.time.ms.",
)
@click.option(
    "--expiry-time-period",
    type=int,
    metavar="MS",
    help="New time to live, in milliseconds; with -1, the token is removed.",
)
@click.option("--hmac", metavar="BASE64", help="HMAC of the token to renew or expire.")
@output_option
def kafka_delegation_tokens(
    cluster: ClusterOptions, output: Output, actions: tuple[str, ...], **option_values: Any
) -> None:
    """Manage delegation tokens.

    A delegation token is a credential of limited lifetime that acts for its owner. Clients log in
    with it by SCRAM: the user name is the token's ID and the password its HMAC.
    """
    if len(actions) != 1:
        raise click.UsageError("Give exactly one of --create, --renew, --expire and --describe.")
    options = Options(**option_values)
    _check(actions[0], options)
    with cluster.admin() as admin:
        _ACTIONS[actions[0]](admin, options, output)


def _check(action: str, options: Options) -> None:
    for name, value in vars(options).items():
        is_given = value not in (None, ())
        option = f"--{name.replace('_', '-')}"
        if is_given and name not in _ALLOWED[action]:
            raise click.UsageError(f"{option} cannot be used with --{action}.")
        if not is_given and name in _REQUIRED[action]:
            raise click.UsageError(f"--{action} requires {option}.")


def _create(admin: Admin, options: Options, output: Output) -> None:
    assert options.max_life_time_period is not None
    owner = options.owner_principal[0] if options.owner_principal else None
    token = admin.create_delegation_token(
        owner=owner,
        renewers=options.renewer_principal,
        max_lifetime_ms=options.max_life_time_period,
    )
    renewers = ", ".join(options.renewer_principal)
    output.show(
        _as_json(token),
        lambda: [
            f"Calling create token operation with renewers :[{renewers}] , "
            f"max-life-time-period :{options.max_life_time_period}",
            f"Created delegation token with tokenId : {token.token_id}",
            *_lines([token]),
        ],
    )


def _renew(admin: Admin, options: Options, output: Output) -> None:
    assert options.hmac is not None
    assert options.renew_time_period is not None
    expires_ms = admin.renew_delegation_token(
        _decoded(options.hmac), renew_period_ms=options.renew_time_period
    )
    output.show(
        {"expiry_timestamp_ms": expires_ms},
        lambda: [
            f"Calling renew token operation with hmac :{options.hmac} , "
            f"renew-time-period :{options.renew_time_period}",
            f"Completed renew operation. New expiry date : {_date(expires_ms)}",
        ],
    )


def _expire(admin: Admin, options: Options, output: Output) -> None:
    assert options.hmac is not None
    assert options.expiry_time_period is not None
    expires_ms = admin.expire_delegation_token(
        _decoded(options.hmac), expiry_period_ms=options.expiry_time_period
    )
    output.show(
        {"expiry_timestamp_ms": expires_ms},
        lambda: [
            f"Calling expire token operation with hmac :{options.hmac} , "
            f"expire-time-period :{options.expiry_time_period}",
            f"Completed expire operation. New expiry date : {_date(expires_ms)}",
        ],
    )


def _describe(admin: Admin, options: Options, output: Output) -> None:
    owners = list(options.owner_principal)
    tokens = admin.describe_delegation_tokens(owners or None)
    calling = (
        f"Calling describe token operation for owners: [{', '.join(owners)}]"
        if owners
        else "Calling describe token operation for current user."
    )
    output.show(
        [_as_json(each) for each in tokens],
        lambda: [calling, f"Total number of tokens : {len(tokens)}", *_lines(tokens)],
    )


_ACTIONS = {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}


def _decoded(hmac: str) -> bytes:
    try:
        return base64.b64decode(hmac, validate=True)
    except binascii.Error:
        raise click.UsageError("The value of --hmac is not in base64.") from None


def _lines(tokens: Iterable[DelegationToken]) -> list[str]:
    rows = [tuple(name for name, _ in _COLUMNS)]
    rows += [
        (
            each.token_id,
            each.hmac_base64,
            str(each.owner),
            str(each.requester),
            f"[{', '.join(map(str, each.renewers))}]",
            _date(each.issue_timestamp_ms),
            _date(each.expiry_timestamp_ms),
            _date(each.max_timestamp_ms),
        )
        for each in tokens
    ]
    widths = [width for _, width in _COLUMNS]
    lines: list[str] = []
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        # Kafka's tool prints an empty line before each row.
        lines += ["", " ".join(cells)]
    return lines


def _date(time_ms: int) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M", time.localtime(time_ms / 1000))
    except (OverflowError, ValueError, OSError):  # a token that practically never expires
        return str(time_ms)


def _as_json(token: DelegationToken) -> dict[str, object]:
    return {
        "token_id": token.token_id,
        "hmac": token.hmac_base64,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(each) for each in token.renewers],
        "issue_timestamp_ms": token.issue_timestamp_ms,
        "expiry_timestamp_ms": token.expiry_timestamp_ms,
        "max_timestamp_ms": token.max_timestamp_ms,
    }


def main() -> NoReturn:
    run_tool("kafka-delegation-tokens", kafka_delegation_tokens)
