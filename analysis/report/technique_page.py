"""Method cards as Markdown: docs/techniques.md, and `sweep techniques --markdown`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from textwrap import fill

from analysis.report.technique_cards import SPACE, Card, Gain, Hyperparameter, read_costs

WIDEST = 120  # longest line of Markdown, except in tables

PREFACE = f"""# Techniques

`make docs` writes this page from the docstrings and fields of the techniques, [spaces/{SPACE}.yaml](../spaces/{SPACE}.yaml)
and the measured costs. `sweep techniques NAME` shows one card. The costs are from `python benchmarks/techniques.py`.
The baseline is momentum at a rate of 0.03, and "the demo" is the demo's model with a cosine schedule on 200 digits.
"""


def format_page(cards: Sequence[Card]) -> str:
    """The Markdown page: an index, then all cards."""
    page = "\n".join([PREFACE, format_index(cards), *map(format_card, cards)])
    return "\n".join(line if line.startswith("|") else _wrap(line) for line in page.split("\n"))


def _wrap(line: str) -> str:
    if len(line) <= WIDEST:
        return line
    indent = "  " if line.startswith("- ") else ""
    return fill(line, WIDEST, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def format_index(cards: Iterable[Card]) -> str:
    """A table with a row for each technique."""
    return _table(("technique", "what it does", "source"), [(f"`{c.name}`", c.effect, c.source) for c in cards])


def format_card(card: Card) -> str:
    """One card as Markdown."""
    return "\n".join(
        [
            f"## {card.name}",
            "",
            f"**{card.title}**: {card.effect} ({card.source}).",
            "",
            *_describe_kinds(card),
            _hyperparameter_table(card),
            f"*Interactions.* {card.interactions}",
            "",
            *([f"*Example.* `{card.example}`", ""] if card.example else []),
            *([f"*Suggested domain.*\n\n```yaml\n{card.domain}```", ""] if card.domain else []),
            *_describe_costs(card),
        ]
    )


def _describe_kinds(card: Card) -> Iterator[str]:
    for kind, words in card.kinds.items():
        if words:
            yield f"- `{kind}`: {words}"
    yield from [""] if any(card.kinds.values()) else []


def _hyperparameter_table(card: Card) -> str:
    with_kinds = bool(card.kinds)
    header = (
        *(["kind"] if with_kinds else []),
        "hyperparameter",
        "legal",
        "default" if with_kinds else "off",
        "meaning",
    )
    rows = [
        (*([kinds] if with_kinds else []), f"`{field.name}`", field.legal, field.default, field.description)
        for kinds, field in share_fields(card)
    ]
    return _table(header, rows)


def share_fields(card: Card) -> list[tuple[str, Hyperparameter]]:
    """The hyperparameters, each with the names of its kinds; kinds with the same bounds and default share an entry."""
    shared: dict[tuple[str, ...], list[Hyperparameter]] = {}
    for field in card.hyperparameters:
        shared.setdefault((field.name, field.legal, field.default, field.description), []).append(field)
    return [(_name_kinds([field.kind for field in fields], card), fields[0]) for fields in shared.values()]


def _name_kinds(kinds: list[str], card: Card) -> str:
    return "all" if kinds == list(card.kinds) and len(kinds) > 1 else ", ".join(kinds)


NOT_MEASURED = "Not measured yet."


def describe_measurement() -> str:
    """How the costs of a card were measured."""
    return (
        f"relative to the baseline, with no other value tuned, as measured on {read_costs()['machine']}; accuracy with "
        "its 95 % interval over seeds."
    )


def _describe_costs(card: Card) -> list[str]:
    """The measured costs, relative to the baseline of the same run."""
    if not card.costs:
        return [f"*Cost.* {NOT_MEASURED}", ""]
    rows = [
        (c["model"], f"`{c['values']}`", describe_times(c["time"]), f"{c['memory']:.2f}×", describe_gain(c["accuracy"]))
        for c in card.costs
    ]
    table = _table(("model", "values", "time per image", "peak memory", "accuracy"), rows)
    return [f"*Cost* {describe_measurement()}", "", table]


def describe_gain(gain: Gain | None) -> str:
    """A difference in accuracy in points; a dash if it was not measured."""
    if gain is None:
        return "–"
    return f"{100 * gain['mean']:+.1f} ± {50 * (gain['high'] - gain['low']):.1f} points"


def describe_times(values: Sequence[float]) -> str:
    """The median and, with several rounds, the range: another process can slow down one round."""
    if len(values) < 2:
        return f"{values[0]:.2f}×" if values else "–"
    return f"{median(values):.2f}× ({min(values):.2f}-{max(values):.2f})"


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)
