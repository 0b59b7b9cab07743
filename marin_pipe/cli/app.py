"""One invocation: find the command, split argv, make the config, hand over to click."""

import copy
import sys
from collections.abc import Sequence
from typing import Any

import click

from marin_pipe.cli import registry
from marin_pipe.cli.context import App
from marin_pipe.cli.fields import NO_FIELDS, check_reserved
from marin_pipe.cli.help import config_help, overview
from marin_pipe.cli.override import override
from marin_pipe.cli.script import Script
from marin_pipe.cli.split import Flags, find_command, split
from marin_pipe.cli.user_code import user_code
from marin_pipe.execution.errors import ConfigurationError
from marin_pipe.execution.run import ExperimentInfo

HELP_NAMES = ["-h", "--help"]
_SETTINGS = {"help_option_names": HELP_NAMES, "max_content_width": 100}


def dispatch(argv: Sequence[str], *, program: str, script: Script | None = None) -> int:
    """Run the command that `argv` (without the program's name) asks for; the exit code.

    Raises:
        PipelineError, StorageError, click.UsageError: for `failures.guarded` to show.
    """
    fields = script.fields if script is not None else NO_FIELDS
    if list(argv) == ["--version"] and fields.resolve("version") is None:
        click.echo(f"marin-pipe {_version()}")
        return 0
    if argv[:1] == ["help"]:
        argv = [*argv[1:], "--help"]
    if script is not None and script.config_class is not None:
        check_reserved(fields, registry.FLAG_NAMES, config_class=script.config_class)
    shared = load(registry.DEFAULT_COMMAND) if script is not None else click.Command(None, params=[*common_options()])
    position = find_command(argv, commands=registry.COMMANDS, flags=flags_of(shared), fields=fields)
    if position is None and (script is None or any(name in argv for name in HELP_NAMES)):
        stray = [word for word in argv if word not in HELP_NAMES]
        if script is None and stray:
            raise ConfigurationError(f"{stray[0]} was given without a command", next=f"see {program} --help")
        click.echo(overview(program, script), nl=False)
        return 0
    if position is not None and script is None and registry.COMMANDS[argv[position]].needs == "experiment":
        raise ConfigurationError(
            f"`{program} {argv[position]}` needs an experiment",
            why="its steps are defined by a Python file",
            next=f"python experiments/NAME.py {argv[position]}; `{program} init NAME` writes such a file",
        )
    name = registry.DEFAULT_COMMAND if position is None else argv[position]
    rest = list(argv) if position is None else [*argv[:position], *argv[position + 1 :]]
    command = load(name)
    parts = split(rest, flags=flags_of(command), fields=fields)
    app = App(
        program=program,
        debug="--debug" in parts.arguments,
        overrides=tuple(f"--{n}={v}" for n, v in parts.overrides),
        may_begin=registry.COMMANDS[name].may_begin,
    )
    if script is not None:
        _attach(app, script, parts.overrides)
        if fields.by_name and any(name in argv for name in HELP_NAMES):
            command.epilog = "\b\n" + config_help(script)  # "\b" keeps click from wrapping it
    try:
        # Not `command.main`, which turns a broken pipe into exit code 1: that means a failed step here.
        with command.make_context(f"{program} {name}", list(parts.arguments), obj=app) as context:
            result = command.invoke(context)
    except click.exceptions.Exit as end:  # --help was shown
        return end.exit_code
    return int(result) if result is not None else 0


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("marin-pipe")
    except PackageNotFoundError:
        return "(not installed: run from its sources)"


def _attach(app: App, script: Script, overrides: tuple[tuple[str, str], ...]) -> None:
    config = script.default
    if overrides:
        assert script.config_class is not None  # without a config there are no fields to override
        with user_code(f"{script.config_class.__name__}()"):
            config = override(script.config_class, overrides, fields=script.fields)
    app.config = config
    app.build = lambda: script.build(config)
    app.experiment = ExperimentInfo(name=script.name, description=script.description, config=_jsonable(config))


def _jsonable(config: Any) -> Any:
    """The config for the record of the launch: for display only, so anything without a JSON form becomes its repr."""
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(config, fallback=repr, inf_nan_mode="strings")


def load(name: str) -> click.Command:
    """A command with the flags that all of them share, as a copy of the registered one."""
    command = copy.copy(registry.COMMANDS[name].load())
    command.params = [*command.params, *common_options()]
    command.context_settings = {**_SETTINGS, **command.context_settings}
    return command


def common_options() -> list[click.Option]:
    """The flags of every command, beside `--help`."""

    def set_root(context: click.Context, _: click.Parameter, value: str | None) -> None:
        context.find_object(App).root_flag = value  # type: ignore[union-attr]

    return [
        click.Option(
            ["--root"],
            metavar="URL",
            help="Storage root: a path, gs:// or s3:// URL. Default: MARIN_PIPE_ROOT, else ./outputs.",
            expose_value=False,
            callback=set_root,
            is_eager=True,
        ),
        click.Option(["--debug"], is_flag=True, help="Show tracebacks of errors.", expose_value=False),
    ]


def flags_of(command: click.Command) -> Flags:
    """Every flag of a command as written, with whether it takes a value."""
    flags = dict.fromkeys(HELP_NAMES, False)
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            for written in (*parameter.opts, *parameter.secondary_opts):
                flags[written] = not (parameter.is_flag or parameter.count)
    return flags


def program_of_this_process() -> str:
    """How the running script was started, as one would type it again."""
    import shlex

    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None:
        return f"python -m {spec.name}"
    return f"python {shlex.quote(sys.argv[0])}"
