"""Config providers: values that a configuration takes from files or the environment (KIP-297).

    config.providers=file
    config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider
    sasl.password=${file:/etc/ottla/secrets.properties:password}

Kafka's three providers exist, by their full or short class names:

    FileConfigProvider         ${name:PATH:KEY}   a property of a properties file
    DirectoryConfigProvider    ${name:PATH:FILE}  the contents of a file, as Kubernetes mounts them
    EnvVarConfigProvider       ${name:VARIABLE}   an environment variable

`config.providers.<name>.param.allowed.paths` restricts the first two to some directories, and
`…param.allowlist.pattern` the third to variables that match. Text with the name of no provider
stays as it is. Messages contain variables, never their values.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from ottla.base.config.definition import split_list
from ottla.base.config.properties import load_properties
from ottla.base.errors import UserError

PREFIX = "config.providers"
MAX_FILE_BYTES = 1024 * 1024

_VARIABLE = re.compile(r"\$\{(?P<provider>[^:{}]+):(?:(?P<path>[^{}]*?):)?(?P<key>[^:{}]*)\}")
_Provider = Callable[[str, str], str | None]
"""Function that returns the value of a path and a key, or None if there is none."""


class ConfigProviders:
    """The providers that a configuration defines."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Create the providers of a configuration.

        Args:
            properties: The configuration; names other than `config.providers…` are ignored.

        Raises:
            UserError: A provider has no class, or an unknown one.
        """
        self._providers: dict[str, _Provider] = {}
        for name in split_list(properties.get(PREFIX, "")):
            own = f"{PREFIX}.{name}."
            class_name = properties.get(f"{own}class", "").strip()
            make = _CLASSES.get(class_name.rpartition(".")[2])
            if make is None:
                raise UserError(
                    f"{own}class must be one of {', '.join(_CLASSES)}, not {class_name or 'empty'}."
                )
            parameters = {
                key.removeprefix(f"{own}param."): value.strip()
                for key, value in properties.items()
                if key.startswith(f"{own}param.")
            }
            self._providers[name] = make(parameters, own)

    def resolve(self, text: str) -> str:
        """Return a value with its variables replaced.

        Args:
            text: Value of a property.

        Raises:
            UserError: A variable has no value, or its file cannot be read.
        """
        if "${" not in text or not self._providers:
            return text
        return _VARIABLE.sub(self._value, text)

    def resolve_all(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return properties with the variables in their values replaced.

        Args:
            properties: Values by name.

        Raises:
            UserError: A variable has no value, or its file cannot be read.
        """
        return {
            name: value if name.startswith(PREFIX) else self.resolve(value)
            for name, value in properties.items()
        }

    def _value(self, match: re.Match[str]) -> str:
        provider = self._providers.get(match["provider"].strip())
        if provider is None:
            return match[0]
        found = provider((match["path"] or "").strip(), match["key"].strip())
        if found is None:
            raise UserError(f"The variable {match[0]} has no value.")
        return found


def without_providers(properties: Mapping[str, str]) -> dict[str, str]:
    """Return resolved properties without the definitions of providers, to resolve them only once.

    Args:
        properties: Values by name.
    """
    return {name: value for name, value in properties.items() if not name.startswith(PREFIX)}


def resolved(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with the variables of their own providers replaced.

    Args:
        properties: Values by name.

    Raises:
        UserError: A provider is invalid, a variable has no value, or a file cannot be read.
    """
    if PREFIX not in properties:
        return dict(properties)
    return ConfigProviders(properties).resolve_all(properties)


def _files(parameters: Mapping[str, str], prefix: str) -> _Provider:
    check = _path_check(parameters, prefix)

    def value(path: str, key: str) -> str | None:
        check(Path(path))
        return load_properties(path).get(key)

    return value


def _directories(parameters: Mapping[str, str], prefix: str) -> _Provider:
    check = _path_check(parameters, prefix)

    def value(path: str, key: str) -> str | None:
        if not key or "/" in key or key in (".", ".."):
            return None
        file = Path(path, key)
        check(file)
        try:
            if not file.is_file():
                return None
            with file.open("rb") as opened:
                data = opened.read(MAX_FILE_BYTES + 1)
            if len(data) > MAX_FILE_BYTES:
                raise UserError(f"{file} is larger than {MAX_FILE_BYTES} bytes.")
            return data.decode()
        except OSError as error:
            reason = (error.strerror or "unknown error").lower()
            raise UserError(f"Cannot read {file}: {reason}.") from None
        except UnicodeDecodeError:
            raise UserError(f"{file} does not contain UTF-8 text.") from None

    return value


def _environment(parameters: Mapping[str, str], prefix: str) -> _Provider:
    name = f"{prefix}param.allowlist.pattern"
    try:
        allowed = re.compile(parameters.get("allowlist.pattern") or ".*")
    except re.error as error:
        raise UserError(f"{name} is not a valid regular expression: {error}.") from None

    def value(path: str, key: str) -> str | None:
        if path or not allowed.fullmatch(key):
            return None
        return os.environ.get(key)

    return value


def _path_check(parameters: Mapping[str, str], prefix: str) -> Callable[[Path], None]:
    directories = [Path(each).resolve() for each in split_list(parameters.get("allowed.paths", ""))]

    def check(path: Path) -> None:
        whole = path.resolve()
        if directories and not any(whole.is_relative_to(each) for each in directories):
            raise UserError(f"{path} is not below {prefix}param.allowed.paths.")

    return check


_CLASSES: Mapping[str, Callable[[Mapping[str, str], str], _Provider]] = {
    "FileConfigProvider": _files,
    "DirectoryConfigProvider": _directories,
    "EnvVarConfigProvider": _environment,
}
