"""Scores, differences, times and effects as text, and secrets masked in text."""

from __future__ import annotations

import math
import re

from training.score_metrics import MAXIMISED


def format_score(metric: str, score: float | None, error: float | None = None) -> str:
    """`93.4 ± 1.3 %` for accuracies, `0.213 ± 0.012` for losses and calibration; a dash if there is none (None or NaN)."""
    if score is None or math.isnan(score):
        return "–"
    return _format_number(metric, score, error) + (" %" if metric in MAXIMISED else "")


def format_points(metric: str, difference: float) -> str:
    """A difference between scores: `1.6 points` or `0.012`."""
    value = _format_number(metric, difference, None).replace("-", "−")
    return f"{value} points" if metric in MAXIMISED else value


def _format_number(metric: str, value: float, error: float | None) -> str:
    """A number without its unit; it has one digit more if the error is smaller than the last digit."""
    scale, digits = (100, 1) if metric in MAXIMISED else (1, 3)
    if error is not None and 0 < error * scale < 10**-digits:
        digits += 1
    text = f"{value * scale:z.{digits}f}"  # z: no minus before a rounded zero
    return text if error is None else f"{text} ± {error * scale:.{digits}f}"


def unit_of(metric: str) -> float:
    """The factor between a score and its displayed value: accuracies are shown in per cent."""
    return 100.0 if metric in MAXIMISED else 1.0


def label_of(metric: str) -> str:
    """The label of an axis that shows this metric."""
    name = metric.removeprefix("val_").replace("_", " ")
    return f"validation {name}" + (" (%)" if metric in MAXIMISED else "")


def format_seconds(seconds: float) -> str:
    """A time such as `42 s`, `3 min 12 s`, `4 min`, `5 h 07 min` or `2 h`; `–` if it is not known (NaN)."""
    if math.isnan(seconds):
        return "–"
    whole = max(0, round(seconds))
    minutes, hours = whole // 60, whole // 3600
    if hours:
        return f"{hours} h {minutes % 60:02d} min".removesuffix(" 00 min")
    return f"{minutes} min {whole % 60:02d} s".removesuffix(" 00 s") if minutes else f"{whole} s"


def format_megabytes(megabytes: float) -> str:
    """A size in 2**20 bytes, such as `1,234 MB`."""
    return f"{megabytes:,.0f} MB"


def format_effect(metric: str, effect: float, low: float, high: float) -> str:
    """An effect with its interval, such as `+1.3 (+0.5 to +2.1)` in points; a question mark if it is unknown."""
    if math.isnan(effect):
        return "?"
    return f"{_signed(metric, effect)} ({_signed(metric, low)} to {_signed(metric, high)})"


def _signed(metric: str, value: float) -> str:
    text = _format_number(metric, abs(value), None)
    return f"{'−' if value < 0 and float(text) else '+'}{text}"


def format_digits(value: float, digits: int) -> str:
    """A number with this many digits, such as `0.00123` or `12.3`; large ones have no exponent: `1,230`."""
    text = f"{value:.{digits}g}"
    return f"{float(text):,.0f}" if "e+" in text and abs(value) < 1e9 else text


def plural(count: int, noun: str) -> str:
    """A count with its noun, such as `1 trial` or `2,000 trials`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


MASK = "***"
# In the address of a server, everything before the @ is masked, also a single token. In that of a database only the
# password is masked; it can contain a slash.
_SERVER = re.compile(r"""(?i)(https?://)([^\s'"/?#:]*)(:[^\s'"/?#]*)?@""")
_DATABASE = re.compile(r"""(?i)\b((?!https?:)[a-z][\w+.-]*://)([^\s'"/?#:@]*)(:[^\s'"@]*(?:@[^\s'"@/?#]*)*)@""")
_QUERY = re.compile(
    r"""(?i)([?&;](?:[\w.-]*(?:pass(?!file)|pwd|token|secret|credential|signature|api_?key)[\w.-]*|sig)=)[^\s'"&;#)]+"""
)


def mask_secrets(text: str) -> str:
    """Mask the passwords and tokens in all addresses of a text; names of users and hosts are kept."""
    for pattern in (_SERVER, _DATABASE):
        text = pattern.sub(lambda match: f"{match[1]}{f'{match[2]}:' if match[3] else ''}{MASK}@", text)
    return _QUERY.sub(rf"\1{MASK}", text)


# Control characters of terminals other than line ends and tabs, and those that turn the direction of the text around them.
_CONTROLS = re.compile(r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def remove_controls(text: str) -> str:
    """Remove the characters with which a text could command a terminal: to hide or overwrite lines, or open links."""
    return _CONTROLS.sub("", text)
