"""The pages in Chromium while the service, or something behind it, is away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.clusters import furnish
from tests.doors.web.conftest import NewBrowser
from tests.faults import wire
from tests.faults.outages import Stage, staged
from tests.faults.proxy import Mode, Proxy
from tests.faults.qdrant import Qdrant
from tests.journeys.service import short_parent, starting
from tests.living import living
from tests.llm.server import Answer, LlmServer, says

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

pytestmark = [pytest.mark.browser, pytest.mark.journey, pytest.mark.timeout(300)]

AWAY = "The service does not answer."
RECOVERY = 90_000
"""Milliseconds after an outage within which a page is as it was before."""


@dataclass
class Behind:
    """A service on a PostgreSQL, a Qdrant and a language model, each of which can be taken away."""

    stage: Stage
    qdrant: Proxy
    model: LlmServer

    @property
    def url(self) -> str:
        return str(self.stage.http.base_url)


@pytest.fixture(scope="module")
async def behind(short_folder: Path) -> AsyncIterator[Behind]:
    qdrant = Qdrant(short_folder / "disk" / "qdrant")
    await asyncio.to_thread(qdrant.start)
    try:
        with closing(Proxy(qdrant.port)) as proxy, closing(LlmServer()) as model:
            environment = {
                "OPENMEMORY_QDRANT_URL": proxy.url,
                "OPENMEMORY_QDRANT_TIMEOUT": "0.5",
                "OPENMEMORY_LLM_PROVIDER": "openai",
                "OPENMEMORY_LLM_MODEL": "m",
                "OPENMEMORY_LLM_API_KEY": "test-key-0123456789",
                "OPENMEMORY_LLM_BASE_URL": model.url,
            }
            async with living(staged(short_folder / "stage", **environment), 120) as stage:
                yield Behind(stage, proxy, model)
    finally:
        await asyncio.to_thread(qdrant.stop)


async def opened(browser: BrowserContext, behind: Behind, user: str) -> Page:
    """The list of a new user, who has one memory."""
    body = {"user_id": user, "text": "Alice drinks her coffee black.", "infer": False}
    answer = await behind.stage.http.post("/api/v1/memories", json=body)
    assert answer.status_code == 200, answer.text
    page = await browser.new_page()
    await page.goto(f"/ui/memories?user={user}")
    return page


async def write(page: Page, text: str) -> None:
    """Write a text into the form for a new memory."""
    if not await page.get_by_label("What to remember").is_visible():
        await page.get_by_text("Add a memory", exact=True).click()
    await page.get_by_label("What to remember").fill(text)


async def add(page: Page, text: str) -> None:
    """Add a memory, and wait until it is in the list."""
    await write(page, text)
    await page.get_by_role("button", name="Add", exact=True).click()
    await page.locator("li.memory", has_text=text).wait_for()


async def test_a_service_that_ends_and_comes_back(new_browser: NewBrowser) -> None:
    with short_parent() as parent, starting(furnish(parent / "data")) as start:
        service = start()
        url = await asyncio.to_thread(service.ready)
        async with new_browser(url, outage=True) as browser:
            page, activity = await browser.new_page(), await browser.new_page()
            await page.goto("/ui/memories")
            await activity.goto("/ui/activity")
            await add(page, "Written before")
            await activity.get_by_text("Written before").wait_for()
            await write(page, "Written meanwhile")
            await asyncio.to_thread(service.close)

            alert = page.get_by_role("alert")
            await page.get_by_role("button", name="Add", exact=True).click()
            await alert.get_by_text(AWAY).wait_for()
            assert await page.get_by_label("What to remember").input_value() == "Written meanwhile"
            await page.get_by_role("link", name="Apps", exact=True).click()
            await page.get_by_role("heading", name="Memories").wait_for()
            await page.get_by_role("searchbox").fill("before")
            await alert.get_by_text(AWAY).wait_for()

            service = start("--port", url.rpartition(":")[2])
            await asyncio.to_thread(service.ready)
            await page.get_by_role("searchbox").fill("")
            await alert.wait_for(state="detached")
            assert await page.get_by_label("What to remember").input_value() == "Written meanwhile"
            await page.get_by_role("button", name="Add", exact=True).click()
            await page.locator("li.memory", has_text="Written meanwhile").wait_for()
            await activity.get_by_text("Written meanwhile").wait_for(timeout=RECOVERY)
            assert await activity.get_by_text("Written before").count() == 1


async def test_without_qdrant_lists_searches_and_adding_go_on(new_browser: NewBrowser, behind: Behind) -> None:
    async with new_browser(behind.url) as browser:
        page = await opened(browser, behind, "qdrant")
        await asyncio.to_thread(behind.qdrant.set, Mode.REFUSE)
        try:
            await add(page, "Bob drinks his coffee with milk.")
            await page.reload()
            assert await page.locator("li.memory").count() == 2
            await page.get_by_role("searchbox").press_sequentially("coffee", delay=20)
            await page.get_by_text("2 memories found by words alone").wait_for()
            await page.get_by_text("Using text search (vector store unavailable)").wait_for()
        finally:
            await asyncio.to_thread(behind.qdrant.set, Mode.PASS)
        await _searched_by_meaning(page, "qdrant")


async def _searched_by_meaning(page: Page, user: str) -> None:
    """Search until the index answers and holds what was added without it."""
    async with asyncio.timeout(RECOVERY / 1000):
        while True:
            await page.goto(f"/ui/memories?user={user}&q=coffee")
            if (
                await page.get_by_text("2 memories found", exact=True).count()
                and not await page.locator("#found .note").count()
            ):
                return


async def test_without_postgresql_every_page_says_so(new_browser: NewBrowser, behind: Behind) -> None:
    async with new_browser(behind.url, outage=True) as browser:
        page = await opened(browser, behind, "postgres")
        activity, late = await browser.new_page(), await browser.new_page()
        await activity.goto("/ui/activity?user=postgres")
        await activity.get_by_text("Alice drinks her coffee black.").wait_for()
        await write(page, "Written meanwhile")
        await behind.stage.wire.switch(wire.Mode.REFUSE)
        await behind.stage.wire.cut()
        try:
            await page.get_by_role("button", name="Add", exact=True).click()
            await page.locator("form .refusal").wait_for()
            assert await page.get_by_label("What to remember").input_value() == "Written meanwhile"
            answer = await late.goto("/ui/memories?user=postgres")
            assert answer is not None
            assert answer.status == 503
            await late.get_by_role("heading", name="Something that this page needs does not answer").wait_for()
            assert await _followed(late, "To the memories") == 503
            await late.get_by_role("heading", name="Something that this page needs does not answer").wait_for()
        finally:
            await behind.stage.wire.switch(wire.Mode.PASS)
        async with asyncio.timeout(RECOVERY / 1000):
            while await _followed(late, "To the memories") == 503:
                pass
        await late.get_by_role("heading", name="Memories", exact=True).wait_for()
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.locator("li.memory", has_text="Written meanwhile").wait_for()
        await activity.get_by_text("Written meanwhile").wait_for(timeout=RECOVERY)
        assert await activity.locator("#feed > li").count() == 2


async def _followed(page: Page, link: str) -> int:
    """Click a link to the memories; return the status of the answer."""
    async with page.expect_response(lambda response: "/ui/memories" in response.url) as answer:
        await page.get_by_role("link", name=link).click()
    return (await answer.value).status


@pytest.fixture
def silent(behind: Behind) -> Any:
    """The language model answers nothing until the test is over."""
    over = threading.Event()

    def answer(_: dict[str, Any]) -> Answer:
        over.wait(200)
        return says({"operations": []})

    behind.model.script = answer
    yield
    over.set()


@pytest.mark.usefixtures("silent")
async def test_a_language_model_that_does_not_answer_keeps_no_page_waiting(
    new_browser: NewBrowser, behind: Behind
) -> None:
    async with new_browser(behind.url) as browser:
        page = await opened(browser, behind, "model")
        await write(page, "Alice moved to Vienna.")
        await page.get_by_label("Let the language model take facts from it").check()
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.get_by_text("The text is kept, and facts are extracted from it in the background.").wait_for()
        await page.goto("/ui/activity/captures?user=model")
        await page.get_by_text("Alice moved to Vienna.").wait_for()


@pytest.mark.slow  # a model may take a minute
@pytest.mark.usefixtures("silent")
async def test_a_model_that_is_tried_and_does_not_answer_is_told_in_words(
    new_browser: NewBrowser, behind: Behind
) -> None:
    async with new_browser(behind.url) as browser:
        page = await browser.new_page()
        await page.goto("/ui/settings/models")
        form = page.locator("#model-llm form")
        await form.get_by_role("button", name="Test").click()
        await form.get_by_text("openai/m: no answer within 60 s").wait_for(timeout=RECOVERY)
        assert await form.get_by_label("Address").input_value() == behind.model.url
