"""Pages of sections: the figures of `sweep confirm` and `sweep ablate` in a browser, and tables without JavaScript."""

import re

import pytest

from analysis.report.page import Chart, Section, render_page
from tests.analysis.report.test_figures import needs_browser, open_in_browser, widths

ROWS = [
    ["#1", "Trial 0007's recipe", "93.1 %"],
    ["#2–3", "The baseline", "9.5 %"],
    ["#2–3", "Trial 2's recipe", "92.9 %"],
]
RECIPES = {
    "label": "validation accuracy (%)",
    "zero": False,
    "rows": [
        {"name": "Trial 0007's recipe", "group": 0, "mean": 93.1, "low": 92.0, "high": 94.2, "text": "all <seeds>",
         "points": [[92.8, "Trial 0007's recipe\nseed 11: 92.8 %"], [93.4, "seed 12: 93.4 %"]]},
    ],
}  # fmt: skip
CONFUSION = {"classes": ["cat", "dog"], "table": [[3, 1], [0, 4]]}
BINS = {name: [{"confidence": 0.8, "accuracy": 0.7, "share": 1.0}] for name in ("before", "after")}
SECTIONS = [
    Section(text=["The winner."]),
    Section("Recipes", ["How."], [Chart("intervals", "Each recipe", RECIPES)], ("rank", "recipe", "score"), ROWS),
    Section("Test", (), [Chart("reliability", "Reliability", BINS), Chart("confusion", "Errors", CONFUSION, 300)]),
]


@pytest.fixture(scope="module")
def page():
    return render_page("quick-1, confirmed", SECTIONS)


def test_a_page_needs_no_other_file_and_is_much_smaller_than_two_megabytes(page):
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']+""", page)
    assert len(page.encode()) < 1_000_000


def test_without_javascript_the_table_is_there_and_a_line_says_what_is_missing(page):
    assert "<td>93.1\N{NO-BREAK SPACE}%</td>" in page
    assert '<noscript><p class="box">The figures need JavaScript' in page


ACT = """
  const heads = document.querySelectorAll("th button");
  if (!document.querySelector("[aria-sort=descending]")) heads[2].click();
  const charts = [...document.querySelectorAll(".canvas")].map((element) => echarts.getInstanceByDom(element));
  charts[0].dispatchAction({ type: "showTip", seriesIndex: 2, dataIndex: 0 });
  charts[2].dispatchAction({ type: "showTip", seriesIndex: 0, dataIndex: 1 });
"""


@needs_browser
def test_a_browser_names_the_seed_and_the_classes_below_the_pointer_and_sorts_the_table(page, tmp_path):
    document = open_in_browser(page, tmp_path, ACT, seen="true: cat")
    assert len(widths(document)) >= 3
    assert "Trial 0007's recipe<br>seed 11: 92.8 %" in document.replace("&#39;", "'")
    assert "true: cat<br>predicted: dog<br>1 of 4 images" in document
    names = re.findall(r"<td[^>]*>(Trial[^<]*|The baseline)</td>", document)
    assert names == ["Trial 0007's recipe", "Trial 2's recipe", "The baseline"]
    assert re.search(r'<th[^>]*aria-sort="descending"[^>]*><button type="button">score', document)
