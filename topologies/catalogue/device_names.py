"""Devices by the names that people write: exact names, aliases, and free text of tables.

A text is split into runs of letters and of digits. An alias matches if each of its words occurs in the text, run by
run. Of several matches, the one with the most digits wins, then the longest; accelerators precede the sockets of their
hosts.
"""

from __future__ import annotations

import re
from functools import cache

from paceline.algorithms.core.errors import InputError
from paceline.algorithms.core.naming import near_miss
from paceline.topologies.catalogue.device_catalogue import SPECS, THIS_MACHINE, Spec

Runs = tuple[str, ...]


def _runs(text: str) -> Runs:
    return tuple(re.findall(r"[a-z]+|\d+", text.lower()))


def _words(alias: str) -> list[Runs]:
    """Splits an alias into words of runs.

    >>> _words("V100-SXM2 16GB")
    [('v', '100'), ('sxm', '2'), ('16', 'gb')]
    """
    return [_runs(word) for word in re.split(r"[\s\-_]+", alias)]


def _stands(word: Runs, text: Runs) -> bool:
    return any(text[at : at + len(word)] == word for at in range(len(text)))


@cache
def _aliases() -> dict[str, str]:
    """Returns the device's name for every alias and every name; words are joined by hyphens."""
    return {_joined(alias): spec.name for spec in SPECS.values() for alias in (spec.name, *spec.aliases)}


def _joined(alias: str) -> str:
    return re.sub(r"[\s_]+", "-", alias.lower())


@cache
def named(name: str) -> Spec:
    """Returns the device with this name or alias; `this-machine` is measured, which takes a second or two.

    Several sockets combined to one device have names like ``xeon-e5-2670-x2``, and one of several groups of a many-core
    chip's cores names like ``knl-7250/4``.

    Raises:
        InputError: there is none; the message suggests a similar name.

    >>> named("p100").name, named("knl").name, named("a100").name, named("xeon-e5-2670-x2").cores
    ('p100-sxm2', 'knl-7250', 'a100-sxm4-80', 16)
    >>> named("knl-7250/4").cores
    16
    >>> named("p-100")
    Traceback (most recent call last):
    paceline.algorithms.core.errors.InputError: unknown device 'p-100' (did you mean p100?)
    """
    if name == THIS_MACHINE:
        return _measured()
    known, key = _aliases(), _joined(name)
    if key in known:
        return SPECS[known[key]]
    several = re.fullmatch(r"(.+)-x(\d+)", key)
    if several and several[1] in known and SPECS[known[several[1]]].kind == "cpu" and 1 <= int(several[2]) <= 16:
        return SPECS[known[several[1]]].times(int(several[2]))
    group = re.fullmatch(r"(.+)/(\d+)", key)
    if group and group[1] in known:
        return SPECS[known[group[1]]].part(int(group[2]))
    hint = near_miss(key, [*known, THIS_MACHINE]) or f" (there are {', '.join([*SPECS, THIS_MACHINE])})"
    raise InputError(f"unknown device {name!r}{hint}")


def alias_of(name: str) -> Spec | None:
    """Returns the device of the catalogue with exactly this name or alias; None without one.

    >>> alias_of("V100").name, alias_of("my device")
    ('v100-sxm2', None)
    """
    known = _aliases().get(_joined(name))
    return None if known is None else SPECS[known]


@cache
def _measured() -> Spec:
    from paceline.topologies.catalogue.this_machine import this_machine  # imports torch, unlike the catalogue

    return this_machine()


def find(text: str) -> Spec:
    """Returns the device that a table means by this text.

    Raises:
        InputError: the text contains no device of the catalogue.

    >>> [find(text).name for text in ("V100-SXM2-16GB", "P100-SXM2 (DGX-1)", "Tesla K80", "A100-PCIe-80GB")]
    ['v100-sxm2', 'p100-sxm2', 'k80', 'a100-pcie-80']
    >>> find("P100 + POWER8 (S822LC)").name, find("2x E5-2686 v4 (r4.16xlarge)").name
    ('p100-sxm2', 'xeon-e5-2686v4-x2')
    """
    whole = _runs(text)
    best, score = "", (False, 0, 0)
    for alias, name in _aliases().items():
        words = _words(alias)
        if all(_stands(word, whole) for word in words):
            digits = sum(len(run) for word in words for run in word if run.isdigit())
            agreement = SPECS[name].kind != "cpu", digits, sum(len(run) for word in words for run in word)
            best, score = (name, agreement) if agreement > score else (best, score)
    if not best:
        raise InputError(f"found no device of the catalogue in {text!r}; there are {', '.join(SPECS)}")
    several = re.match(r"\s*(?:(\d+)\s*[x×]|(dual))\W", text.lower())
    sockets = 1 if several is None or SPECS[best].kind != "cpu" else 2 if several[2] else int(several[1])
    return SPECS[best] if sockets == 1 else SPECS[best].times(sockets)
