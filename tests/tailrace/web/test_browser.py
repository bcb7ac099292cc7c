"""The page in a real Chromium: at rest, under load, in trouble, on a phone, without JavaScript, by keyboard.

Screenshots are kept in `var/screenshots`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tailrace.web.site import Site
from tests.support.pages import reports
from tests.support.pages.served import TOKEN, served
from tests.support.paths import CHECKOUT

SCREENSHOTS = CHECKOUT / "var" / "screenshots"
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
EVERY = 5_100  # milliseconds after which the page is loaded again
STATES = {
    "rest": (reports.at_rest, "Nothing needs you"),
    "load": (reports.under_load, "Something to look at"),
    "trouble": (reports.in_trouble, "3 to look at now"),
    "not-reached": (reports.not_reached, "2 to look at now"),
    "starting": (lambda: None, "The first look has not ended yet"),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Other tests may take the processors meanwhile.
        expect.set_options(timeout=60_000)
        found = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"], timeout=180_000
        )
        yield found
        found.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with served(tmp_path_factory.mktemp("site"), reports.at_rest()) as found:
        yield found


@contextmanager
def opened(browser: Browser, site: Site, viewport: Any = WIDE, **options: Any) -> Iterator[Page]:
    """A page that is logged in; it fails the test if the browser refuses or misses something."""
    context = browser.new_context(
        viewport=viewport, base_url=f"http://127.0.0.1:{site.access.listen.port}", **options
    )
    page = context.new_page()
    page.clock.install()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: None if "//127.0.0.1:" in asked.url else wrong.append(asked.url))
    page.goto(f"/login?once={site.access.new_link()}")
    yield page
    assert wrong == []
    context.close()


def _shot(page: Page, name: str) -> None:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def _fits(page: Page) -> None:
    """Nothing reaches beyond the window's edge."""
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_each_state_is_told(browser: Browser, site: Site, state: str, viewport: Any) -> None:
    report, title = STATES[state]
    site.watch.show(report())  # type: ignore[attr-defined]
    with opened(browser, site, viewport) as page:
        expect(page.locator("h1")).to_have_text(title)
        assert "taken" not in page.title()
        _fits(page)
        _shot(page, f"{state}-{'phone' if viewport is PHONE else 'wide'}")
        if state == "not-reached":
            assert page.locator(".station.trouble .state").all_inner_texts() == [
                "not reached",
                "not reached",
            ]
        if state == "trouble":
            expect(page.locator("#attention pre").nth(1)).to_have_text(
                "tailrace error skip --channel main --event 4671:12"
            )


def test_without_javascript_everything_can_be_read(browser: Browser, site: Site) -> None:
    site.watch.show(reports.in_trouble())  # type: ignore[attr-defined]
    with opened(browser, site, java_script_enabled=False) as page:
        expect(page.locator("h1")).to_have_text("3 to look at now")
        assert page.locator("meta[http-equiv=refresh]").count() == 1
        assert page.locator("#passing tbody tr").count() == 20
        page.get_by_role("link", name="A row").click()
        page.get_by_label("Table").fill("shop.orders")
        page.get_by_label("Key").fill("id=7")
        page.get_by_role("button", name="Search").click()
        expect(page.locator("tr.changed th")).to_have_text("state changed")
        _shot(page, "row-without-javascript")
        page.get_by_role("link", name="A structure").click()
        page.get_by_label("Table").fill("shop.orders")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("cell", name="varchar(100) NULL")).to_be_visible()
        _shot(page, "structure-without-javascript")


def test_by_keyboard_alone(browser: Browser, site: Site) -> None:
    with opened(browser, site) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "To the content"
        page.keyboard.press("Enter")
        page.goto("/actions")
        copy = page.locator("form[action='/actions/copy']")
        copy.locator("input[name=all]").focus()
        page.keyboard.press("Space")
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        _shot(page, "actions-by-keyboard")
        page.keyboard.press("Enter")
        expect(page.locator(".run h3").first).to_contain_text("copy")
    assert site.runner.last(1)[0]["fields"] == {"all": "yes"}


def test_the_page_follows_without_being_loaded(browser: Browser, site: Site) -> None:
    site.watch.show(reports.at_rest())  # type: ignore[attr-defined]
    with opened(browser, site) as page:
        page.evaluate("window.kept = true")
        page.locator("#passing .wide").focus()
        site.watch.show(reports.in_trouble())  # type: ignore[attr-defined]
        page.clock.run_for(EVERY)
        expect(page.locator("h1")).to_have_text("3 to look at now")
        assert page.evaluate("window.kept && document.activeElement.closest('section').id") == "passing"
        # A session that has ended leads to the login.
        page.context.clear_cookies()
        page.clock.run_for(EVERY)
        page.wait_for_url("**/login")
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("3 to look at now")


def test_a_server_that_is_gone_is_told(browser: Browser, tmp_path: Path) -> None:
    with served(tmp_path, reports.at_rest()) as site:
        context = browser.new_context(base_url=f"http://127.0.0.1:{site.access.listen.port}")
        page = context.new_page()
        page.clock.install()
        page.goto(f"/login?once={site.access.new_link()}")
        expect(page.locator("h1")).to_have_text("Nothing needs you")
    page.clock.run_for(EVERY)
    expect(page.locator("#lost")).to_be_visible()
    context.close()
