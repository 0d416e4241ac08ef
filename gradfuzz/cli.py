"""The command line. Nothing heavy is imported before a command runs: `gradfuzz --help` costs no torch."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gradfuzz import __version__
from gradfuzz.errors import GradfuzzError

if TYPE_CHECKING:
    from gradfuzz.campaign.event import Event
    from gradfuzz.campaign.result import Result
    from gradfuzz.report.base import Report

T = TypeVar("T")

CLEAN, FOUND, MISUSE, INTERRUPTED = 0, 1, 2, 130

# Given where a pipe's reader has gone, as shells give for a process that SIGPIPE ended.
BROKEN_PIPE = 141


def _names(ctx: click.Context, param: click.Parameter, value: object) -> tuple[str, ...] | None:
    """Give the names of a text with commas, or of a list in pyproject.toml."""
    if value is None or (isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)):
        return None if value is None else tuple(value)
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    raise click.BadParameter(f"{value!r} is no list of names", ctx=ctx, param=param)


def _number_of_workers(ctx: click.Context, param: click.Parameter, value: object) -> int:
    """Give a number of processes; ``auto`` is one a processor that this process may use."""
    if value == "auto":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        return int(str(value))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no number; use 1 or more, or auto", ctx=ctx, param=param) from None


def _listed(name: str, text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(name, type=click.UNPROCESSED, callback=_names, metavar="NAME,...", help=text)


class Rerunnable(click.Command):
    """A command that remembers the arguments it was given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the arguments in ``ctx.meta`` before they are taken apart."""
        ctx.meta["gradfuzz.args"] = list(args)
        return super().parse_args(ctx, args)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="gradfuzz")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Find wrong first and second derivatives of PyTorch functions, and keep them found.

    A TARGET is path/file.py, path/file.py::name, package.module or package.module:name.
    """
    from gradfuzz.campaign.config import read_config

    names = {command: [str(param.name) for param in cli.commands[command].params] for command in cli.commands}
    known = [name for name in names["fuzz"] if name != "targets"]
    settings = read_config(Path.cwd(), known)
    ctx.default_map = {
        command: {name: value for name, value in settings.items() if name in names[command]} for command in names
    }


@cli.command(cls=Rerunnable)
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
@click.option("--seconds", type=float, default=60.0, show_default=True, help="Budget of the whole run.")
@click.option("-n", "--max-examples", type=int, metavar="N", help="Cases a target; else as many as the time allows.")
@click.option(
    "-w",
    "--workers",
    type=click.UNPROCESSED,
    callback=_number_of_workers,
    default="1",
    show_default=True,
    metavar="N|auto",
    help="Targets searched at once.",
)
@click.option("--seed", type=int, metavar="N", help="Decides every case; else drawn, and printed.")
@click.option("--corpus", default="corpus", show_default=True, metavar="DIR", help="Where reproducers are saved.")
@_listed("--dtypes", "Dtypes to draw, such as float64,bfloat16.")
@_listed("--devices", "Devices to draw, such as cpu,cuda.")
@click.option("--order", type=int, metavar="N", help="The highest derivative to look at: 1, 2 or 3.")
@_listed("--checks", "Symptoms to look for; else all.")
@_listed("--exclude-checks", "Symptoms not to look for.")
@click.option("--max-failures", type=int, metavar="N", help="End after so many findings.")
@click.option("--baseline", metavar="FILE", help="Signatures not to report, one a line.")
@click.option("--report", multiple=True, metavar="FORMAT:PATH", help="Also write json, jsonl or junit.")
@click.option("-q", "--quiet", is_flag=True, help="Show only what was found.")
@click.option("-v", "--verbose", is_flag=True, help="Show the case of each finding, and tracebacks of our own errors.")
@click.option("--no-color", is_flag=True, help="Use no colors.")
@click.pass_context
def fuzz(ctx: click.Context, /, targets: tuple[str, ...], report: tuple[str, ...], **options: Any) -> None:
    """Search targets for wrong derivatives.

    What is found is shrunk to the smallest case, judged again, and saved.
    Exits 0 when nothing is found, 1 with findings, 2 when nothing could be tested, 130 when interrupted.
    """
    from gradfuzz.campaign import server

    server.start()  # it imports torch while this process does the rest
    from gradfuzz.campaign.settings import make_settings
    from gradfuzz.campaign.supervisor import list_jobs, supervise
    from gradfuzz.report.base import open_report
    from gradfuzz.report.terminal import TerminalReport

    quiet, verbose, no_color = (options.pop(name) for name in ("quiet", "verbose", "no_color"))
    settings = make_settings(**options)
    listeners: list[Report] = [open_report(spec) for spec in report]

    def tell(event: Event) -> None:
        for listener in listeners:
            listener.handle(event)

    terminal = TerminalReport(
        again=_again(ctx, settings.seed), quiet=quiet, verbose=verbose, color=False if no_color else None
    )
    listeners.append(terminal)
    try:
        jobs = list_jobs(targets)
        result = supervise(jobs, settings, tell)
    finally:
        for listener in listeners:
            listener.close()
    ctx.exit(exit_code(result))


def exit_code(result: Result) -> int:
    """Give the exit code of a campaign's result."""
    if result.interrupted:
        return INTERRUPTED
    if result.findings:
        return FOUND
    if result.errors or result.cases == result.rejected:
        return MISUSE
    return CLEAN


def _again(ctx: click.Context, seed: int) -> str:
    """Give the command that runs the same campaign again."""
    args: list[str] = ctx.meta["gradfuzz.args"]
    given = any(arg == "--seed" or arg.startswith("--seed=") for arg in args)
    return shlex.join(
        [
            str(ctx.parent.info_name if ctx.parent else "gradfuzz"),
            "fuzz",
            *args,
            *([] if given else ["--seed", str(seed)]),
        ]
    )


@cli.command()
@click.argument("paths", nargs=-1, metavar="[PATH...]")
@click.option("--corpus", default="corpus", show_default=True, metavar="DIR", help="Replayed when no PATH is given.")
@click.option("--allow-import", multiple=True, metavar="MODULE", help="Let reproducers import this module.")
@click.option("-q", "--quiet", is_flag=True, help="Show only files that do not pass.")
@click.option("-v", "--verbose", is_flag=True, help="Show each file's note, and tracebacks of our own errors.")
@click.pass_context
def replay(
    ctx: click.Context,
    paths: tuple[str, ...],
    corpus: str,
    allow_import: tuple[str, ...],
    quiet: bool,
    verbose: bool,
) -> None:
    """Judge saved reproducers again.

    Exits 0 when all pass or fail as expected, 1 when any does not, 2 when a file or its target cannot be loaded.
    """
    _prepare_torch()
    from collections import Counter

    from gradfuzz.corpus import exit_code as code_of
    from gradfuzz.corpus import replay as outcomes_of

    outcomes = []
    waiting = outcomes_of(list(paths) or corpus, allow_import=allow_import)
    while (outcome := _quietly(lambda: next(waiting, None))) is not None:
        outcomes.append(outcome)
        if not (quiet and outcome.status in ("passes", "known")):
            click.echo(f"{outcome.status:<14} {outcome.path}{f': {outcome.detail}' if outcome.detail else ''}")
            if verbose and outcome.reproducer is not None:
                click.echo(f"{'':<14} {outcome.reproducer.note}")
    counts = Counter(str(outcome.status) for outcome in outcomes)
    summary = ", ".join(f"{number} {status}" for status, number in counts.items())
    click.echo(f"{len(outcomes)} reproducer{'' if len(outcomes) == 1 else 's'}{f': {summary}' if summary else ''}")
    ctx.exit(code_of(outcomes))


def _quietly(act: Callable[[], T]) -> T:
    """Do something while what targets print is thrown away."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        return act()


@cli.command("list")
@click.argument("targets", nargs=-1, required=True, metavar="TARGET...")
def list_targets(targets: tuple[str, ...]) -> None:
    """Show the targets at some addresses.

    The names are those that reports and corpora use.
    """
    from gradfuzz.campaign.supervisor import list_jobs

    for job in list_jobs(targets):
        click.echo(job.name)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
def show(file: Path) -> None:
    """Show what a reproducer holds.

    That is the defect, the case, and how it was found.
    """
    _prepare_torch()
    from gradfuzz.corpus import load
    from gradfuzz.corpus.description import describe

    click.echo(describe(load(file), path=file))


@cli.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--revert", is_flag=True, help="Take the acceptance back: the defect is to be mended.")
def accept(file: Path, revert: bool) -> None:
    """Accept a defect for now.

    Its reproducer is expected to fail from now on, and replay says so when it is fixed.
    """
    _prepare_torch()
    from gradfuzz.corpus import accept as set_expectation

    reproducer = set_expectation(file, expect="pass" if revert else "fail")
    click.echo(f"{file}: expected to {reproducer.expect} from now on")


@cli.command()
@click.option("--corpus", default="corpus", show_default=True, metavar="DIR", help="The folder looked at.")
@click.pass_context
def doctor(ctx: click.Context, corpus: str) -> None:
    """Show what gradfuzz runs on, and whether it can."""
    _prepare_torch()
    from gradfuzz.report.doctor import examine

    healthy = True
    for item in examine(Path(corpus)):
        healthy = healthy and item.healthy
        click.echo(f"{'ok ' if item.healthy else 'BAD'} {item.name}: {item.text}")
    ctx.exit(CLEAN if healthy else MISUSE)


def _prepare_torch() -> None:
    """Set what must stand before torch and Hypothesis are imported into this process."""
    from gradfuzz.campaign.server import environment

    for name, value in environment().items():
        os.environ.setdefault(name, value)


def main() -> None:
    """Run the command line, and end with its exit code; an error is one line on standard error."""
    try:
        code = cli.main(prog_name="gradfuzz", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code or CLEAN)
    except GradfuzzError as error:
        _fail(str(error))
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx is not None else "gradfuzz"
        _fail(f"{error.format_message()} (see {path} --help)")
    except click.ClickException as error:
        _fail(error.format_message())
    except (KeyboardInterrupt, click.Abort):
        click.echo("gradfuzz: interrupted", err=True)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains as it ends
        sys.exit(BROKEN_PIPE)
    except Exception as error:
        if {"-v", "--verbose"} & set(sys.argv):
            raise
        _fail(f"an error of gradfuzz itself, {type(error).__name__}: {error}; run again with -v to see where")


def _fail(message: str) -> None:
    click.echo(f"gradfuzz: {' '.join(message.split())}", err=True)
    sys.exit(MISUSE)


if __name__ == "__main__":
    main()
