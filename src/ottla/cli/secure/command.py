"""`ottla secure`: certificates, users and configuration files of a secured cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.base.errors import UserError
from ottla.cli.connection_options import ClusterOptions, cluster_options
from ottla.cli.output import Output, output_option, table
from ottla.cli.secure.layout import SecureDirectory
from ottla.cli.secure.options import as_administrator, dir_option
from ottla.cli.tool import Tool, ToolGroup

if TYPE_CHECKING:
    from ottla.cli.secure.init import Made
    from ottla.cli.secure.users import Profiles
    from ottla.client.admin import Admin

password_option = click.option(
    "--password-file",
    metavar="FILE",
    help="File with the password in its first line, or - for the standard input.  "
    "[default: a random password]",
)


@click.group(
    cls=ToolGroup,
    modules={
        "explain": "ottla.cli.secure.inspection:explain",
        "check": "ottla.cli.secure.inspection:check",
    },
)
def secure() -> None:
    """Create and check certificates and users."""


@secure.command(
    "init",
    cls=Tool,
    examples="""ottla secure init
    ottla secure init --advertise kafka.example.com:9092
    ottla secure init --dir ./secure --data-dir ./data""",
)
@dir_option
@click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    multiple=True,
    help="Address that clients connect to. May be repeated, once for each broker.  "
    "[default: 127.0.0.1:9092]",
)
@click.option(
    "--san",
    "more_hosts",
    metavar="HOST",
    multiple=True,
    help="Further host name or address for the certificates (subject alternative name). May be "
    "repeated.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Number of brokers. Several brokers need --zookeeper.  "
    "[default: the number of --advertise, at least 1]",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,…[/CHROOT]",
    help="ZooKeeper servers of the brokers, which `ottla zookeeper --secure` starts.",
)
@click.option(
    "--data-dir",
    metavar="DIR",
    help="Data directory of the broker, or of several brokers' broker-ID directories.  "
    "[default: that of `ottla broker`]",
)
@click.option(
    "--force",
    is_flag=True,
    help="Replace the certificate authority, the certificates, the configuration and the passwords "
    "of the brokers and of the user admin. The old profiles become useless.",
)
def init(
    directory: str,
    advertise: tuple[str, ...],
    more_hosts: tuple[str, ...],
    brokers: int | None,
    zookeeper: str | None,
    data_dir: str | None,
    force: bool,
) -> None:
    """Create everything that a secured broker needs.

    Creates a certificate authority, a certificate for each broker, the user admin, a
    server.properties for each broker, and profiles for clients. Then it starts the broker on the
    loopback interface and connects to it, to prove that they fit together. With --zookeeper, it
    starts no broker, and the ZooKeeper servers must run before the users can be created.

    Files that exist are kept, unless --force is given. All files can be read by their owner only.
    """
    from ottla.cli.paths import default_data_directory
    from ottla.cli.secure.first_users import put_users
    from ottla.cli.secure.init import Initializer
    from ottla.cli.secure.plan import plan_brokers
    from ottla.cli.secure.proof import prove

    plans = plan_brokers(advertise, brokers, more_hosts)
    if len(plans) > 1 and zookeeper is None:
        raise click.UsageError("Several brokers need ZooKeeper. Name it with --zookeeper.")
    place = SecureDirectory(directory)
    data = Path(data_dir or default_data_directory()).absolute()
    making = Initializer(
        place,
        plans,
        lambda plan: str(data / f"broker-{plan.id}" if len(plans) > 1 else data),
        put_users,
        zookeeper,
        is_forced=force,
    )
    made = making.make_files()
    _show_made(made)
    if zookeeper is not None:
        _check_zookeeper(zookeeper, directory)
    users = making.make_users()
    _show_made(users)
    shown = click.format_filename(directory)
    profile = f"{shown}/{place.admin_profile.name}"
    if not any(each.is_new for each in (*made, *users)):
        click.echo(f"{place.path} is complete; nothing was changed.")
        if missing := making.missing_hosts():
            options = " ".join(f"--san {each}" for each in missing)
            click.echo(
                f"The certificates are not for {', '.join(missing)}. Change advertised.listeners "
                f"in server.properties, and run: ottla secure renew {options} --dir {shown}"
            )
    elif zookeeper is None:
        prove(place.find_server(), place.admin_profile)
        click.echo("A broker started with these files, and accepted the profile.")
        click.echo("\nStart the broker, and list its topics, with:")
        click.echo(f"  ottla broker --secure {shown}")
        click.echo(f"  ottla topics --list --command-config {profile}")
    else:
        click.echo("\nStart each broker, and look at the cluster, with:")
        click.echo(f"  ottla broker --config {shown}/{making.server(plans[0]).name}")
        click.echo(f"  ottla cluster status --command-config {profile}")


@secure.command(
    "renew",
    cls=Tool,
    examples="""ottla secure renew
    ottla secure renew --broker 2
    ottla secure renew --ca""",
)
@dir_option
@click.option("--broker", type=int, metavar="ID", help="Renew the certificate of this broker only.")
@click.option(
    "--san",
    "more_hosts",
    metavar="HOST",
    multiple=True,
    help="Host name or address to add to the certificates. May be repeated.",
)
@click.option(
    "--ca",
    "new_authority",
    is_flag=True,
    help="Replace the certificate authority as well. Brokers and profiles trust both until "
    "--drop-old-ca.",
)
@click.option(
    "--drop-old-ca",
    "drops_old",
    is_flag=True,
    help="Trust the newest certificate authority only. Clients need a profile that was written "
    "after --ca.",
)
def renew(
    directory: str,
    broker: int | None,
    more_hosts: tuple[str, ...],
    new_authority: bool,
    drops_old: bool,
) -> None:
    """Renew the certificates of the brokers.

    The new certificates have the same names, and new keys. Running brokers use them for new
    connections within seconds, without a restart.
    """
    if new_authority and drops_old:
        raise click.UsageError("--ca and --drop-old-ca cannot be used together.")
    if broker is not None and (new_authority or drops_old):
        raise click.UsageError("--ca and --drop-old-ca apply to all brokers. Leave out --broker.")
    from ottla.cli.secure import renew as renewal

    place = SecureDirectory(directory)
    if new_authority:
        end = renewal.replace_authority(place).expires_at
        click.echo(
            f"New certificate authority, valid until {end:%Y-%m-%d}. Give clients their profiles "
            f"again, then run: ottla secure renew --drop-old-ca --dir {directory}"
        )
    if drops_old:
        count = renewal.drop_old_authority(place)
        click.echo(f"Certificate authorities that are no longer trusted: {count}.")
    for path, each in renewal.renew(place, broker, more_hosts=more_hosts).items():
        names, end = ", ".join(each.names), each.expires_at
        click.echo(f"Renewed {path.name} for {names}, valid until {end:%Y-%m-%d}.")


# -------------------------------------------------------------------------------------------- users


@secure.group("user", cls=ToolGroup)
def user() -> None:
    """Create, change, remove and list users of a running cluster.

    Without --command-config, the commands use the administrator's profile in --dir.
    """


@user.command(
    "add",
    cls=Tool,
    examples="""ottla secure user add alice --produce orders
    ottla secure user add billing --consume orders --consume 'audit-*' --group billing
    ottla secure user add carol --password-file ./password --mechanism SCRAM-SHA-256""",
)
@click.argument("name")
@dir_option
@password_option
@click.option(
    "--mechanism",
    type=click.Choice(["SCRAM-SHA-256", "SCRAM-SHA-512"], case_sensitive=False),
    default="SCRAM-SHA-512",
    show_default=True,
    help="SASL mechanism of the user.",
)
@click.option(
    "--produce",
    multiple=True,
    metavar="TOPIC",
    help="Topic that the user may write to, and create. May be repeated. A * at the end stands for "
    "all topics that begin with the rest.",
)
@click.option(
    "--consume",
    multiple=True,
    metavar="TOPIC",
    help="Topic that the user may read. May be repeated. A * at the end stands for all topics that "
    "begin with the rest.",
)
@click.option(
    "--group",
    multiple=True,
    metavar="GROUP",
    help="Consumer group that the user may join. May be repeated. A * at the end stands for all "
    "groups that begin with the rest.",
)
@click.option(
    "--transactional-id",
    multiple=True,
    metavar="ID",
    help="Transactional ID of the user's producers. May be repeated. A * at the end stands for all "
    "IDs that begin with the rest.",
)
@cluster_options()
def add(
    cluster: ClusterOptions,
    name: str,
    directory: str,
    password_file: str | None,
    mechanism: str,
    produce: tuple[str, ...],
    consume: tuple[str, ...],
    group: tuple[str, ...],
    transactional_id: tuple[str, ...],
) -> None:
    """Create a user with permissions, and write its profile.

    The profile is users/NAME.properties in --dir, and users/NAME.conf for programs with
    librdkafka. Without such a directory, they are written to the current one.

    The permissions become ACLs of the user, which `kafka-acls` can change.
    """
    from ottla.base.scram import ScramMechanism
    from ottla.cli.secure.permissions import Permissions, acls_of
    from ottla.cli.secure.texts import Login
    from ottla.cli.secure.users import add_user, check_name

    check_name(name)
    found = {each.sasl_name: each for each in ScramMechanism}[mechanism.upper()]
    acls = Permissions(produce, consume, group, transactional_id).acls(name)
    login = Login(name, _password(password_file), found)
    with _connected(cluster, directory) as (admin, profiles):
        _show_written(f"Created the user {name}", add_user(admin, profiles, login, acls))
        existing = acls_of(admin, name)
    _show_permissions(name, len(acls), None if existing is None else len(existing))


@user.command("passwd", cls=Tool, examples="ottla secure user passwd alice")
@click.argument("name")
@dir_option
@password_option
@cluster_options()
def passwd(cluster: ClusterOptions, name: str, directory: str, password_file: str | None) -> None:
    """Change the password of a user and write its profile.

    Connections that are open remain open.
    """
    from ottla.cli.secure.users import change_password

    password = _password(password_file)
    with _connected(cluster, directory) as (admin, profiles):
        written = change_password(admin, profiles, name, password)
        _show_written(f"Changed the password of {name}", written)


@user.command("remove", cls=Tool, examples="ottla secure user remove alice")
@click.argument("name")
@dir_option
@cluster_options()
def remove(cluster: ClusterOptions, name: str, directory: str) -> None:
    """Remove a user and its ACLs, and delete its profile.

    Connections that are open remain open, without permissions; the user cannot log in again.
    """
    from ottla.cli.secure.users import remove_user

    with _connected(cluster, directory) as (admin, profiles):
        deleted, acls = remove_user(admin, profiles, name)
    click.echo(f"Removed the user {name}" + (f" and {_acls(acls)}." if acls else "."))
    for each in deleted:
        click.echo(f"Deleted {each}.")


@user.command("list", cls=Tool, examples="ottla secure user list")
@dir_option
@cluster_options()
@output_option
def list_(cluster: ClusterOptions, directory: str, output: Output) -> None:
    """List the users with their mechanisms and numbers of ACLs."""
    from ottla.cli.secure.users import list_users

    with _connected(cluster, directory) as (admin, _):
        users = list_users(admin)
    output.show(
        users,
        lambda: table(
            ("USER", "MECHANISMS", "ACLS"),
            ((user, ",".join(each.mechanisms), each.acls) for user, each in users.items()),
        ),
    )


@contextlib.contextmanager
def _connected(cluster: ClusterOptions, directory: str) -> Iterator[tuple[Admin, Profiles]]:
    """Connect to the cluster with the administrator's profile."""
    from ottla.cli.secure.users import Profiles

    place = SecureDirectory(directory)
    cluster = as_administrator(cluster, place)
    profiles = Profiles(place, cluster.profile(), cluster.bootstrap)
    with cluster.admin() as admin:
        yield admin, profiles


def _password(file: str | None) -> str:
    from ottla.cli.secure.init import new_password
    from ottla.cli.secure.users import read_password

    return new_password() if file is None else read_password(file)


def _check_zookeeper(connect: str, directory: str) -> None:
    from ottla.cli.local_cluster import checked_connect

    try:
        checked_connect(connect)
    except UserError as error:
        raise UserError(
            f"{error} Start it with `ottla zookeeper --secure {directory}`, "
            "then run this command again to create the users."
        ) from None


def _show_made(made: list[Made]) -> None:
    width = max(len(each.path.name) for each in made)
    for each in made:
        what = "Created" if each.is_new else "Kept"
        click.echo(f"{what.ljust(8)}{each.path.name.ljust(width)}  {each.description}")


def _show_written(what: str, written: list[Path]) -> None:
    click.echo(f"{what}. Wrote {' and '.join(map(str, written))}.")


def _show_permissions(user: str, given: int, existing: int | None) -> None:
    """Print what a new user may do.

    Args:
        user: Name of the user.
        given: Number of ACLs that the command created.
        existing: Number of all ACLs of the user; None without an authorizer.
    """
    if existing is None:
        click.echo("The cluster has no authorizer, so every user may do everything.")
    elif not existing:
        click.echo(f"{user} has no ACLs, and may do nothing yet. Create them with kafka-acls.")
    elif existing > given:
        click.echo(f"{user} has {_acls(existing)}; some existed before the user.")
    else:
        click.echo(f"{user} has {_acls(existing)}.")


def _acls(count: int) -> str:
    return "1 ACL" if count == 1 else f"{count} ACLs"
