"""The dashboard in Chromium, on a sweep whose ledger grows while the page is open."""

import re
import shutil

import pytest

from search.core.record import SweepRecord
from search.storage.requests import list_requests
from tests.search.dashboard.conftest import append
from tests.search.dashboard.test_serve import served

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


def test_a_trial_can_be_copied_into_a_new_one(make_sweep, events, open_page):
    folder = make_sweep(events)
    with served(folder) as address, folder.locked():
        page = open_page(address)
        page.get_by_role("button", name="Show trial 0004").first.click()
        page.get_by_role("button", name="Copy into a new trial").click()
        sync_api.expect(page.get_by_label("Recipe", exact=True)).to_have_value(re.compile("optimizer:"))
        page.get_by_role("button", name="Add the trial").click()
        sync_api.expect(page.locator("#add-problem")).to_contain_text("trial 0004 has this recipe already")


def test_the_findings_of_the_report_appear_when_trials_have_completed(make_sweep, events, open_page):
    folder = make_sweep(events)
    with served(folder) as address:
        page = open_page(address)
        sync_api.expect(page.locator("#findings")).to_contain_text("Costs", timeout=4 * PATIENCE)
        assert page.locator("#findings svg").count() >= 3
        page.get_by_text("How effects are measured").click()
        page.locator("#findings [data-chart=effects]").scroll_into_view_if_needed()
        sync_api.expect(page.locator("#findings [data-chart=effects] canvas").first).to_be_visible(timeout=PATIENCE)


def test_the_token_opens_the_page_once_and_the_cookie_from_then_on(make_sweep, events, open_page):
    folder = make_sweep(events)
    with served(folder, "--host", "0.0.0.0") as address:
        page = open_page(address.replace(address.split("/")[2].split(":")[0], "127.0.0.1"))
        sync_api.expect(page.locator("#state")).to_have_text("completed")
        assert "token" not in page.url
        page.reload()
        sync_api.expect(page.locator("#state")).to_have_text("completed")


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_the_page_fits_each_width_in_both_colour_schemes(make_sweep, events, open_page, scheme, width):
    with served(make_sweep(events)) as address:
        page = open_page(address, color_scheme=scheme, viewport={"width": width, "height": 900})
        sync_api.expect(page.locator("#state")).to_have_text("completed")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(20, 22, 26)") == (scheme == "dark")


def test_a_page_whose_server_has_ended_says_so(make_sweep, events, open_page):
    with served(make_sweep(events)) as address:
        page = open_page(address)
        sync_api.expect(page.locator("#state")).to_have_text("completed")
    sync_api.expect(page.locator("#lost")).to_contain_text("sweep dashboard mine")
