"""EDGE: the options of every command that connects: the brokers, `-X name=value`, and a file of settings.

A command gets one `ClientSettings`, which makes its clients. A setting comes from the first of these that has it: the
command's own option, -X, the environment (SEMEL_BOOTSTRAP_SERVER and `VARIABLES`), the file, the command's default,
the client's default.
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from semel import Admin, Consumer, Producer
from semel._command_line.client_start import started
from semel._command_line.common import failure, key_values, say
from semel._command_line.setting_texts import (
    JAAS,
    KNOWN,
    NO_TEXT,
    SECRETS,
    own_name,
    properties,
    value_of,
    without_jaas,
)
from semel._config.client import AdminConfig, ClientConfig
from semel._config.consumer import ConsumerConfig
from semel._config.producer import ProducerConfig
from semel._texts import similar
from semel.errors import KafkaConfigurationError

F = TypeVar("F", bound=Callable[..., Any])
DEFAULT_SERVERS = "localhost:9092"
SERVERS = "bootstrap_servers"
VARIABLES = {
    "SEMEL_SECURITY_PROTOCOL": "security_protocol",
    "SEMEL_SASL_MECHANISM": "sasl_mechanism",
    "SEMEL_SASL_USERNAME": "sasl_plain_username",
    "SEMEL_SASL_PASSWORD": "sasl_plain_password",
    "SEMEL_SSL_CAFILE": "ssl_cafile",
}
"""Environment variable -> setting of every command's clients."""


class ClientSettings:
    """The settings of a command's clients, as far as they were given.

    given: from -X and from the option -b. ambient: from the environment and the file.
    """

    def __init__(self, given: Mapping[str, Any], ambient: Mapping[str, Any]) -> None:
        self._given, self._ambient = given, ambient

    def admin(
        self, defaults: Mapping[str, Any] | None = None, *, quiet: bool = False, tolerant: bool = False
    ) -> AbstractAsyncContextManager[Admin]:
        """An Admin that is started and closed. defaults: the command's own. quiet, tolerant: as of `started`."""
        return started(Admin, self._of(AdminConfig, {}, defaults or {}), quiet=quiet, tolerant=tolerant)

    def producer(
        self, options: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[Producer]:
        """A Producer that is started and stopped. options: those that the command was given; defaults: its own."""
        return started(Producer, self._of(ProducerConfig, options, defaults))

    def consumer(
        self, options: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> AbstractAsyncContextManager[Consumer]:
        """A Consumer that is started and stopped. Arguments as of `producer`."""
        return started(Consumer, self._of(ConsumerConfig, options, defaults))

    def value(self, name: str, default: Any) -> Any:
        """One setting, as far as it was given."""
        return {name: default, **self._ambient, **self._given}[name]

    def _of(
        self, config: type[ClientConfig], options: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> dict[str, Any]:
        merged = {SERVERS: DEFAULT_SERVERS, **defaults, **self._ambient, **self._given, **options}
        if merged.get("sasl_mechanism") == "OAUTHBEARER":
            raise failure("the commands have no source of tokens for OAUTHBEARER: use PLAIN or SCRAM")
        return {name: value for name, value in merged.items() if name in config.__struct_fields__}


def client_options(
    config: type[ClientConfig] = AdminConfig, *, by_option: Mapping[str, str] | None = None
) -> Callable[[F], F]:
    """The options of a command that connects: its argument `client`, a ClientSettings.

    config: the settings that -X may name. by_option: settings that only an option of the command sets, with a text that
    says so.
    """
    fixed = by_option or {}

    def wrap(command: F) -> F:
        @click.option(
            "-b",
            "--bootstrap-server",
            "bootstrap",
            default=DEFAULT_SERVERS,
            show_default=True,
            envvar="SEMEL_BOOTSTRAP_SERVER",
            metavar="HOST:PORT[,…]",
            help="Brokers to connect to first; they name all others. Or set SEMEL_BOOTSTRAP_SERVER.",
        )
        @click.option(
            "-X",
            "settings",
            multiple=True,
            metavar="NAME=VALUE",
            help="Set a setting of the client, such as request_timeout_ms=5000 or request.timeout.ms=5000; repeatable.",
        )
        @click.option(
            "--config-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            envvar="SEMEL_CONFIG_FILE",
            metavar="FILE",
            help="A file with a setting of the client in each line: name=value. Or set SEMEL_CONFIG_FILE.",
        )
        @functools.wraps(command)
        def with_client(
            *args: Any,
            bootstrap: str,
            settings: tuple[str, ...],
            config_file: Path | None,
            **options: Any,
        ) -> Any:
            ambient = {} if config_file is None else _from_file(config_file, fixed)
            ambient |= _from_environment(os.environ)
            given = _from_options(settings, config, fixed)
            source = click.get_current_context().get_parameter_source("bootstrap")
            if source is ParameterSource.COMMANDLINE:
                given[SERVERS] = bootstrap
            elif source is ParameterSource.ENVIRONMENT:
                ambient[SERVERS] = bootstrap
            return command(*args, client=ClientSettings(given, ambient), **options)

        return cast(F, with_client)

    return wrap


def _from_options(settings: tuple[str, ...], config: type[ClientConfig], fixed: Mapping[str, str]) -> dict[str, Any]:
    """The values of -X. Raises click.BadParameter for a setting that the command's clients do not have."""
    found: dict[str, Any] = {}
    for given, text in key_values(settings, "-X").items():
        name = own_name(given)
        if name in fixed:
            raise click.BadParameter(f"{given}: {fixed[name]}", param_hint="-X")
        if name in NO_TEXT:
            raise click.BadParameter(f"{given}: its value is an object of Python, not a text", param_hint="-X")
        own = {*config.__struct_fields__, JAAS}
        if name not in own:
            what = "is a setting of another kind of client; this command has no use for it" if name in KNOWN else ""
            unknown = f"the client has no such setting.{similar(name, own & KNOWN)}"
            raise click.BadParameter(f"{given}: {what or unknown}", param_hint="-X")
        try:
            found[name] = value_of(name, text)
        except KafkaConfigurationError as e:
            raise click.BadParameter(e.message, param_hint="-X") from None
        if name in SECRETS:
            say(
                f"-X {given}: other users of this machine can see it in the list of processes. Put it into a file for "
                "--config-file, or a password into SEMEL_SASL_PASSWORD",
                err=True,
            )
    try:
        return without_jaas(found)
    except KafkaConfigurationError as e:
        raise click.BadParameter(e.message, param_hint="-X") from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings of the environment. Raises ClickException for a value that is not allowed."""
    found: dict[str, Any] = {}
    for variable, name in VARIABLES.items():
        if text := environment.get(variable):
            try:
                found[name] = value_of(name, text)
            except KafkaConfigurationError as e:
                raise failure(f"{variable}: {e.message}") from None
    return found


def _from_file(path: Path, fixed: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a file. Names without a meaning here are listed once on standard error. Raises ClickException,
    without the text of the file.
    """
    found: dict[str, Any] = {}
    unknown: list[str] = []
    try:
        for row in properties(path.read_text()):
            name = own_name(row.name)
            if name not in KNOWN:
                unknown.append(row.name)
            elif name not in fixed:
                try:
                    found[name] = value_of(name, row.text)
                except KafkaConfigurationError as e:
                    raise failure(f"{path}, line {row.line}: {e.message}") from None
    except (OSError, ValueError) as e:
        raise failure(f"cannot read the settings of {path}: {e}") from None
    if unknown:
        say(f"{path}: the client has no such setting, ignored: {', '.join(dict.fromkeys(unknown))}", err=True)
    if not SECRETS.isdisjoint(found) and path.stat().st_mode & stat.S_IROTH:
        say(f"{path}: every user of this machine can read the secrets in it. Try: chmod 600 {path}", err=True)
    try:
        return without_jaas(found)
    except KafkaConfigurationError as e:
        raise failure(f"{path}: {e.message}") from None
