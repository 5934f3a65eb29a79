"""Show method cards in the terminal: plain text that fits the width, with nothing cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap

from rich.console import Group, RenderableType
from rich.text import Text

from analysis.report.technique_cards import (
    NOT_MEASURED,
    Card,
    describe_gain,
    describe_measurement,
    describe_times,
    share_fields,
)
from search.display.terminal import Column, Columns

# The column of texts of any length is the last one, because that is wrapped.
INDEX = [Column("technique"), Column("source", rank=1), Column("what it does")]
COSTS = [Column("time per image"), Column("peak memory"), Column("accuracy"), Column("values")]


def show_index(cards: Iterable[Card]) -> RenderableType:
    """Return a table with a row for each technique."""
    rows = [(card.name, card.source, card.effect) for card in cards]
    return Columns(INDEX, rows, whole=len(rows))


def show_card(card: Card, width: int) -> RenderableType:
    """Return the card of one technique, in lines of at most `width` characters."""
    return Group(
        Text(card.name, style="bold"),
        *_wrap(f"{card.title}: {card.effect} ({card.source}).", width),
        *_show_kinds(card, width),
        *_show_fields(card, width),
        *_head("Interactions"),
        *_wrap(card.interactions, width),
        *([*_head("Example"), *_wrap(card.example, width)] if card.example else []),
        *(_head("Suggested domain") if card.domain else []),
        *(Text(line, no_wrap=True) for line in card.domain.splitlines()),
        *_head("Cost"),
        *_show_costs(card, width),
    )


def _show_kinds(card: Card, width: int) -> Iterator[Text]:
    if any(card.kinds.values()):
        yield from _head("Kinds")
        for kind, words in card.kinds.items():
            yield from _wrap(f"{kind}: {words}" if words else kind, width)


def _show_fields(card: Card, width: int) -> Iterator[Text]:
    yield from _head("Hyperparameters")
    for kinds, field in share_fields(card):
        start = f"{field.name} ({kinds})" if kinds else field.name
        unset = "default" if card.kinds else "off"
        yield from _wrap(f"{start}: {field.legal}; {unset}: {field.default}. {field.description}", width)


def _show_costs(card: Card, width: int) -> Iterator[RenderableType]:
    if not card.costs:
        yield Text(NOT_MEASURED)
        return
    yield from _wrap(f"The cost is {describe_measurement()}", width)
    for model in dict.fromkeys(cost["model"] for cost in card.costs):
        rows = [
            (describe_times(cost["time"]), f"{cost['memory']:.2f}×", describe_gain(cost["accuracy"]), cost["values"])
            for cost in card.costs
            if cost["model"] == model
        ]
        yield from _head(model)
        yield Columns(COSTS, rows, whole=len(rows))


def _head(title: str) -> Iterator[Text]:
    yield Text("")
    yield Text(title, style="bold")


def _wrap(text: str, width: int) -> Iterator[Text]:
    lines = wrap(text, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return (Text(line, no_wrap=True) for line in lines)
