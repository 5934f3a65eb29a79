"""Cards of the techniques as Markdown: the table of `docs/techniques.md`, and one page of the site for each technique.

`make docs` runs this file to write the table; `docs/conf.py` writes the pages when the site is built.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from textwrap import fill

from analysis.report.technique_cards import (
    NOT_MEASURED,
    SPACE,
    Card,
    describe_gain,
    describe_measurement,
    describe_times,
    read_cards,
    share_fields,
)

WIDEST = 120  # longest line of Markdown, except in tables
DOCS = Path(__file__).parent

PREFACE = f"""# Techniques

`make docs` writes this table from the docstrings of the techniques. `sweep techniques NAME` shows the card of one: its
fields, its domain in [spaces/{SPACE}.yaml](../spaces/{SPACE}.yaml), its interactions and its costs, as
`python benchmarks/techniques.py` measured them. The site has a page for each. The baseline of the costs is momentum at
a rate of 0.03, and "the demo" is the demo's model with a cosine schedule on 200 digits.
"""
PAGES = """
```{toctree}
:hidden:
:glob:
techniques/*
```
"""


def format_index(cards: Iterable[Card]) -> str:
    """The page of git: a table with a row for each technique."""
    rows = [(f"`{card.name}`", card.effect, card.source) for card in cards]
    return f"{PREFACE}\n{_table(('technique', 'what it does', 'source'), rows)}{PAGES}"


def write_pages() -> None:
    """Write one page for each technique."""
    (DOCS / "techniques").mkdir(exist_ok=True)
    for card in read_cards():
        (DOCS / "techniques" / f"{card.name}.md").write_text(format_card(card))


def format_card(card: Card) -> str:
    """One card as Markdown."""
    page = "\n".join(
        [
            f"# {card.name}",
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
    return "\n".join(line if line.startswith("|") else _wrap(line) for line in page.split("\n"))


def _wrap(line: str) -> str:
    if len(line) <= WIDEST:
        return line
    indent = "  " if line.startswith("- ") else ""
    return fill(line, WIDEST, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


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


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    (DOCS / "techniques.md").write_text(format_index(read_cards()))
