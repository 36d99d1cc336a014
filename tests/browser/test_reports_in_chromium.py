"""Reports in headless Chromium: they open offline without errors, every tab works, and they fit a phone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paceline.reports.html import write_report
from tests.report_samples import every_answer

webdriver = pytest.importorskip("selenium.webdriver", reason="Selenium is not installed: pip install selenium")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="Chromium or chromedriver is not installed: apt install chromium chromium-driver"
)
KINDS = ("runs", "comparison", "sweep", "plan", "check")
WIDE, PHONE = (1200, 900), (360, 740)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    return {kind: write_report(answer, folder / f"{kind}.html") for kind, answer in every_answer(folder).items()}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def open_at(browser: Any, file: Path, size: tuple[int, int], theme: str = "light") -> None:
    """Opens a file in a window of a size, for a reader who prefers a theme."""
    width, height = size
    device = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", device)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    for kind in ("browser", "performance"):
        browser.get_log(kind)  # forgets earlier pages
    browser.get(file.as_uri())
    wait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait(browser, 60)
    wait.until(lambda page: page.execute_script("return document.documentElement.dataset.loaded"))


def requests(browser: Any) -> list[str]:
    """Returns the addresses that the page has asked for."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]


def shown_panels(browser: Any) -> list[str]:
    """Returns the sections that are shown."""
    panels = "[...document.querySelectorAll('[role=tabpanel]')]"
    return list(browser.execute_script(f"return {panels}.filter((one) => !one.hidden).map((one) => one.id)"))


def undrawn(browser: Any) -> list[str]:
    """Returns the charts of shown sections that plotly has not drawn."""
    charts = "[...document.querySelectorAll('.chart, .timeline')]"
    empty = "!one.closest('[role=tabpanel]').hidden && !one.querySelector('.main-svg')"
    return list(browser.execute_script(f"return {charts}.filter((one) => {empty}).map((one) => one.id)"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_opens_offline_and_every_tab_works_with_the_keyboard(
    kind: str, files: dict[str, Path], browser: Any
) -> None:
    from selenium.webdriver.common.keys import Keys

    open_at(browser, files[kind], WIDE)
    tabs = browser.find_elements("css selector", "[role=tab]")
    names = [tab.get_attribute("aria-controls") for tab in tabs]
    browser.execute_script("arguments[0].focus()", tabs[0])
    visited = []
    for _ in tabs:
        (name,) = shown_panels(browser)
        visited.append(name)
        assert undrawn(browser) == [], f"{name}: charts without content"
        browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert visited == names and shown_panels(browser) == names[:1]
    assert [url for url in requests(browser) if not url.startswith(("file:", "data:", "blob:"))] == []
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_fits_a_phone(kind: str, files: dict[str, Path], browser: Any) -> None:
    open_at(browser, files[kind], PHONE)
    for tab in browser.find_elements("css selector", "[role=tab]"):
        browser.execute_script("arguments[0].click()", tab)
        width = browser.execute_script("return document.documentElement.scrollWidth")
        assert width <= PHONE[0], f"{tab.text}: {width} pixels"
    assert browser.get_log("browser") == []


def test_what_is_wider_than_a_phone_says_that_it_scrolls(files: dict[str, Path], browser: Any) -> None:
    open_at(browser, files["check"], (390, 844))
    browser.execute_script("document.getElementById('tab-counterexample-1').click()")
    boxes = "[...document.querySelectorAll('[role=tabpanel]:not([hidden]) .scroll')]"
    cut = f"return {boxes}.filter((one) => one.scrollWidth > one.clientWidth + 1)"
    hidden = f"{cut}.filter((one) => one.nextElementSibling.hidden).length"
    wait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait(browser, 10)
    wait.until(lambda page: page.execute_script(hidden) == 0)  # after the observer of sizes
    assert browser.execute_script(f"{cut}.some((one) => one.classList.contains('picture'))")


def test_the_theme_of_the_reader_is_used_and_can_be_changed(files: dict[str, Path], browser: Any) -> None:
    ground = partial(browser.execute_script, "return getComputedStyle(document.body).backgroundColor")
    ink = "return getComputedStyle(document.querySelector('.chart .xtitle')).fill"
    open_at(browser, files["comparison"], WIDE, "dark")
    dark = ground(), browser.execute_script(ink)
    browser.find_element("id", "theme").click()
    light = ground(), browser.execute_script(ink)
    assert dark == ("rgb(13, 17, 23)", "rgb(230, 237, 243)") and light == ("rgb(255, 255, 255)", "rgb(36, 41, 47)")
    assert browser.find_element("id", "theme").text == "Dark colours"


def test_a_timeline_shows_single_operations_after_zooming(files: dict[str, Path], browser: Any) -> None:
    open_at(browser, files["runs"], WIDE)
    browser.find_element("id", "tab-timeline").click()
    status = browser.find_element("css selector", "[role=status]")
    bars = "return document.querySelectorAll('.timeline .bars path').length"
    browser.find_element("css selector", "[data-move=start]").click()
    few = browser.execute_script(bars)
    assert "each bar is one operation" in status.text and 0 < few <= 1250
    browser.find_element("css selector", "[data-move=in]").click()
    assert 0 < browser.execute_script(bars) < few
    browser.find_element("css selector", "[data-move=all]").click()
    assert status.text.startswith("Between 0.000") or "operations between 0.000" in status.text
    choice = browser.find_element("css selector", ".choice select[data-for^=timeline]")
    script = "arguments[0].value = '1'; arguments[0].dispatchEvent(new Event('change'))"
    browser.execute_script(script, choice)
    assert browser.execute_script("return Paceline.timelineRun('timeline-0').label").startswith("async-sgd")
    assert browser.get_log("browser") == []


def test_printing_shows_every_section_in_light_colours(files: dict[str, Path], browser: Any) -> None:
    open_at(browser, files["comparison"], WIDE, "dark")
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert len(shown_panels(browser)) == len(browser.find_elements("css selector", "[role=tab]"))
    assert undrawn(browser) == []
    assert browser.execute_script("return document.documentElement.dataset.theme") == "light"
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert shown_panels(browser) == ["summary"]
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
