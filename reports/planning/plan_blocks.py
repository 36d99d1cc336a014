"""The answer of a plan as blocks: the table of plans, what is said about them, and charts of plans and trials.

It is made from the documents that a plan stores (plan.json and trials.csv), so that a stored plan has the answer of the
command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paceline.records.figures import OF_PLANS, PLAIN, SAMPLES_TO_ACCURACY, THROUGHPUT, Figure, number, significant
from paceline.reports.blocks import Answer, Axis, Chart, Claim, Column, Plot, ReportSection, Series, Table
from paceline.reports.planning.request import stored_target
from paceline.reports.planning.search_space import OWN_NODES, SearchChoice
from paceline.reports.words import listed

FRONT = "*"
"""follows the method of a plan on the Pareto front"""
WIDE = 4.0
"""ratio of the largest to the smallest value from which an axis is logarithmic"""
Plan = Mapping[str, Any]
"""an entry of ``plans`` in plan.json"""
Trial = Mapping[str, Any]
"""a row of trials.csv"""


def answer_of_plan(document: Mapping[str, Any], scenario: str, trials: Sequence[Trial] = ()) -> Answer:
    """Returns the answer of a plan.

    Args:
        document: the content of plan.json; ``words`` are its sentences.
        scenario: the name of the scenario.
        trials: the rows of trials.csv.
    """
    seeds = len(document["seeds"]["reported"])
    return Answer(
        title=f"{scenario}: plan",
        subtitle=f"Best: {choice_words(document['best'])}",
        blocks=[plans_table(document), *claims_of(document["words"])],
        data=lambda: document,
        sections=lambda: [plans_section(document, trials)],
        summary=lambda: [
            Claim(
                f"{document['trials']['count']} trials were simulated. The best plans were simulated again with "
                f"{seeds} seed{'s' * (seeds > 1)} that no trial had used, and only these figures are shown."
            )
        ],
    )


def choice_words(plan: Plan) -> str:
    """Describes the choice of a plan."""
    return SearchChoice(**plan["choice"]).words


def claims_of(words: str) -> Iterator[Claim]:
    """Yields sentences as claims; lines that begin with spaces belong to the title above them.

    >>> [(claim.title, claim.text) for claim in claims_of("Best: agd.\\nWhy:\\n  a\\n  b")]
    [('', 'Best: agd.'), ('Why', 'a\\nb')]
    """
    title, inside = "", list[str]()
    for line in [*words.splitlines(), ""]:
        if line.startswith("  "):
            inside.append(line.strip())
            continue
        if inside:
            yield Claim("\n".join(inside), title)
            inside = []
        title = line.removesuffix(":")
        if line and title == line:
            yield Claim(line)


# --- tables ----------------------------------------------------------------------------------------------------------


def plans_table(document: Mapping[str, Any], *, every: bool = False) -> Table:
    """Returns the table of plans: the Pareto front, the best plan of each other method, and those that are none.

    Args:
        document: the content of plan.json.
        every: whether all plans are shown, with their places.
    """
    figures = [OF_PLANS[name] for name in document["objectives"]]
    plans, seeds = document["plans"] if every else shown(document["plans"]), len(document["seeds"]["reported"])
    plain_size = all(plan["choice"]["nodes"] == OWN_NODES for plan in plans)
    missed = any(plan["seeds_reached"] < len(plan["rows"]) for plan in plans)
    needed = replace(Column.of(SAMPLES_TO_ACCURACY), code="samples_to_target")
    columns = [
        Column("method"), Column("workers", PLAIN if plain_size else None),
        Column("batch", PLAIN, code="batch_per_worker"), Column("hyper-parameters"), *map(Column.of, figures),
        Column.of(THROUGHPUT), needed,
    ]  # fmt: skip
    columns += [Column("reached by")] if missed else []
    columns += [Column("place")] if every else []
    rows = []
    for plan in plans:
        choice = plan["choice"]
        size = choice["workers"] if plain_size else _size(choice)
        row = [choice["method"] + FRONT * plan["pareto"], size, choice["batch_per_worker"], _hyperparameters(choice)]
        row += [*(figure.of(plan) for figure in figures), plan["samples_per_s"], plan.get("samples_to_target")]
        row += [f"{plan['seeds_reached']} of {len(plan['rows'])} seeds"] if missed else []
        row += ["on the front" if plan["pareto"] else plan["reason"] or "dominated"] if every else []
        rows.append(row)
    aim = stored_target(document["target"]).words
    return Table(
        title="All plans that were simulated on fresh seeds"
        if every
        else f"Plans for {aim}, {seeds} fresh seed{'s' * (seeds > 1)}",
        columns=columns,
        rows=rows,
        words=f"{FRONT} on the Pareto front." + " ± is half of the 95 % interval over seeds." * (seeds > 1),
    )


def shown(plans: Sequence[Plan]) -> list[Plan]:
    """Returns the front, the best of each method and those that are no plans, by the first objective.

    Args:
        plans: the entries of ``plans`` in plan.json.
    """
    best = [own[0] for own in _by_method([plan for plan in plans if plan["reason"] is None]).values()]
    return [plan for plan in plans if plan["pareto"] or plan["reason"] or plan in best]


def _size(choice: Mapping[str, Any]) -> str:
    own = choice["nodes"] == OWN_NODES
    return f"{choice['workers']} {'worker' + 's' * (choice['workers'] > 1) if own else choice['nodes']}"


def _hyperparameters(choice: Mapping[str, Any]) -> str:
    return "\n".join(
        f"{name} {significant(value) if isinstance(value, float) else value}"
        for name, value in choice["hyperparameters"].items()
    )


# --- charts ----------------------------------------------------------------------------------------------------------


def plans_section(document: Mapping[str, Any], trials: Sequence[Trial]) -> ReportSection:
    title = "Pareto front" if len(document["objectives"]) > 1 else "Plans"
    return ReportSection("front", title, [*plan_charts(document, trials), plans_table(document, every=True)])


def plan_charts(document: Mapping[str, Any], trials: Sequence[Trial] = ()) -> list[Chart]:
    """Returns each further objective against the first, or for one objective the plans and the trials.

    Args:
        document: the content of plan.json.
        trials: the rows of trials.csv.
    """
    first, *others = (OF_PLANS[name] for name in document["objectives"])
    plans = [plan for plan in document["plans"] if plan["reason"] is None]
    if others:
        return [_against(plans, first, other, trials) for other in others]
    return [_bars(plans, first), *_effort(plans, first, trials)]


def _against(plans: Sequence[Plan], first: Figure, other: Figure, trials: Sequence[Trial]) -> Chart:
    front = [plan for plan in plans if plan["pareto"]]
    sizes = [_size(plan["choice"]) for plan in front]
    series = [
        Series("Pareto front", _means(front, first), _means(front, other), "step", colour="faint", labels=sizes),
        *(
            Series(
                name,
                _means(own, first),
                _means(own, other),
                "points",
                **_ends(own, other),
                texts=[choice_words(plan) for plan in own],
            )
            for name, own in _by_method(plans).items()
        ),
    ]
    known = [trial for trial in trials if _known(trial, first) and _known(trial, other)]
    if known:
        texts = [f"trial {trial['trial']}: {trial['method']}" for trial in known]
        x, y = ([trial[figure.key] for trial in known] for figure in (first, other))
        series.insert(0, Series("trials", x, y, "points", colour="faint", texts=texts))
    best = listed(
        [f"{choice_words(plan)} ({first.text(first.of(plan))}, {other.text(other.of(plan))})" for plan in front]
    )
    x_axis, y_axis = (Axis.of(figure, _scale(_means(plans, figure))) for figure in (first, other))
    return Chart(
        title=f"{_capital(other.label)} against {first.label}",
        words="No plan is better in both figures than a plan on the front; which one to choose is a matter of what "
        "time is worth. The front has the number of workers beside its plans; error bars are 95 % intervals, and grey "
        "points are trials.",
        alt=f"Scatter chart of {len(plans)} plans. On the front: {best}.",
        plots={"": Plot(x_axis, y_axis, series, colours=list(_by_method(plans)))},
    )


def _bars(plans: Sequence[Plan], first: Figure) -> Chart:
    rows = sorted(plans, key=lambda plan: number(first.of(plan)) or 0.0)
    places = [choice_words(plan) for plan in rows]
    of_methods = {name: [plan for plan in rows if plan in own] for name, own in _by_method(plans).items()}
    series = [
        Series(name, _means(own, first), [choice_words(plan) for plan in own], "bar", **_ends(own, first))
        for name, own in of_methods.items()
    ]
    ticks = Axis("", scale="category", ticks=places)
    plot = Plot(Axis.of(first), ticks, series, horizontal=True, colours=list(of_methods))
    return Chart(
        title=f"{_capital(first.label)} of every plan",
        words="The best plan is at the top. Thin lines are 95 % intervals over seeds: plans whose intervals overlap "
        "widely are not distinguished by these seeds.",
        alt=f"Bar chart of {len(rows)} plans; the best is {places[0]} ({first.with_symbol(first.of(rows[0]))}).",
        plots={"": plot},
    )


def _effort(plans: Sequence[Plan], first: Figure, trials: Sequence[Trial]) -> list[Chart]:
    """Returns the chart of all trials in their order, if there are any."""
    known = [trial for trial in trials if _known(trial, first)]
    if not known:
        return []
    methods = [*(plan["choice"]["method"] for plan in plans), *(str(trial["method"]) for trial in known)]
    names = list(dict.fromkeys(methods))
    series = []
    for name in names:
        own = [trial for trial in known if trial["method"] == name]
        texts = [f"{trial['workers']} workers, batch {trial['batch_per_worker']}" for trial in own]
        numbers, values = ([trial[key] for trial in own] for key in ("trial", first.key))
        series.append(Series(name, numbers, values, "points", texts=texts))
    scale = _scale([float(trial[first.key]) for trial in known])
    return [
        Chart(
            title="Every trial that reached the target",
            words="Trials are made one after the other, and later ones use what earlier ones have shown. If the lowest "
            "points are among the last, more trials may find a better plan.",
            alt=f"Scatter chart of {len(known)} trials.",
            plots={"": Plot(Axis("trial", zero=False), Axis.of(first, scale), series, colours=names)},
        )
    ]


def _means(plans: Sequence[Plan], figure: Figure) -> list[float]:
    return [number(figure.of(plan)) or 0.0 for plan in plans]


def _ends(plans: Sequence[Plan], figure: Figure) -> dict[str, Any]:
    """Returns the ends of error bars."""
    values = [figure.of(plan) for plan in plans]
    return {end: [value[end] if isinstance(value, Mapping) else value for value in values] for end in ("low", "high")}


def _by_method(plans: Sequence[Plan]) -> dict[str, list[Plan]]:
    made: dict[str, list[Plan]] = {}
    for plan in plans:
        made.setdefault(plan["choice"]["method"], []).append(plan)
    return made


def _known(trial: Trial, figure: Figure) -> bool:
    value = trial.get(figure.key)
    return isinstance(value, int | float) and value == value


def _scale(values: Sequence[float]) -> Any:
    return "log" if values and min(values) > 0 and max(values) / min(values) > WIDE else "linear"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
