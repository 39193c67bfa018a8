"""The built pages in a real browser: python -m pytest -m slow tests/test_pages.py

Needs Chromium, and pip install -r docs/requirements.txt -r tests/requirements-pages.txt. With SHOTS
set to a directory, leaves a picture there of every page, width and theme.
"""

import functools
import html.parser
import http.server
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest

sync_api = pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
]
DOCS = Path(__file__).parents[1] / "docs"
PAGES = [page.stem for page in sorted(DOCS.glob("*.md"))]
WIDTHS = 390, 1024, 1440
SHOTS = os.environ.get("SHOTS")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "sphinx", "-q", "-W", "-n", str(DOCS), str(folder)]
    subprocess.run(build, check=True)
    return folder


@pytest.fixture(scope="module")
def site(folder):
    """The address of the built site, served from this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture(scope="module")
def browser():
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    flags += ["--disable-component-update", "--disable-sync", "--no-first-run"]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, site):
    """Opens pages; afterwards, nothing may have gone wrong in any of them."""
    problems, contexts = [], []

    def open_page(name, width=1024, theme="light"):
        size = {"width": width, "height": 900}
        contexts.append(browser.new_context(viewport=size, color_scheme=theme))
        page = contexts[-1].new_page()
        page.on("console", lambda m: m.type in ("error", "warning") and problems.append(m.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda r: r.url.startswith(site) or problems.append(f"asks {r.url}"))
        page.on("response", lambda r: r.status < 400 or problems.append(f"{r.status}: {r.url}"))
        page.goto(f"{site}/{name}.html", wait_until="networkidle")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not [text for text in problems if not text.startswith(("asks data:", "asks blob:"))]


class Anchors(html.parser.HTMLParser):
    """What a page links to, and what can be linked to in it."""

    def __init__(self, page):
        super().__init__()
        self.links, self.ids = set(), set()
        self.feed(page.read_text("utf-8"))

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.ids.add(attributes.get("id"))
        if tag == "a" and attributes.get("href"):
            self.links.add(attributes["href"])


def test_links_inside_the_site_resolve(folder):
    pages = {page.name: Anchors(page) for page in folder.glob("*.html")}
    followed = 0
    for name, page in pages.items():
        for link in page.links:
            target, fragment = urldefrag(urljoin(name, link))
            if "://" in target or target.startswith("mailto:"):
                continue
            assert (folder / unquote(target)).is_file(), f"{name}: {link}"
            if fragment and target in pages:
                assert fragment in pages[target].ids, f"{name}: {link}"
                followed += 1
    assert followed > 100


@pytest.mark.parametrize("name", PAGES)
def test_page(visit, name):
    for width in WIDTHS:
        for theme in "light", "dark":
            page = visit(name, width, theme)
            if SHOTS:
                page.screenshot(path=f"{SHOTS}/{name}_{width}_{theme}.png", full_page=True)
            where = f"{name}, {width} pixels, {theme}"
            scroll = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(scroll) <= 0, f"scrolls sideways: {where}"
            formulas = page.locator(".math").count()
            rendered = page.locator(".math mjx-container").count()
            assert rendered >= formulas, f"{formulas - rendered} formulas not rendered: {where}"
            assert not page.locator("mjx-merror, .MathJax_Error").count(), where
            for image in page.locator("article img").all():
                assert image.get_attribute("alt"), where
                assert image.evaluate("x => x.complete && x.naturalWidth > 0"), where
            for drawing in page.locator("article .drawing").all():
                assert len(drawing.locator("svg").get_attribute("aria-label")) > 20, where
                inside = drawing.bounding_box()  # it scrolls on a small screen, the page does not
                assert inside is None or inside["width"] <= width, where


def test_text_is_readable_in_both_themes(visit):
    """A drawing's words have the colour of the page's text."""
    colours = []
    for theme in "light", "dark":
        page = visit("start", theme=theme)
        colour = "e => getComputedStyle(e).fill"
        colours.append(page.locator(".drawing text").first.evaluate(colour))
        body = page.locator("article p").first.evaluate("e => getComputedStyle(e).color")
        assert colours[-1] == body
    assert colours[0] != colours[1]


def test_search_finds_the_auxiliary_phase(visit):
    page = visit("search")
    page.locator("article input[name=q], .sidebar-search").first.fill("auxiliary phase")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results li a", timeout=20_000)
    found = page.locator("#search-results li a").all_inner_texts()
    assert any("PPG" in title for title in found), found


def test_solutions_are_folded_away(visit):
    page = visit("exercises")
    assert page.locator("details").count() >= 20
    assert not page.locator("details[open]").count()
