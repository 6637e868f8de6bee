"""Parsing of `connection.url`, in JDBC's form (`jdbc:postgresql://host/db`) or SQLAlchemy's.

jdbc:postgresql, postgresql      psycopg
jdbc:mysql, jdbc:mariadb, …      PyMySQL
jdbc:sqlite:FILE, sqlite:///…    Python's sqlite3
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "sqlite": "sqlite",
}
PORTS = {"postgresql": 5432, "mysql": 3306, "mariadb": 3306}
PARAMETERS = {
    "postgresql": {
        "sslmode": "sslmode", "sslrootcert": "sslrootcert", "sslcert": "sslcert",
        "sslkey": "sslkey", "ApplicationName": "application_name",
        "connectTimeout": "connect_timeout",
    },
    "mysql": {"charset": "charset", "connectTimeout": "connect_timeout"},
}  # fmt: skip
"""Supported JDBC parameters and their names in the Python drivers."""
_JAVA = re.compile(r"jdbc:(\w+)://([^/?]*)(?:/([^?]*))?(?:\?(.*))?")


def parse_url(text: str, user: str = "", password: str = "") -> URL:
    """Parse a URL; raise ValueError with a one-sentence message if it is invalid."""
    text = text.strip()
    url = _java(text) if text.startswith("jdbc:") else _sqlalchemy(text)
    if url.drivername.startswith("sqlite"):
        # SQLite has no users.
        return url
    if user:
        url = url.set(username=user)
    if password:
        url = url.set(password=password)
    return url


def _sqlalchemy(text: str) -> URL:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        raise _unknown(text) from None
    kind = url.drivername.partition("+")[0]
    if kind not in DRIVERS:
        raise _unknown(text)
    return url.set(drivername=DRIVERS[kind]) if "+" not in url.drivername else url


def _java(text: str) -> URL:
    if text.startswith("jdbc:sqlite:"):
        return URL.create("sqlite", database=text.removeprefix("jdbc:sqlite:"))
    match = _JAVA.fullmatch(text)
    if match is None or match[1] not in DRIVERS:
        raise _unknown(text)
    kind, place, database, query = match.groups()
    host, port = _host(place, kind)
    properties = dict(parse_qsl(query or "", keep_blank_values=True))
    user, password = properties.pop("user", None), properties.pop("password", None)
    known = PARAMETERS["postgresql" if kind == "postgresql" else "mysql"]
    parameters = {}
    schema = properties.pop("currentSchema", None) if kind == "postgresql" else None
    if schema:
        parameters["options"] = f"-c search_path={schema}"
    for name, value in properties.items():
        if name not in known:
            listed = ", ".join(sorted({"user", "password", *known}))
            raise ValueError(
                f"connection.url has the unknown parameter {name}; use any of {listed}"
            )
        parameters[known[name]] = value
    return URL.create(
        DRIVERS[kind], user, password, host, port, unquote(database or "") or None, parameters
    )


def _host(place: str, kind: str) -> tuple[str, int]:
    host, colon, port = place.rpartition(":") if not place.endswith("]") else (place, "", "")
    if not colon:
        host, port = place, ""
    if "," in place or (port and not port.isdecimal()):
        raise ValueError(f"connection.url must name one host, not {place}")
    return host.strip("[]") or "localhost", int(port) if port else PORTS[kind]


def _unknown(text: str) -> ValueError:
    shown = re.sub(r"://[^@/]*@", "://…@", text)
    return ValueError(
        f"connection.url must look like jdbc:postgresql://host:5432/database, jdbc:mariadb://…, "
        f"jdbc:mysql://… or jdbc:sqlite:FILE, not {shown!r}"
    )
