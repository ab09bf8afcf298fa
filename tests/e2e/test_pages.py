"""The pages in a real browser: they draw, they work, and they ask nobody but the server."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, expect

from browser import PHONE, Visit, browser_path, launched, visiting
from http_client import HttpClient
from loopback import Client, running
from server_process import ServerProcess

KEY = "key of the pages"
HOSTILE = "<img src=x onerror=alert(1)>"
NUMBER = re.compile(r"[\d.,]+K?")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found


@pytest.fixture
def visit(browser: Browser, minilm_server: ServerProcess) -> Iterator[Visit]:
    """A visit that must end without complaint."""
    with visiting(browser, minilm_server.base_url) as found:
        yield found
        assert found.complaints == []
        assert found.hosts == set()


@contextmanager
def keyed(browser: Browser, *names: str, is_ready: bool = True) -> Iterator[tuple[Visit, Client]]:
    """A server with a key that computes nothing."""
    with (
        running(names or ("tiny",), api_key=KEY, is_ready=is_ready) as client,
        visiting(browser, f"http://127.0.0.1:{client.port}") as found,
    ):
        yield found, client
        assert found.hosts == set()


@contextmanager
def traffic(server: ServerProcess) -> Iterator[None]:
    """Somebody uses the server, and sometimes wrongly."""
    is_over = threading.Event()

    def use() -> None:
        with HttpClient(server.base_url) as client:
            while not is_over.wait(0.02):
                assert client.post("/embed", {"inputs": ["a river", "a window"]}).status == 200
                assert client.post("/embed", {"inputs": []}).status == 400

    user = threading.Thread(target=use)
    user.start()
    try:
        yield
    finally:
        is_over.set()
        user.join(60)


@pytest.mark.parametrize("is_ci", [False, True])
def test_without_a_browser_ci_fails_and_others_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_ci: bool
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("INFINITY_TEST_BROWSER", raising=False)
    monkeypatch.setenv("INFINITY_TEST_COMPLETE", "1" if is_ci else "")
    expected = pytest.fail.Exception if is_ci else pytest.skip.Exception
    with pytest.raises(expected, match="apt-get install chromium"):
        browser_path()


def box(visit: Visit, route: str) -> Locator:
    found = visit.page.locator(f'details[data-route="{route}"]')
    found.locator("summary").click()
    return found


class TestDocs:
    def test_every_route_is_listed(self, visit: Visit, minilm_server: ServerProcess) -> None:
        visit.go("/docs")
        document: Any = minilm_server.get("/api-doc/openapi.json").json()
        documented = {
            f"{method.upper()} {path}"
            for path, methods in document["paths"].items()
            for method in methods
        }
        boxes = visit.page.locator("details")
        expect(boxes).to_have_count(len(documented))
        shown = boxes.evaluate_all("all => all.map(one => one.dataset.route)")
        assert set(shown) == documented
        assert visit.page.locator("#version").inner_text() == document["info"]["version"]

    def test_every_body_has_an_example(self, visit: Visit) -> None:
        visit.go("/docs")
        visit.page.wait_for_selector("details")
        bodies = visit.page.locator("textarea").evaluate_all("all => all.map(one => one.value)")
        assert len(bodies) >= 15
        assert [body for body in bodies if not json.loads(body)] == []

    def test_a_request_is_answered(self, visit: Visit) -> None:
        visit.go("/docs")
        embed = box(visit, "POST /embed")
        assert embed.locator(".address").count() == 0
        embed.locator("textarea").fill('{"inputs": "it\'s a test", "dimensions": 4}')
        embed.get_by_role("button", name="Show curl").click()
        embed.get_by_role("button", name="Send").click()
        result = embed.locator(".result")
        expect(result).to_have_text(re.compile(r"^200 in [\d.]+ ms, \d+ bytes$"))
        (vector,) = json.loads(embed.locator(".reply").inner_text())
        assert len(vector) == 4
        line = embed.locator(".curl").inner_text()
        assert line.startswith(f"curl '{visit.base_url}/embed' ")
        assert line.endswith("""-d '{"inputs": "it'\\''s a test", "dimensions": 4}'""")
        visit.picture("docs")

    @pytest.mark.parametrize(
        "route", ["POST /v1/embeddings", "POST /similarity", "POST /tokenize", "GET /info"]
    )
    def test_examples_are_answered(self, visit: Visit, route: str) -> None:
        visit.go("/docs")
        found = box(visit, route)
        found.get_by_role("button", name="Send").click()
        expect(found.locator(".result")).to_have_text(re.compile("^200 "))
        assert json.loads(found.locator(".reply").inner_text())

    def test_addresses_with_a_name_can_be_edited(
        self, visit: Visit, minilm_server: ServerProcess
    ) -> None:
        models: Any = minilm_server.get("/v1/models").json()
        visit.go("/docs")
        found = box(visit, "GET /v1/models/{id}")
        found.locator(".address").fill(f"/v1/models/{models['data'][0]['id']}")
        found.get_by_role("button", name="Send").click()
        expect(found.locator(".result")).to_have_text(re.compile("^200 "))

    def test_refusals_are_shown(self, browser: Browser, minilm_server: ServerProcess) -> None:
        with visiting(browser, minilm_server.base_url) as visit:
            visit.go("/docs")
            found = box(visit, "POST /embed")
            found.locator("textarea").fill('{"inputs": []}')
            found.get_by_role("button", name="Send").click()
            expect(found.locator(".result")).to_have_class("result no")
            assert "cannot be empty" in found.locator(".reply").inner_text()

    def test_key(self, browser: Browser) -> None:
        with keyed(browser) as (visit, _):
            visit.go("/docs")
            found = box(visit, "POST /embed")
            found.locator("textarea").fill('{"inputs": "a"}')
            found.get_by_role("button", name="Show curl").click()
            found.get_by_role("button", name="Send").click()
            expect(found.locator(".result")).to_have_text(re.compile("^401 "))
            visit.page.locator("#key").fill(KEY)
            found.get_by_role("button", name="Send").click()
            expect(found.locator(".result")).to_have_text(re.compile("^200 "))
            line = found.locator(".curl").inner_text()
            assert '-H "authorization: Bearer $INFINITY_API_KEY"' in line
            assert KEY not in line

    def test_phone(self, browser: Browser, minilm_server: ServerProcess) -> None:
        with visiting(browser, minilm_server.base_url, size=PHONE, is_dark=True) as visit:
            visit.go("/docs")
            box(visit, "POST /v1/embeddings")
            assert not visit.is_too_wide()
            visit.picture("docs-phone-dark")


def tile(visit: Visit, name: str) -> Locator:
    return visit.page.locator(f'[data-tile="{name}"]').first


def value(visit: Visit, name: str) -> float:
    """The first number of a tile."""
    text = tile(visit, name).locator(".value").first.inner_text()
    found = NUMBER.search(text)
    assert found is not None, text
    return float(found[0].replace(",", "").replace("K", "")) * (1000 if "K" in found[0] else 1)


class TestStatus:
    def test_draws_and_follows_the_traffic(
        self, visit: Visit, minilm_server: ServerProcess
    ) -> None:
        with traffic(minilm_server):
            visit.go("/status")
            expect(visit.page.locator("#state")).to_have_text("ready")
            expect(tile(visit, "requests").locator(".value").first).not_to_have_text("0 answered")
            first = tile(visit, "tokens").locator("path.stroke").get_attribute("d")
            expect(tile(visit, "tokens").locator("path.stroke")).not_to_have_attribute(
                "d", first or ""
            )
            expect(tile(visit, "latency").locator("path.second")).to_have_count(1)
            visit.page.wait_for_timeout(2000)
            visit.page.locator("summary").click()
            visit.picture("status")
        for name in ("tokens", "requests", "latency", "occupancy", "busy"):
            assert value(visit, name) > 0, name
        facts = visit.page.locator("dl").inner_text()
        info: Any = minilm_server.get("/info").json()
        assert info["artifact"]["id"] in facts
        assert info["artifact"]["target"] in visit.page.locator(".model").inner_text()
        assert "refused: empty" in facts
        assert f"{info['max_queue_tokens']:,}" in facts

    def test_the_page_says_what_the_document_says(
        self, visit: Visit, minilm_server: ServerProcess
    ) -> None:
        assert minilm_server.post("/embed", {"inputs": "a"}).status == 200
        visit.go("/status")
        expect(visit.page.locator("#state")).to_have_text("ready")
        status: Any = minilm_server.get("/status.json").json()
        (model,) = status["models"]
        assert visit.page.locator(".model h2").inner_text() == model["name"]
        p99 = tile(visit, "latency").locator(".value").nth(1).inner_text()
        assert p99.endswith("p99")
        assert f"version {status['version']}" in visit.page.locator("#facts").inner_text()

    def test_phone(self, browser: Browser, minilm_server: ServerProcess) -> None:
        with (
            traffic(minilm_server),
            visiting(browser, minilm_server.base_url, size=PHONE, is_dark=True) as visit,
        ):
            visit.go("/status")
            expect(visit.page.locator("#state")).to_have_text("ready")
            visit.page.wait_for_timeout(1200)
            assert not visit.is_too_wide()
            visit.picture("status-phone-dark")
            background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert background == "rgb(15, 17, 21)"

    def test_a_server_that_goes_away_is_told(self, browser: Browser) -> None:
        with running() as client, visiting(browser, f"http://127.0.0.1:{client.port}") as visit:
            visit.go("/status")
            expect(visit.page.locator("#state")).to_have_text("ready")
            visit.page.context.set_offline(True)
            expect(visit.page.locator("#trouble")).to_be_visible()
            expect(visit.page.locator("#state")).to_have_text("unreachable")
            visit.page.context.set_offline(False)
            expect(visit.page.locator("#state")).to_have_text("ready")
            expect(visit.page.locator("#trouble")).to_be_hidden()

    def test_models_that_are_loading(self, browser: Browser) -> None:
        with keyed(browser, "one", "two", is_ready=False) as (visit, _):
            open_with_key(visit)
            expect(visit.page.locator("#state")).to_have_text("loading")
            expect(visit.page.locator(".model h2")).to_have_text(["one", "two"])

    def test_names_are_text(self, browser: Browser) -> None:
        with keyed(browser, HOSTILE) as (visit, _):
            open_with_key(visit)
            expect(visit.page.locator(".model h2")).to_have_text(HOSTILE)
            expect(visit.page.locator(".value").first).to_be_visible()
            assert visit.page.locator("img").count() == 0
            assert visit.complaints == []


def open_with_key(visit: Visit) -> None:
    visit.go("/docs")
    visit.page.locator("#key").fill(KEY)
    visit.page.locator("#status").click()
    expect(visit.page.locator("#state")).to_be_visible()


class TestStatusWithKey:
    def test_the_address_alone_is_refused(self, browser: Browser) -> None:
        with keyed(browser) as (visit, _):
            visit.go("/status")
            assert "an API key is required" in visit.page.locator("body").inner_text()

    def test_the_api_page_asks_for_the_key(self, browser: Browser) -> None:
        with keyed(browser) as (visit, _):
            visit.go("/docs")
            visit.page.locator("#status").click()
            expect(visit.page.locator("#notice")).to_contain_text("needs the API key")

    def test_the_api_page_opens_it(self, browser: Browser) -> None:
        with keyed(browser, "one", "org/two") as (visit, client):
            open_with_key(visit)
            expect(visit.page.locator("#state")).to_have_text("ready")
            expect(visit.page.locator(".model h2")).to_have_text(["one", "org/two"])
            client.post("/embed", {"inputs": "a", "model": "one"}, authorization=f"Bearer {KEY}")
            answered = visit.page.locator('[data-model="one"] [data-tile="latency"] .note')
            expect(answered).to_contain_text("1 answers")
            visit.page.reload()
            expect(visit.page.locator("#state")).to_have_text("ready")
            visit.page.get_by_role("link", name="API").click()
            expect(visit.page.locator("#key")).to_have_value(KEY)
            visit.page.go_back()
            expect(visit.page.locator(".model h2")).to_have_text(["one", "org/two"])
            visit.page.go_back()
            expect(visit.page.locator("details").first).to_be_visible()
            assert [url for url in visit.urls if KEY in url or "key%20of" in url] == []
            assert visit.complaints == []

    def test_a_key_that_is_changed_is_asked_for(self, browser: Browser) -> None:
        with keyed(browser) as (visit, _):
            open_with_key(visit)
            expect(visit.page.locator("#state")).to_have_text("ready")
            visit.page.evaluate("sessionStorage.clear()")
            visit.page.route("**/status.json", lambda route: route.fulfill(status=401, body="{}"))
            expect(visit.page.locator("#locked")).to_be_visible()
            visit.page.unroute("**/status.json")
            visit.page.locator("#key").fill(KEY)
            visit.page.get_by_role("button", name="Use key").click()
            expect(visit.page.locator("#locked")).to_be_hidden()
            expect(visit.page.locator("#state")).to_have_text("ready")
