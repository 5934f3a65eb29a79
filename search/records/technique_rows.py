"""The cards of techniques as plain values. Their types are those of the cards, so that nothing is copied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from analysis.report.technique_cards import Card


@dataclass(frozen=True)
class TechniqueRow:
    """One technique: its field in a recipe, its title, what it does, and its source."""

    name: str
    title: str
    effect: str
    source: str


def list_techniques(cards: Iterable[Card]) -> list[TechniqueRow]:
    """Return a row for each technique."""
    return [TechniqueRow(card.name, card.title, card.effect, card.source) for card in cards]
