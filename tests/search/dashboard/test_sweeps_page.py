"""Without a name, the dashboard lists all sweeps of a storage folder and leads to each."""

import asyncio

from search.dashboard import sweeps_page
from search.dashboard.sweeps_page import KnownSweeps, make_sweeps_app
from search.display.tables.sweeps_table import describe_sweeps
from tests.search.dashboard.conftest import append


def get(app, path):
    """Return the status and the body of the answer to a GET."""
    messages = []

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        messages.append(message)

    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b"", "root_path": ""}
    asyncio.run(app(scope, receive, send))
    return messages[0]["status"], messages[1]["body"].decode()


def test_the_page_lists_each_sweep_with_its_best_score_and_a_link(make_sweep, events):
    storage = make_sweep(events, "whole").path.parent
    make_sweep(events[:20], "begun")
    status, page = get(make_sweeps_app(storage), "/")
    assert status == 200
    for name in ("whole", "begun"):
        assert f'<a href="sweeps/{name}/">{name}</a>' in page
    assert "30 of 30" in page
    assert "85.9 ± 1.0 %" in page


def test_a_link_leads_to_the_dashboard_of_the_sweep_and_back(make_sweep, events):
    app = make_sweeps_app(make_sweep(events, "whole").path.parent)
    status, page = get(app, "/sweeps/whole/")
    assert status == 200
    assert 'href="../../">All sweeps</a>' in page
    assert '"name":"whole"' in get(app, "/sweeps/whole/state")[1]
    assert "function makeSortable" in get(app, "/sweeps.js")[1]


def test_an_unknown_sweep_and_a_path_in_place_of_a_name_are_refused_with_a_sentence(make_sweep):
    app = make_sweeps_app(make_sweep().path.parent)
    for name in ("yours", "..", "a b"):
        status, text = get(app, f"/sweeps/{name}/")
        assert status == 404, name
        assert len(text) > 10


def test_a_damaged_sweep_is_named_below_the_others(make_sweep, events):
    folder = make_sweep(events, "broken")
    folder.ledger.write_text("no ledger\n")
    make_sweep(events, "whole")
    page = get(make_sweeps_app(folder.path.parent), "/")[1]
    assert "sweeps/whole/" in page
    assert "broken" in page


def test_a_ledger_that_has_not_changed_is_not_read_again(make_sweep, events, monkeypatch):
    first = make_sweep(events[:40], "first")
    make_sweep(events, "second")
    read = []
    monkeypatch.setattr(
        sweeps_page, "describe_sweeps", lambda folders: read.extend(folders) or describe_sweeps(folders)
    )
    known = KnownSweeps(first.path.parent)
    known.describe()
    known.describe()
    assert sorted(folder.name for folder in read) == ["first", "second"]
    append(first, events[40:])
    rows, _ = known.describe()
    assert [folder.name for folder in read].count("first") == 2
    assert {row[2][0] for row in rows} == {"30 of 30"}
