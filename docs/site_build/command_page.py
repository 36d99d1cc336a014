"""The page of all commands with their options, generated from typer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, get_args

import typer

from docs.site_build.tables import table
from paceline.cli.app import app

HEAD = """# Commands

Every command with its arguments and options, generated from the program itself. `paceline COMMAND --help` prints the
same. The [tutorial](../tutorial.md) shows the commands at work.

Exit status: 0 success, 1 the run failed, 2 the input was wrong, 130 interrupted. Standard output holds the results,
with `--json` as one document; progress and notes go to standard error.
"""
MARKUP = re.compile(r"\[/?[a-z ]*\]")


def page() -> str:
    """Returns the page."""
    return HEAD + "".join(sections())


def sections() -> Iterator[str]:
    """Yields the section of each command, sub-commands with their full name."""
    group: Any = typer.main.get_command(app)
    yield from _sections(group, "paceline")


def _sections(group: Any, prefix: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _sections(command, f"{prefix} {name}")
        elif not command.hidden:
            yield _section(command, f"{prefix} {name}")


def _section(command: Any, name: str) -> str:
    words, _, examples = (command.help or "").partition("\b\nExamples:\n")
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    usage = " ".join([name, *(_usage(each) for each in arguments), "[OPTIONS]" if options else ""]).strip()
    lines = [f"\n## {name}\n", _plain(words), f"\n~~~text\n{usage}\n~~~\n"]
    if arguments:
        lines.append(
            table(["argument", "meaning"], [[f"`{_name(each)}`", _plain(each.help or "")] for each in arguments])
        )
    if options:
        lines.append(table(["option", "default", "meaning"], [_row(each) for each in options]))
    if examples.strip():
        shown = "\n".join(line.strip() for line in examples.strip("\n").splitlines())
        lines.append(f"Examples:\n\n~~~bash\n{shown}\n~~~\n")
    return "\n".join(lines)


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name).strip("[]").upper()


def _usage(argument: Any) -> str:
    name = _name(argument) + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


def _row(option: Any) -> list[str]:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    kind = "" if option.is_flag else _kind(option)
    default = option.default if option.show_default and option.default not in (None, False, [], ()) else ""
    default = option.opts[0] if default is True else default  # of --report, --no-report
    default = "" if callable(default) else str(default)
    return [f"{names} {f'`{kind}`' if kind else ''}", f"`{default}`" if default else "", _plain(option.help or "")]


def _kind(option: Any) -> str:
    """Returns the placeholder of an option's value, or its choices."""
    annotation = option.type_descriptor.annotation
    if choices := get_args(annotation):
        annotation = choices[0]
    if all(isinstance(choice, str) for choice in choices) and choices:
        return " or ".join(choices)
    return str(option.metavar or getattr(annotation, "__name__", "")).upper().replace("STR", "TEXT")


def _plain(text: str) -> str:
    """Returns help without rich's markup; a name in bold is code."""
    text = re.sub(r"\[bold\](.*?)\[/(?:bold)?\]", r"`\1`", text)
    return MARKUP.sub("", text).replace("\b", "").strip()
