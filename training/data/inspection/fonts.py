"""A font for the names of classes: DejaVu Sans, which comes with matplotlib, else an installed one that has the letters."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=1000)
def find_font(text: str) -> str:
    """Return the file of a font that has all letters of a text; DejaVu Sans if there is none."""
    from matplotlib.font_manager import findfont, findSystemFonts

    usual, wanted = findfont("DejaVu Sans"), {ord(letter) for letter in text if not letter.isspace()}
    if wanted <= _letters_of(usual):
        return usual
    return next((font for font in sorted(findSystemFonts()) if wanted <= _letters_of(font)), usual)


@lru_cache(maxsize=1000)
def _letters_of(font: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(font).get_charmap())
    except (OSError, RuntimeError):  # FreeType cannot read this kind
        return frozenset()
