"""The dashboard in Chromium, on a sweep whose ledger grows while the page is open."""

import re
import shutil

import pytest

from analysis.report.findings import find
from analysis.report.sweep_report import render_report
from ledger.record import SweepRecord
from ledger.requests import list_requests
from ledger.tables import make_tables
from tests.search.dashboard.conftest import append
from tests.search.dashboard.test_serve import served, start_beside

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
    """A function that opens an address; at the end no page may have logged an error, also not of its security policy."""
    contexts, errors = [], []

    def open_at(address, **options):
        contexts.append(context := browser.new_context(**options))
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto(address)
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert [error for error in errors if "ERR_CONNECTION" not in error and "status of 409" not in error] == []


def first_cells(page, count=5):
    return page.locator(".trials tbody tr td:first-child").all_inner_texts()[:count]


def test_the_page_follows_the_ledger_and_keeps_what_the_user_has_done(make_sweep, events, open_page):
    folder = make_sweep(events[:80])
    with served(folder) as address, folder.locked():
        page = open_page(address)
        sync_api.expect(page.locator("#state")).to_have_text("running")
        page.evaluate("window.isSame = true")
        page.get_by_role("button", name="epochs", exact=True).click()
        page.get_by_label("search").fill("level=full")
        before = page.locator(".trials [role=status]").inner_text()
        page.locator(".trials tbody button").first.focus()
        focused = page.evaluate("document.activeElement.getAttribute('aria-label')")
        append(folder, events[80:])
        sync_api.expect(page.locator("#facts")).to_contain_text("30 of 30")
        assert page.locator(".trials [role=status]").inner_text() != before
        assert page.get_by_label("search").input_value() == "level=full"
        assert page.locator("th[aria-sort=ascending]").inner_text().startswith("epochs")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == focused
        assert page.evaluate("window.isSame")
        best = SweepRecord.open(folder).trials.best()
        sync_api.expect(page.locator("#best-title")).to_contain_text(f"trial {best.name}")
        page.locator("[data-chart=curves]").scroll_into_view_if_needed()
        sync_api.expect(page.locator("[data-chart=curves] canvas").first).to_be_visible(timeout=PATIENCE)


@pytest.mark.slow
def test_an_open_trial_shows_its_progress_and_its_log(make_sweep, events, open_page):
    cut = next(place for place, event in enumerate(events) if event.event == "report" and event.trial == 3) + 1
    folder = make_sweep(events[:cut])
    log = folder.trial(3) / "log.txt"
    log.parent.mkdir(parents=True)
    log.write_text("epoch 1 begins\n")
    with served(folder) as address, folder.locked():
        page = open_page(address)
        page.get_by_role("button", name="Show trial 0003").first.click()
        dialog = page.locator("#trial")
        sync_api.expect(dialog).to_contain_text("1 of 9 epochs")
        sync_api.expect(page.locator("#log")).to_have_text("epoch 1 begins\n")
        log.write_text("epoch 1 begins\n<b>epoch 2 begins\n")
        append(folder, events[cut : cut + 1])
        sync_api.expect(dialog).to_contain_text("2 of 9 epochs")
        sync_api.expect(page.locator("#log")).to_contain_text("<b>epoch 2 begins")
        page.keyboard.press("Escape")
        sync_api.expect(dialog).to_be_hidden()


@pytest.mark.slow
def test_each_button_leaves_its_request_for_the_driver(make_sweep, events, open_page):
    folder = make_sweep(events[:45])
    running = next(trial for trial in SweepRecord.open(folder).trials if trial.epoch < trial.epochs and not trial.ended)
    with served(folder) as address, folder.locked():
        page = open_page(address)
        answer = page.locator("#answer")
        page.get_by_role("button", name=f"Stop trial {running.name}").click()
        page.get_by_role("button", name="Cancel").click()
        assert not list(list_requests(folder))
        page.get_by_role("button", name=f"Stop trial {running.name}").click()
        page.locator("#confirm button[value=yes]").click()
        sync_api.expect(answer).to_contain_text(f"Trial {running.name} of mine will end after its current epoch")
        page.get_by_role("button", name="Pause").click()
        sync_api.expect(answer).to_contain_text("starts no new trials")
        page.get_by_role("button", name="More trials").click()
        page.get_by_label("How many trials").fill("7")
        page.get_by_role("button", name="Extend the sweep").click()
        sync_api.expect(answer).to_contain_text("gets 7 more trials")
        page.get_by_role("button", name="Add a trial").click()
        page.get_by_label("Recipe", exact=True).fill("optimizer.lt=0.01")
        page.get_by_role("button", name="Add the trial").click()
        sync_api.expect(page.locator("#add-problem")).to_contain_text("optimizer.lt")
        page.get_by_label("Recipe", exact=True).fill("optimizer.lr=0.0123")
        page.get_by_role("button", name="Add the trial").click()
        sync_api.expect(answer).to_contain_text("will train this recipe as one more trial")
        found = [event for _, event in list_requests(folder)]
        assert [event.event for event in found] == ["stop_trial", "pause", "extend", "add"]
        assert (found[0].trial, found[2].trials, found[3].recipe.optimizer.lr) == (running.number, 7, 0.0123)
        page.get_by_role("button", name="End", exact=True).click()
        page.locator("#confirm button[value=yes]").click()
        sync_api.expect(answer).to_contain_text("Continue with: sweep resume mine")
        assert folder.stop_request.exists()


@pytest.mark.slow
def test_a_trial_can_be_copied_into_a_new_one(make_sweep, events, open_page):
    folder = make_sweep(events)
    with served(folder) as address, folder.locked():
        page = open_page(address)
        page.get_by_role("button", name="Show trial 0004").first.click()
        page.get_by_role("button", name="Copy into a new trial").click()
        sync_api.expect(page.get_by_label("Recipe", exact=True)).to_have_value(re.compile("optimizer:"))
        page.get_by_role("button", name="Add the trial").click()
        sync_api.expect(page.locator("#add-problem")).to_contain_text("trial 0004 has this recipe already")


@pytest.mark.slow
def test_the_findings_of_the_report_appear_when_trials_have_completed(make_sweep, events, open_page):
    folder = make_sweep(events)
    with served(folder) as address:
        page = open_page(address)
        sync_api.expect(page.locator("#findings")).to_contain_text("Costs", timeout=4 * PATIENCE)
        assert page.locator("#findings svg").count() >= 3
        page.get_by_text("How effects are measured").click()
        page.locator("#findings [data-chart=effects]").scroll_into_view_if_needed()
        sync_api.expect(page.locator("#findings [data-chart=effects] canvas").first).to_be_visible(timeout=PATIENCE)


@pytest.mark.slow
def test_a_finding_about_an_earlier_best_says_so_until_it_is_computed_again(make_sweep, events, open_page):
    cut = next(place for place, event in enumerate(events) if event.event == "end" and event.trial == 3) + 1
    folder = make_sweep(events[:cut])
    earlier, best = (SweepRecord.open(it).trials.best() for it in (folder, make_sweep(events, "whole")))
    assert best.number != earlier.number
    found = {"version": 0}

    def answer(route):
        lead = f'<div class="lead"><button data-trial="{found.get("trial")}">Show the trial</button></div>'
        effects = {"lead": lead, "html": "<p>effects</p>", "effects": [], "problem": ""} if found["version"] else {}
        route.fulfill(json={"version": found["version"], **effects})

    with served(folder) as address, folder.locked():
        page = open_page("about:blank")
        page.route("**/findings*", answer)
        page.goto(address)
        sync_api.expect(page.locator("#best-title")).to_contain_text(f"trial {earlier.name}")
        sync_api.expect(page.locator("#lead-behind")).to_be_hidden()
        found.update(version=1, trial=earlier.number)
        sync_api.expect(page.locator("#lead button")).to_be_visible()
        sync_api.expect(page.locator("#lead-behind")).to_be_hidden()
        append(folder, events[cut:])
        sync_api.expect(page.locator("#lead-behind")).to_contain_text(f"Trial {best.name} is the best now")
        found.update(version=2, trial=best.number)
        sync_api.expect(page.locator("#lead-behind")).to_be_hidden()


@pytest.mark.slow
def test_the_token_opens_the_page_once_and_the_cookie_from_then_on(make_sweep, events, open_page):
    folder = make_sweep(events)
    with served(folder, "--host", "0.0.0.0") as address:
        page = open_page(address.replace(address.split("/")[2].split(":")[0], "127.0.0.1"))
        sync_api.expect(page.locator("#state")).to_have_text("completed")
        assert "token" not in page.url
        page.reload()
        sync_api.expect(page.locator("#state")).to_have_text("completed")


@pytest.mark.slow
def test_the_keyboard_alone_opens_and_closes_a_trial_and_a_form(make_sweep, events, open_page):
    with served(make_sweep(events)) as address:
        page = open_page(address)
        sync_api.expect(page.locator("#state")).to_have_text("completed")
        page.locator("#add-button").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "recipe"
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.id") == "add-button"
        page.locator(".trials tbody button").first.focus()
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("#trial")).to_be_visible()
        page.keyboard.press("Escape")
        sync_api.expect(page.locator("#trial")).to_be_hidden()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_fits_each_width_in_both_colour_schemes(make_sweep, events, open_page, scheme, width):
    with served(make_sweep(events)) as address:
        page = open_page(address, color_scheme=scheme, viewport={"width": width, "height": 900})
        sync_api.expect(page.locator("#state")).to_have_text("completed")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(20, 22, 26)") == (scheme == "dark")


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
def test_the_dashboard_is_whole_on_a_phone(make_sweep, events, open_page):
    with served(make_sweep(events)) as address:
        page = open_page(address, **PHONE)
        sync_api.expect(page.locator("#state")).to_have_text("completed")
        check_on_a_phone(page)


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
def test_a_printed_report_has_pictures_open_parts_and_nothing_beyond_the_paper(make_sweep, events, open_page, tmp_path):
    paper = {"viewport": {"width": 720, "height": 1000}}
    page = open_report(make_sweep, events, open_page, tmp_path / "report.html", **paper)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    for chart in ("effects", "parallel", "scores", "curves", "best"):
        figure = page.locator(f"figure[data-chart={chart}]")
        assert figure.locator("svg").is_visible(), chart
        assert not figure.locator(".canvas").is_visible(), chart
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
    assert "trial 0006: unfreeze.level=last, 85.9 ± 1.0 %" in figure.locator(".canvas").get_attribute("aria-label")
    effects = page.locator("[data-chart=effects] .canvas").get_attribute("aria-label")
    assert "label_smoothing = alpha 0.01 to 0.3, useful: +" in effects


@pytest.mark.slow
def test_an_axis_of_accuracies_ends_at_100(make_sweep, events, open_page):
    perfect = [event.model_copy(update={"score": 1.0}) if event.event == "report" else event for event in events]
    with served(make_sweep(perfect)) as address:
        page = open_page(address)
        sync_api.expect(page.locator("#state")).to_have_text("completed")
        for chart in ("curves", "scores"):
            drawn = page.locator(f"[data-chart={chart}] .canvas")
            sync_api.expect(page.locator(f"[data-chart={chart}] .canvas:empty")).to_have_count(0, timeout=PATIENCE)
            ends = drawn.evaluate(
                "one => echarts.getInstanceByDom(one).getModel().getComponent('yAxis').axis.scale.getExtent()"
            )
            assert ends[1] == 100, chart


@pytest.mark.slow
def test_the_list_of_sweeps_is_sorted_by_a_click_and_leads_to_a_dashboard(make_sweep, events, open_page):
    first = make_sweep(events[:60], "first")
    make_sweep(events, "second")
    with served(first, name="") as address:
        page = open_page(address)
        names = page.locator("tbody tr td:first-child")
        page.get_by_role("button", name="trials").click()
        assert names.all_inner_texts() == ["first", "second"]
        page.get_by_role("button", name="trials").click()
        assert names.all_inner_texts() == ["second", "first"]
        page.get_by_role("link", name="second").click()
        sync_api.expect(page.locator("#state")).to_have_text("completed")
        page.get_by_role("link", name="All sweeps").click()
        assert names.count() == 2


@pytest.mark.slow
def test_a_dashboard_without_a_score_has_no_empty_figures(make_sweep, events, open_page):
    with served(make_sweep(events[:2])) as address:
        page = open_page(address)
        sync_api.expect(page.locator("#content")).to_be_visible()
        sync_api.expect(page.locator("[data-chart=curves]")).to_be_hidden()


@pytest.mark.slow
def test_a_page_keeps_the_end_of_a_sweep_when_its_command_has_ended(make_sweep, events, open_page):
    folder = make_sweep(events[:80])
    parent, address = start_beside(folder)
    page = open_page(address)
    sync_api.expect(page.locator("#facts")).to_contain_text("of 30")
    append(folder, events[80:])
    parent.communicate("end\n", timeout=30)
    sync_api.expect(page.locator("#over")).to_be_visible(timeout=4 * PATIENCE)
    sync_api.expect(page.locator("#facts")).to_contain_text("30 of 30")
    sync_api.expect(page.locator("#findings")).to_contain_text("from 30 trials that had ended")
    assert page.locator("#found").inner_text() == "Findings"
    assert not page.locator("#workers-part").is_visible()
    page.get_by_role("button", name="Show trial 0003").first.click()
    sync_api.expect(page.locator("#log")).to_have_text("Read the log with: sweep show mine 0003")
    page.wait_for_timeout(3000)
    assert not page.locator("#lost").is_visible()


@pytest.mark.slow
def test_findings_that_are_being_computed_are_announced_as_such(make_sweep, events, open_page):
    with served(make_sweep(events)) as address:
        page = open_page(address)
        page.route("**/findings*", lambda route: route.fulfill(json={"version": 0}))
        page.reload()
        sync_api.expect(page.locator("#no-findings")).to_contain_text("are being computed from")


@pytest.mark.slow
def test_a_refusal_in_a_dialog_goes_with_the_dialog(make_sweep, events, open_page):
    with served(make_sweep(events)) as address:
        page = open_page(address)
        page.get_by_role("button", name="More trials", exact=True).click()
        page.get_by_label("How many trials").fill("-3")
        page.get_by_role("button", name="Extend the sweep").click()
        sync_api.expect(page.locator("#extend-problem")).to_be_visible()
        assert not page.locator("#answer").is_visible()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="More trials", exact=True).click()
        assert not page.locator("#extend-problem").is_visible()


@pytest.mark.slow
def test_each_trial_shows_its_loss_accuracy_and_rate_in_each_epoch(make_sweep, events, open_page):
    rates = [
        event.model_copy(update={"metrics": {**event.metrics, "lr": 0.01, "train_accuracy": 0.5}})
        if event.event == "report"
        else event
        for event in events
    ]
    with served(make_sweep(rates)) as address:
        page = open_page(address)
        page.get_by_role("button", name="Show trial 0003").first.click()
        chart = page.locator("#trial .canvas")
        titles = chart.evaluate("canvas => echarts.getInstanceByDom(canvas).getOption().title.map((one) => one.text)")
        assert titles == ["score so far", "loss", "accuracy (%)", "learning rate"]
        page.get_by_text("Each epoch in numbers").click()
        sync_api.expect(page.locator("[data-put=scores]")).to_contain_text(
            re.compile(r"1: score [\d.]+, val_loss 1, train_loss 1, val_accuracy [\d.]+, train_accuracy 50, lr 0.01")
        )
        page.keyboard.press("Escape")
        page.locator("[data-chart=curves]").scroll_into_view_if_needed()
        page.locator("[data-chart=curves] select[name=show]").select_option("val_loss")
        drawn = page.locator("[data-chart=curves] .canvas")
        sync_api.expect(drawn.locator("canvas").first).to_be_visible(timeout=PATIENCE)
        label = drawn.evaluate("canvas => echarts.getInstanceByDom(canvas).getOption().yAxis[0].name")
        assert label == "validation loss"


@pytest.mark.slow
def test_a_page_whose_server_has_ended_says_so(make_sweep, events, open_page):
    with served(make_sweep(events)) as address:
        page = open_page(address)
        sync_api.expect(page.locator("#state")).to_have_text("completed", timeout=PATIENCE)
    sync_api.expect(page.locator("#lost")).to_contain_text("sweep dashboard mine")
