"""The pages as a reader's browser shows them, opened from the disk."""

import json
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    *["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
    *["--disable-quic", "--no-first-run", "--disable-background-networking"],
    *["--disable-component-update", "--disable-sync", "--hide-scrollbars"],
]
DESK, PHONE = (1280, 900), (390, 844)
LOCAL = ("file:", "data:", "blob:", "about:")
VIOLATIONS = """
const done = arguments[arguments.length - 1];
const how = {resultTypes: ["violations"], preload: false};
axe.run(document, how).then(found => done(found.violations.map(
  v => v.id + ": " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160)).join(" | "))));
"""
# A formula in a line of text that does not break is cut off at the edge of its box.
CUT = """
return [...document.querySelectorAll('span.math mjx-container')].filter(m => {
  const box = m.closest('p, li, dd, td, figcaption');
  return box && m.getBoundingClientRect().right > box.getBoundingClientRect().right + 2;
}).map(m => m.textContent.slice(0, 80));
"""


def start(folder: Path):
    """A headless Chromium whose requests are written down."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, CHROMIUM)))
    for flag in [*FLAGS, f"--user-data-dir={folder}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    return webdriver.Chrome(options=options, service=service)


@pytest.fixture(scope="module")
def browser(missing, tmp_path_factory):
    if not any(map(shutil.which, CHROMIUM)):
        missing("browser", f"there is no {' or '.join(CHROMIUM)}")
    if not shutil.which("chromedriver"):
        missing("browser", "there is no chromedriver")
    pytest.importorskip("selenium")
    driver = start(tmp_path_factory.mktemp("profile"))
    driver.get("about:blank")
    driver.get_log("performance")  # what the browser's own first tab asked for
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(html):
    """Every page of the book, and the one that search shows."""
    made = [
        p for folder in ("book", "labs") for p in sorted((html / folder).glob("*.html"))
    ]
    return [*made, html / "search.html"]


def show(browser, path: Path, size=DESK, theme="light") -> None:
    """Open a page at that size, in that theme, and wait until formulas are set."""
    width, height = size
    screen = {"width": width, "height": height, "deviceScaleFactor": 1}
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {**screen, "mobile": False}
    )
    scheme = [{"name": "prefers-color-scheme", "value": theme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    browser.get(path.as_uri())
    browser.execute_async_script(
        "const done = arguments[0];"
        "window.MathJax ? MathJax.startup.promise.then(() => done()) : done();"
    )


def test_no_request_leaves_the_page(browser, pages):
    for path in pages:
        show(browser, path)
        asked = [
            json.loads(e["message"])["message"] for e in browser.get_log("performance")
        ]
        sent = [m["params"] for m in asked if m["method"] == "Network.requestWillBeSent"]
        urls = [p["request"]["url"] for p in sent]
        assert path.as_uri() in urls
        assert not [u for u in urls if not u.startswith(LOCAL)], path


def test_no_page_reports_an_error(browser, pages):
    browser.get_log("browser")
    for path in pages:
        show(browser, path)
        errors = [
            e["message"] for e in browser.get_log("browser") if e["level"] == "SEVERE"
        ]
        assert not errors, path


def test_formulas_are_set(browser, pages):
    counts = {}
    for path in pages:
        show(browser, path)
        counts[path.stem] = browser.execute_script(
            "return [document.querySelectorAll('span.math, div.math').length,"
            "document.querySelectorAll('mjx-container').length,"
            "document.querySelectorAll('mjx-merror').length]"
        )
        written, made, wrong = counts[path.stem]
        assert wrong == 0, path
        assert (made > 0) == (written > 0), f"{path}: {written} written, {made} set"
    assert any(made for _, made, _ in counts.values()), "no page has a formula"
    font = "return [...document.fonts].filter(f => f.status == 'error').map(f => f.family)"
    assert not browser.execute_script(font)


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_no_formula_is_cut_off(browser, pages, size):
    for path in pages:
        show(browser, path, size)
        assert not browser.execute_script(CUT), path


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_theme_follows_the_reader(browser, pages, theme):
    show(browser, pages[0], theme=theme)
    assert browser.execute_script("return document.documentElement.dataset.theme") == theme
    colour = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"
    assert (int(browser.execute_script(colour)) > 127) == (theme == "light")


def test_figures_stand_on_a_light_panel_in_the_dark(browser, pages):
    """A transparent figure with dark ink would vanish."""
    panel = (
        "return [...document.querySelectorAll('.bd-article img')]"
        ".map(i => getComputedStyle(i).backgroundColor)"
    )
    for path in pages:
        show(browser, path, theme="dark")
        for colour in browser.execute_script(panel):
            assert colour == "rgb(255, 255, 255)", path


def test_nothing_is_wider_than_a_phone(browser, pages):
    for path in pages:
        show(browser, path, PHONE)
        width = browser.execute_script("return document.documentElement.scrollWidth")
        assert width <= PHONE[0], f"{path.name} is {width} wide: {wide(browser)}"


def wide(browser) -> list[str]:
    """What sticks out, for the message."""
    return browser.execute_script(
        "return [...document.querySelectorAll('body *')].filter(e => "
        "e.getBoundingClientRect().right > innerWidth + 1)"
        ".slice(0, 5).map(e => e.outerHTML.slice(0, 150))"
    )


# Each width and each theme once: colours do not hang on the width; a pass takes minutes.
@pytest.mark.parametrize(
    ("size", "theme"),
    [(DESK, "light"), (PHONE, "dark")],
    ids=["desk-light", "phone-dark"],
)
def test_axe_finds_nothing(browser, pages, theme, size):
    browser.set_script_timeout(120)
    for path in pages:
        show(browser, path, size, theme)
        browser.execute_script(AXE)
        found = browser.execute_async_script(VIOLATIONS)
        assert not found, f"{path.name}: " + "\n".join(found)


def test_keyboard_reaches_the_text(browser, pages):
    """The first Tab stop skips to the text."""
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    show(browser, pages[0])
    browser.switch_to.active_element.send_keys(Keys.TAB)
    first = browser.switch_to.active_element
    assert first.get_attribute("href").endswith("#main-content")
    WebDriverWait(browser, 5).until(lambda _: first.is_displayed())


def test_search_works_from_the_disk(browser, html):
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get_log("browser")
    browser.get((html / "search.html").as_uri() + "?q=bandwidth")
    found = "return document.querySelectorAll('ul.search > li a').length"
    WebDriverWait(browser, 10).until(lambda _: browser.execute_script(found) > 2)
    errors = [e["message"] for e in browser.get_log("browser") if e["level"] == "SEVERE"]
    assert not errors
