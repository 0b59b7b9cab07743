"""Help of a program as a whole, and of the fields of an experiment's config."""

import click

from marin_pipe.cli import registry
from marin_pipe.cli.fields import field_docs
from marin_pipe.cli.script import Script


def overview(program: str, script: Script | None) -> str:
    """All commands with a line each. Imports none of them."""
    formatter = click.HelpFormatter(max_width=100)
    usage = "[COMMAND] [FLAGS] [--field.path value ...]" if script is not None else "COMMAND [FLAGS]"
    formatter.write_usage(program, usage)
    formatter.write_paragraph()
    formatter.write_text("Browse and manage the outputs of experiments." if script is None else script.description)
    with formatter.section("Commands"):
        rows = [(name, entry.help) for name, entry in registry.offered(with_experiment=script is not None).items()]
        formatter.write_dl([(n, f"{h} (default)" if n == registry.DEFAULT_COMMAND else h) for n, h in rows])
    fields = f"\n{config_help(script)}\n" if script is not None and script.fields.by_name else ""
    more = f"{program} help COMMAND shows the flags of a command, {program} --version the version."
    return f"{formatter.getvalue()}{fields}\n{more}\n"


def config_help(script: Script) -> str:
    """The config's fields with types, defaults and the strings below them."""
    fields = script.fields.by_name.values()
    docs = {owner: field_docs(owner) for owner in {field.owner for field in fields}}
    rows = [
        (
            f"--{field.name}",
            f"{field.type_text} = {field.default}" if field.default else field.type_text,
            docs[field.owner].get(field.name.rpartition(".")[2], ""),
        )
        for field in fields
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    lines = [f"  {flag.ljust(widths[0])}  {kind.ljust(widths[1])}  {doc}".rstrip() for flag, kind, doc in rows]
    return "\n".join(["Config fields (--field VALUE):", *lines])
