"""The page of a sweep in Chromium, from a file: what the user has done survives that the page is loaded again."""

import re
import shutil

import pytest

from analysis.report.findings import find
from analysis.report.sweep_report import render_report
from ledger.record import SweepRecord
from ledger.tables import make_tables
from search.evaluation import follow
from search.evaluation.follow import Follower, read_folder, write_last
from tests.search.evaluation.following.conftest import append

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine")
PATIENCE = 30_000  # milliseconds; the machine may be busy


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser):
    """A function that opens an address; at the end no page may have logged an error or a warning."""
    contexts, errors = [], []

    def open_at(address, **options):
        contexts.append(context := browser.new_context(**options))
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on(
            "console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None
        )
        page.goto(address)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def quick(monkeypatch):
    """Pages that are loaded again after some seconds."""
    monkeypatch.setattr(follow, "SECONDS", 1.0)


def wait_for_reload(page):
    page.evaluate("window.isOld = true")
    page.wait_for_function("!window.isOld && document.querySelector('.trials tbody tr')", timeout=4 * PATIENCE)


def test_sorting_filters_choices_the_open_trial_and_the_place_survive_that_the_page_is_loaded_again(
    make_sweep, events, open_page, tmp_path, quick
):
    folder, file = make_sweep(events[:120]), tmp_path / "page.html"
    follower = Follower(read_folder(folder), file)
    with folder.locked():
        follower.write()
        page = open_page(file.as_uri())
        sync_api.expect(page.locator("#age")).to_contain_text("ago")
        page.get_by_role("button", name="epochs", exact=True).click()
        page.get_by_label("search").fill("level=full")
        page.locator(".trials select").select_option("completed")
        page.locator("[data-chart=scores] select").select_option("seconds")
        page.get_by_text("How effects are measured").click()
        page.evaluate("scrollBy(0, document.getElementById('curves').getBoundingClientRect().top - 30)")
        shown = page.locator(".trials [role=status]").inner_text()
        append(folder, events[120:])
        follower.write()
        wait_for_reload(page)
        assert page.locator("th[aria-sort=ascending]").inner_text().startswith("epochs")
        assert page.get_by_label("search").input_value() == "level=full"
        assert page.locator(".trials select").input_value() == "completed"
        assert page.locator(".trials [role=status]").inner_text() != shown  # there are new trials
        assert page.locator("[data-chart=scores] select").input_value() == "seconds"
        assert page.locator("details:has-text('How effects are measured')").first.get_attribute("open") is not None
        assert abs(page.evaluate("document.getElementById('curves').getBoundingClientRect().top") - 30) < 3
        page.locator(".trials tbody button").first.evaluate("button => button.click()")
        title = page.locator("#trial-title").inner_text()
        page.get_by_text("Each epoch in numbers").click()
        wait_for_reload(page)
        sync_api.expect(page.locator("#trial")).to_be_visible()
        assert page.locator("#trial-title").inner_text() == title
        assert page.locator("#trial details:has-text('Each epoch')").get_attribute("open") is not None


@pytest.mark.slow
def test_the_selection_on_the_parallel_axes_survives_that_the_page_is_loaded_again(
    make_sweep, events, open_page, tmp_path, quick
):
    folder, file = make_sweep(events), tmp_path / "page.html"
    follower = Follower(read_folder(folder), file)
    with folder.locked():
        follower.write()
        page = open_page(file.as_uri())
        figure = page.locator("[data-chart=parallel] .canvas")
        sync_api.expect(figure.locator("canvas").first).to_be_visible()
        figure.evaluate(
            """one => { const chart = echarts.getInstanceByDom(one);
            const place = chart.getOption().parallelAxis.length - 1;
            const { id } = chart.getModel().getComponent("parallelAxis", place);
            chart.dispatchAction({ type: "axisAreaSelect", parallelAxisId: id, intervals: [[80, 100]] }); }"""
        )
        status = page.locator(".trials [role=status]")
        sync_api.expect(status).to_contain_text("selected by the parallel axes")
        before = status.inner_text()
        wait_for_reload(page)
        sync_api.expect(status).to_have_text(before)


def test_the_last_page_keeps_what_the_user_has_done_and_is_not_loaded_again(
    make_sweep, events, open_page, tmp_path, quick
):
    folder, file = make_sweep(events[:80]), tmp_path / "page.html"
    with folder.locked():
        Follower(read_folder(folder), file).write()
    page = open_page(file.as_uri())
    sync_api.expect(page.locator("#age")).to_contain_text("ago")
    page.get_by_label("search").fill("level=full")
    append(folder, events[80:])
    write_last(SweepRecord.open(folder), file)
    sync_api.expect(page.locator("#live")).to_have_count(0, timeout=4 * PATIENCE)
    sync_api.expect(page.get_by_label("search")).to_have_value("level=full")
    page.evaluate("window.isOld = true")
    page.wait_for_timeout(8000)
    assert page.evaluate("window.isOld")


@pytest.mark.slow
def test_an_old_page_says_that_nothing_writes_it_any_more(make_sweep, events, open_page, tmp_path, monkeypatch):
    monkeypatch.setattr(follow, "SECONDS", 0.5)
    folder, file = make_sweep(events[:80]), tmp_path / "page.html"
    with folder.locked():
        Follower(read_folder(folder), file).write()
    page = open_page(file.as_uri())
    sync_api.expect(page.locator("#stale")).to_contain_text("sweep report mine --follow", timeout=4 * PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_running_page_fits_each_width_in_both_colour_schemes_and_on_paper(
    make_sweep, events, open_page, tmp_path, scheme, width
):
    folder, file = make_sweep(events[:100]), tmp_path / "page.html"
    with folder.locked():
        Follower(read_folder(folder), file).write()
    page = open_page(file.as_uri(), color_scheme=scheme, viewport={"width": width, "height": 900})
    sync_api.expect(page.locator("[data-chart] .canvas:empty")).to_have_count(0, timeout=PATIENCE)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(20, 22, 26)") == (scheme == "dark")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 720, "height": 1000})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.scrollWidth") <= 720


PHONE = {"viewport": {"width": 390, "height": 844}}


def check_on_a_phone(page):
    """All figures are drawn before anyone scrolls, and the table shows the epochs whole and where it goes on."""
    sync_api.expect(page.locator("[data-chart] .canvas:empty")).to_have_count(0, timeout=PATIENCE)
    table = page.locator(".trials .interactive-only table")
    epochs = table.get_by_role("columnheader", name="epochs").bounding_box()
    assert epochs["x"] + epochs["width"] <= 390 - 12
    assert table.evaluate("table => table.parentElement.scrollWidth > table.parentElement.clientWidth")
    assert "gradient" in table.evaluate("table => getComputedStyle(table.parentElement).backgroundImage")


@pytest.mark.slow
def test_the_report_is_whole_on_a_phone(make_sweep, events, open_page, tmp_path):
    sweep = make_tables(SweepRecord.open(make_sweep(events)))
    (tmp_path / "report.html").write_text(render_report(find(sweep)))
    check_on_a_phone(open_page((tmp_path / "report.html").as_uri(), **PHONE))


def open_report(make_sweep, events, open_page, path, **options):
    path.write_text(render_report(find(make_tables(SweepRecord.open(make_sweep(events))))))
    page = open_page(path.as_uri(), **options)
    sync_api.expect(page.locator("[data-chart] .canvas:empty")).to_have_count(0, timeout=PATIENCE)
    return page


@pytest.mark.slow
def test_a_printed_report_has_figures_open_parts_and_nothing_beyond_the_paper(make_sweep, events, open_page, tmp_path):
    paper = {"viewport": {"width": 720, "height": 1000}}
    page = open_report(make_sweep, events, open_page, tmp_path / "report.html", **paper)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    for chart in ("effects", "parallel", "scores", "course", "curves", "best"):
        figure = page.locator(f"figure[data-chart={chart}]")
        assert figure.locator("canvas").first.is_visible(), chart
        assert 200 < figure.locator("canvas").first.bounding_box()["width"] <= 720, chart
        assert not figure.locator(".controls").is_visible(), chart
    assert page.locator("details:not(dialog details):not([open])").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 720
    widths = page.locator(".wide").evaluate_all("all => all.map((one) => one.scrollWidth - one.clientWidth)")
    assert max(widths) <= 1
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0


@pytest.mark.slow
def test_a_screen_reader_gets_the_values_of_the_trials_and_not_their_places_in_a_figure(
    make_sweep, events, open_page, tmp_path
):
    page = open_report(make_sweep, events, open_page, tmp_path / "report.html")
    figure = page.locator("[data-chart=scores]")
    figure.locator("select").select_option("unfreeze.level")
    scores = figure.locator(".canvas").get_attribute("aria-label")
    assert re.match(r"trial \d{4}: unfreeze\.level=(last|most|full), \d\d\.\d ± 1\.0 %; trial \d{4}: ", scores)
    effects = page.locator("[data-chart=effects] .canvas").get_attribute("aria-label")
    assert re.search(r"label_smoothing = alpha 0\.01 to 0\.3, [a-z ]+: [+−]\d", effects)


@pytest.mark.slow
def test_the_keyboard_alone_opens_and_closes_a_trial(make_sweep, events, open_page, tmp_path):
    page = open_report(make_sweep, events, open_page, tmp_path / "report.html")
    page.locator(".trials tbody button").first.focus()
    page.keyboard.press("Enter")
    sync_api.expect(page.locator("#trial")).to_be_visible()
    page.keyboard.press("Escape")
    sync_api.expect(page.locator("#trial")).to_be_hidden()


@pytest.mark.slow
def test_an_axis_of_accuracies_ends_at_100(make_sweep, events, open_page, tmp_path):
    perfect = [event.model_copy(update={"score": 1.0}) if event.event == "report" else event for event in events]
    page = open_report(make_sweep, perfect, open_page, tmp_path / "report.html")
    for chart in ("curves", "scores"):
        ends = page.locator(f"[data-chart={chart}] .canvas").evaluate(
            "one => echarts.getInstanceByDom(one).getModel().getComponent('yAxis').axis.scale.getExtent()"
        )
        assert ends[1] == 100, chart


@pytest.mark.slow
def test_each_trial_shows_its_loss_accuracy_and_rate_in_each_epoch(make_sweep, events, open_page, tmp_path):
    rates = [
        event.model_copy(update={"metrics": {**event.metrics, "lr": 0.01, "train_accuracy": 0.5}})
        if event.event == "report"
        else event
        for event in events
    ]
    page = open_report(make_sweep, rates, open_page, tmp_path / "report.html")
    page.get_by_role("button", name="Show trial 0003").first.evaluate("button => button.click()")
    chart = page.locator("#trial .canvas")
    titles = chart.evaluate("canvas => echarts.getInstanceByDom(canvas).getOption().title.map((one) => one.text)")
    assert titles == ["score so far", "loss", "accuracy (%)", "learning rate"]
    page.get_by_text("Each epoch in numbers").click()
    sync_api.expect(page.locator("[data-put=scores]")).to_contain_text(
        re.compile(r"1: score [\d.]+, val_loss 1, train_loss 1, val_accuracy [\d.]+, train_accuracy 50, lr 0.01")
    )
    page.keyboard.press("Escape")
    page.locator("[data-chart=curves] select[name=show]").select_option("val_loss")
    drawn = page.locator("[data-chart=curves] .canvas")
    label = drawn.evaluate("canvas => echarts.getInstanceByDom(canvas).getOption().yAxis[0].name")
    assert label == "validation loss"
