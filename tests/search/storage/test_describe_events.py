from pathlib import Path

from search.storage.describe_events import describe_ledger


def test_the_page_of_the_ledger_is_generated_from_the_types():
    page = Path(__file__).parents[3] / "docs" / "ledger.md"
    assert page.read_text() == describe_ledger(), "run `make docs`"
