"""Commands whose help is their docstring, and which name the right option or scenario key for an unknown option."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from typer.core import TyperCommand

from paceline.algorithms.core.errors import InputError


def help_text(docstring: str | None) -> str | None:
    """Returns a command's docstring as typer's rich help has to receive it.

    Typer keeps the line breaks of the source and wraps what is longer than the terminal once more, so the lines of a
    paragraph are joined. It reads square brackets as markup, so they are escaped: a docstring has no markup.

    Args:
        docstring: paragraphs with an empty line between them; one that begins with a line ``\\b`` keeps its lines.
    """
    if docstring is None:
        return None
    paragraphs = inspect.cleandoc(docstring).split("\n\n")
    joined = (part if part.startswith("\b") else part.replace("\n", " ") for part in paragraphs)
    return escape("\n\n".join(joined))


class HintingCommand(TyperCommand):
    """A command that suggests one of its options for an unknown one."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.help = help_text(self.help)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments.

        Raises:
            InputError: for an unknown option, if there is a suggestion.
        """
        given = list(args)  # the parser consumes `args`
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if type(error).__name__ != "NoSuchOption":  # typer does not export its class, nor always take click's
                raise
            name = str(error.option_name)  # type: ignore[attr-defined]
            if not (hint := self.hint(name, given)):
                raise
            raise InputError(f"No such option: {name}{hint}") from error

    def hint(self, name: str, args: Sequence[str]) -> str:
        """Returns a suggestion for an unknown option, to follow its name; empty if there is none.

        Args:
            name: the unknown option, with its dashes.
            args: all arguments of the command, for subclasses.
        """
        from paceline.scenarios.values.key_hints import key_hint

        options = [option.lstrip("-") for each in self.params for option in each.opts if option.startswith("--")]
        key = name.lstrip("-").replace("-", "_")
        found = key_hint(key, [option.replace("-", "_") for option in options]).replace(f"({key} was", "(it was")
        return re.sub(r"\w+(?=[?)])", lambda right: f"--{right[0].replace('_', '-')}", found, count=1)


class ScenarioCommand(HintingCommand):
    """A command that runs a scenario: it suggests keys of the scenario, too."""

    def hint(self, name: str, args: Sequence[str]) -> str:
        """Returns the option, or ``--set`` with the path in the scenario, that an unknown option may mean."""
        from paceline.scenarios.resolution.key_paths import key_paths, suggestion
        from paceline.scenarios.resolution.schema import Scenario
        from paceline.scenarios.values.key_hints import COMMON, WORLD_SIZE

        key = name.lstrip("-").replace("-", "_")
        path = suggestion(key, key_paths(Scenario))
        if path is None:
            return super().hint(name, args)
        words = WORLD_SIZE if COMMON.get(key.lower()) == "nodes" else ""
        change = shlex.quote(f"{path}={value_of(name, args)}")
        return f"{words}; this is a key of the scenario: --set {change}"


def value_of(name: str, args: Sequence[str]) -> str:
    """Returns the value that an option was given with; VALUE if none follows."""
    for position, argument in enumerate(args):
        option, equals, value = argument.partition("=")
        if option == name and equals:
            return value
        if option == name and position + 1 < len(args) and not args[position + 1].startswith("--"):
            return args[position + 1]
    return "VALUE"
