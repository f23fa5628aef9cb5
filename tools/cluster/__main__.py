"""EDGE: `python -m tools.cluster`: runs the services of a compose file as processes, with the commands of Compose."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import click
from rich.console import Console

from tools.cluster import choice, compose, namespaces, screen, secrets, supervisor
from tools.cluster.compose import ComposeError, Project
from tools.cluster.control import ControlAnswer, ControlRequest, ask
from tools.cluster.interpolation import InterpolationError, dotenv
from tools.cluster.service import cancelled
from tools.cluster.state import DEFAULT, StateFolder

ROOT = Path(__file__).parents[2]


class CommandOptions:
    """The options of every command: the compose file and the state folder."""

    def __init__(self, file: Path, state: Path, env_file: Path | None = None) -> None:
        self.file, self.state, self.env_file = file.absolute(), StateFolder(state), env_file

    def project(self) -> Project:
        try:
            given = {} if self.env_file is None else dotenv(self.env_file.read_text())
            return compose.load(self.file, {**given, **os.environ})
        except (ComposeError, InterpolationError, OSError) as error:
            raise click.ClickException(str(error)) from None

    def request(self, do: str, *words: str, flag: bool = False) -> ControlAnswer:
        """Send a request to the process that runs the project. Raises ClickException with its error."""
        return self.settled(asyncio.run(self.ask(ControlRequest(do=do, words=list(words), flag=flag))))

    async def ask(self, request: ControlRequest) -> ControlAnswer:
        if not self.state.is_taken():
            raise click.ClickException(
                f"nothing runs with the state folder {self.state.path}: start it with `python -m tools.cluster up`, or "
                "name the folder of a running project with --state"
            )
        return await ask(self.state.control, request)

    @staticmethod
    def settled(answer: ControlAnswer) -> ControlAnswer:
        if answer.error:
            raise click.ClickException(answer.error)
        return answer


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path),
    default=ROOT / "docker-compose.yml",
    help="The compose file.  [default: docker-compose.yml of this checkout]",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path),
    default=ROOT / DEFAULT,
    help=f"The folder for logs, volumes and the lock; one running project each.  [default: {DEFAULT} of this checkout]",
)
@click.option(
    "--env-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of variables for the compose file, NAME=VALUE in each line. Those of the environment come first.",
)
@click.pass_context
def main(context: click.Context, file: Path, state: Path, env_file: Path | None) -> None:
    """Run the services of docker-compose.yml as processes, each in a network namespace or at a loopback address."""
    context.obj = CommandOptions(file, state, env_file)


@main.command()
@click.argument("services", nargs=-1)
@click.option("-d", "--detach", is_flag=True, help="Return when all services are ready, and leave them running.")
@click.option(
    "--profile", "profiles", multiple=True, metavar="NAME", help="Also start the services of this profile; repeatable."
)
@click.option(
    "--on",
    type=click.Choice(choice.KINDS),
    default="auto",
    show_default=True,
    help="The network: namespaces (root only), user-namespaces, loopback, or auto: the first of them that works.",
)
@click.option("--report", type=int, hidden=True)
@click.pass_obj
def up(
    options: CommandOptions,
    services: tuple[str, ...],
    detach: bool,
    profiles: tuple[str, ...],
    on: str,
    report: int | None,
) -> None:
    """Start SERVICES and their dependencies; without SERVICES, all services without a profile.

    Prints their logs until Ctrl-C, which stops them in reverse order. A second Ctrl-C kills them.
    """
    project = options.project()
    for name in services:
        if name not in project.services:
            raise click.ClickException(
                f"there is no service {name!r} in {options.file}; its services are {', '.join(project.services)}"
            )
    if detach:
        sys.exit(_detach(options, [*services, "--on", on, *(f"--profile={each}" for each in profiles)]))
    request = supervisor.UpRequest(
        project=project,
        state=options.state.path,
        on=on,
        names=list(services),
        profiles=list(profiles),
        arguments=sys.argv[1:],
        report=None if report is None else os.fdopen(report, "w"),
    )
    if report is not None:
        os.set_inheritable(report, True)  # this process may replace itself to enter a user namespace
    sys.exit(supervisor.run(request, Console()))


def _detach(options: CommandOptions, arguments: list[str]) -> int:
    """Start the services in a background process, and print its reports until they are ready or have failed."""
    options.state.prepare()
    ours, theirs = os.pipe()
    line = [sys.executable, "-m", "tools.cluster", "--file", str(options.file), "--state", str(options.state.path)]
    if options.env_file is not None:
        line += ["--env-file", str(options.env_file)]
    with options.state.supervisor_log.open("ab") as log:
        subprocess.Popen(
            [*line, "up", *arguments, "--report", str(theirs)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[theirs],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        )
    os.close(theirs)
    last = ""
    with os.fdopen(ours) as reports:
        for each in reports:
            last = each.rstrip("\n")
            click.echo(last)
    if last != supervisor.READY:
        click.echo(f"The services were not started. The reason is in {options.state.supervisor_log}", err=True)
    return 0 if last == supervisor.READY else 1


@main.command()
@click.pass_obj
def ps(options: CommandOptions) -> None:
    """Show the started services: state, health, address, published ports, process id and number of starts."""
    screen.show(Console(), options.request("ps"))


@main.command()
@click.argument("services", nargs=-1)
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they are written, until Ctrl-C.")
@click.pass_obj
def logs(options: CommandOptions, services: tuple[str, ...], follow: bool) -> None:
    """Print the logs of SERVICES, or of all services. `down` keeps the logs."""
    names = services or tuple(options.project().services)
    tail = screen.Tail([options.state.log(name) for name in names], Console(), from_start=True)
    tail.read()
    if follow:
        try:
            asyncio.run(tail.follow())
        except KeyboardInterrupt:
            pass  # following ends with Ctrl-C


def _of_services(do: str, words: str) -> None:
    @main.command(do, help=words)
    @click.argument("services", nargs=-1, required=True)
    @click.pass_obj
    def command(options: CommandOptions, services: tuple[str, ...]) -> None:
        options.request(do, *services)


_of_services("start", "Start SERVICES that are stopped, and wait until they are healthy.")
_of_services("stop", "Stop SERVICES: send the stop signal of each, and SIGKILL after its grace period.")
_of_services("restart", "Stop SERVICES, and start them again.")
_of_services("kill", "Send SIGKILL to SERVICES. They stay stopped until `start`.")
_of_services("pause", "Send SIGSTOP to SERVICES: their connections stay open, and they do not answer.")
_of_services("unpause", "Send SIGCONT to paused SERVICES: they continue.")


@main.command()
@click.argument("one")
@click.argument("other", required=False)
@click.option("--one-way", is_flag=True, help="Drop only the packets from ONE to OTHER.")
@click.pass_obj
def partition(options: CommandOptions, one: str, other: str | None, one_way: bool) -> None:
    """Drop all packets between ONE and OTHER, or between ONE and all others. OTHER may be `host`: this machine."""
    if one_way and other is None:
        raise click.UsageError("--one-way needs OTHER: the service that ONE can no longer reach")
    options.request("partition", one, *([other] if other else []), flag=one_way)


@main.command()
@click.argument("services", nargs=-1)
@click.pass_obj
def heal(options: CommandOptions, services: tuple[str, ...]) -> None:
    """End network partitions: all, those of one service, or the one between two services."""
    if len(services) > 2:
        raise click.UsageError("too many services: name two, one, or none for all partitions")
    options.request("heal", *services)


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("service")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def run(options: CommandOptions, service: str, command: tuple[str, ...]) -> None:
    """Run a one-shot SERVICE until it ends, and print its output. COMMAND replaces the command in the file.

    The exit status is the service's.
    """
    sys.exit(asyncio.run(_run(options, [service, *command])))


async def _run(options: CommandOptions, words: list[str]) -> int:
    tail = screen.Tail([options.state.log(words[0])], Console(), from_start=False)
    following = asyncio.create_task(tail.follow())
    try:
        answer = options.settled(await options.ask(ControlRequest(do="run", words=words)))
    finally:
        await cancelled(following)
        tail.read()
    return answer.status if answer.status >= 0 else 128 - answer.status


@main.command()
@click.option("-v", "--volumes", is_flag=True, help="Also remove the data of the named volumes.")
@click.pass_obj
def down(options: CommandOptions, volumes: bool) -> None:
    """Stop all services, in reverse order. Logs and volumes stay."""
    if options.state.is_taken():
        options.request("down")
        options.state.wait_until_free()
    asyncio.run(namespaces.sweep())  # networks that killed runners have left
    if volumes:
        options.state.remove_volumes()


@main.command("secrets")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.pass_obj
def make_secrets(options: CommandOptions, folder: Path) -> None:
    """Make certificates, passwords and a file for clients in FOLDER, for deploy/docker-compose.secure.yml.

    What is there stays. Files with keys and passwords have mode 0600.
    """
    try:
        passwords = secrets.make(folder)
        options.env_file = folder / secrets.PASSWORDS
        services = options.project().services.values()
        found = [each for service in services for each in compose.ports(service)]
        addresses = [f"{each.host}:{each.published}" for each in found]
        secrets.write_client_settings(folder, passwords["ADMIN_PASSWORD"], addresses, found[0].host)
    except (ComposeError, InterpolationError, OSError) as error:
        raise click.ClickException(str(error)) from None


@main.command()
@click.pass_obj
def config(options: CommandOptions) -> None:
    """Check the compose file, and print the command of each service."""
    project = options.project()
    for name in compose.order(project, list(project.services)):
        click.echo(f"{name}: {' '.join(_command(project, name))}")


def _command(project: Project, name: str) -> list[str]:
    from tools.cluster.programs import program

    try:
        return program(name, project).command
    except ComposeError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main(prog_name="python -m tools.cluster")
