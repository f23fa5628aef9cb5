"""`semel user`: lists, creates and deletes users, and changes their passwords."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from semel_protocol.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism
from semel_protocol.tables import Table

from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import confirm, failure, json_option, run, say, say_json, show, tell
from semel._texts import similar
from semel.admin import (
    Admin,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from semel.cli.user import offline
from semel.cli.user.passwords import password_of, password_options

F = TypeVar("F", bound=Callable[..., Any])
MECHANISMS = [each.sasl_name for each in ScramMechanism]
Users = dict[str, UserScramCredentialsDescription]


def credential_options(command: F) -> F:
    """The options of a new password: the arguments `mechanisms` and `iterations`, and those of `password_options`."""
    command = click.option(
        "--iterations",
        type=click.IntRange(ITERATIONS_MIN, ITERATIONS_MAX),
        default=ITERATIONS_MIN,
        show_default=True,
        help="Iterations of the hash.",
    )(command)
    command = click.option(
        "--mechanism",
        "mechanisms",
        type=click.Choice(MECHANISMS, case_sensitive=False),
        multiple=True,
        help="Only for this mechanism; repeatable. Default: both. PLAIN takes either.",
    )(command)
    return password_options(command)


@click.group()
def user() -> None:
    """Show and change the users that log in with SCRAM or PLAIN.

    A password comes from a prompt, from --password-file, or from the variable SEMEL_USER_PASSWORD. It is hashed here:
    brokers do not get it. `semel acl add` says what a user may do.
    """


@user.command("list")
@client_options()
@json_option
def list_(client: ClientSettings, as_json: bool) -> None:
    """List the users with their mechanisms."""

    async def work() -> Users:
        async with client.admin() as admin:
            return await admin.describe_user_scram_credentials()

    found = run(work())
    if as_json:
        say_json([facts_of(each) for each in found.values()])
    elif found:
        show(user_table(list(found.values())))
    else:
        tell("There are no users. `semel user create NAME` makes one.")


@user.command()
@client_options()
@click.argument("name")
@click.option(
    "--data-dir",
    metavar="PATH",
    help="Make the first user of a broker that runs alone and is stopped, in its data directory.",
)
@credential_options
def create(
    client: ClientSettings, name: str, data_dir: str | None, mechanisms: Sequence[str], iterations: int, **given: Any
) -> None:
    """Create the user NAME."""
    if data_dir is not None:
        run(offline.create(data_dir, name, password_of(given)))
        say(f"{name} created in {data_dir}")
        return

    async def work() -> None:
        async with client.admin() as admin:
            if name in await admin.describe_user_scram_credentials():
                raise failure(f"the user {name} exists already; `semel user password {name}` changes the password")
            await admin.alter_user_scram_credentials(upsertions(name, password_of(given), mechanisms, iterations))

    run(work())
    say(f"{name} created")


@user.command()
@client_options()
@click.argument("name")
@credential_options
def password(client: ClientSettings, name: str, mechanisms: Sequence[str], iterations: int, **given: Any) -> None:
    """Change the password of the user NAME.

    Open connections stay: they end when they must authenticate again (connections.max.reauth.ms).
    """

    async def work() -> None:
        async with client.admin() as admin:
            known = await one_of(admin, name)
            chosen = mechanisms or [each.mechanism.sasl_name for each in known.scram_credential_infos]
            await admin.alter_user_scram_credentials(upsertions(name, password_of(given), chosen, iterations))

    run(work())
    say(f"{name}: password changed")


@user.command()
@client_options()
@click.argument("name")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def delete(client: ClientSettings, name: str, yes: bool) -> None:
    """Delete the user NAME. Its open connections stay, and so do its ACLs."""

    async def work() -> None:
        async with client.admin() as admin:
            known = await one_of(admin, name)
            if not yes:
                confirm(f"Delete the user {name}?")
            await admin.alter_user_scram_credentials(
                [UserScramCredentialDeletion(name, each.mechanism) for each in known.scram_credential_infos]
            )

    run(work())
    say(f"{name} deleted")


async def one_of(admin: Admin, name: str) -> UserScramCredentialsDescription:
    """The user. Raises ClickException if there is none."""
    users = await admin.describe_user_scram_credentials()
    if name not in users:
        raise failure(f"there is no user {name}.{similar(name, users)}")
    return users[name]


def upsertions(
    name: str, secret: str, mechanisms: Sequence[str], iterations: int
) -> list[UserScramCredentialUpsertion]:
    """PURE. A credential for each mechanism; none given: for all of them."""
    return [
        UserScramCredentialUpsertion(name, ScramCredentialInfo(ScramMechanism.of(each), iterations), secret)
        for each in mechanisms or MECHANISMS
    ]


def facts_of(found: UserScramCredentialsDescription) -> dict[str, Any]:
    """PURE. The user as plain types."""
    return {
        "user": found.user,
        "mechanisms": [
            {"mechanism": each.mechanism.sasl_name, "iterations": each.iterations}
            for each in found.scram_credential_infos
        ],
    }


def user_table(found: Sequence[UserScramCredentialsDescription]) -> Table:
    """PURE."""
    shown = Table("", "user", "mechanism", "iterations", right=("iterations",))
    for each in found:
        for info in each.scram_credential_infos:
            shown.add_row(each.user, info.mechanism.sasl_name, str(info.iterations))
    return shown
