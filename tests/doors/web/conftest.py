"""The pages: over HTTP as a browser without scripts sees them, and in Chromium."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from html import unescape
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI

from openmemory.doors.server.web import Server, public
from openmemory.services import Services
from tests.doors.rest.conftest import client, make_client, remember, rest_app  # noqa: F401
from tests.listening import one_socket
from tests.living import living
from tests.required import lacking
from tools.chromium import chromium_program

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page

OpenPage = Callable[..., AbstractAsyncContextManager["Page"]]
NewBrowser = Callable[..., AbstractAsyncContextManager["BrowserContext"]]
Accessible = Callable[["Page"], Awaitable[None]]


class Visitor:
    """A browser without scripts: it keeps cookies, follows redirects and fills in the forms that it is shown."""

    def __init__(self, http: httpx.AsyncClient, user: str) -> None:
        self.http = http
        self.user = user
        self.shown = ""
        self.at = ""

    async def get(self, path: str, *, status: int = 200, **parameters: Any) -> str:
        """Opens a page below `/ui/` as its user, and returns the HTML."""
        answer = await self.http.get(f"/ui/{path}", params={"user": self.user, **parameters}, follow_redirects=True)
        assert answer.status_code == status, answer.text
        return self._now(answer)

    async def submit(self, path: str, *, status: int | None = 200, **fields: Any) -> str:
        """Submits a form to a page, with the token of the last page, and returns the HTML that follows. A `status` of
        None accepts any."""
        token = re.search(r'name="token" value="(\w+)"', self.shown)
        assert token, "the page has no form"
        answer = await self.http.post(
            f"/ui/{path}", params={"user": self.user}, data={"token": token[1], **fields}, follow_redirects=True
        )
        assert status in (None, answer.status_code), answer.text
        return self._now(answer)

    def _now(self, answer: httpx.Response) -> str:
        self.shown, self.at = answer.text, str(answer.url)
        return self.shown

    @property
    def words(self) -> str:
        """The text of the page, without markup and with single blanks."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.shown)).split())

    @property
    def memory_ids(self) -> list[str]:
        """The ids of the memories that the page links to."""
        return re.findall(r'href="[./]*memory/([0-9a-f-]{36})', self.shown)


@pytest.fixture
async def visitor(rest_app: FastAPI, new_user: str, services: Services) -> AsyncIterator[Visitor]:  # noqa: F811
    """A visitor of a new user's pages."""
    await services.directory.caller(new_user, None, owner=True)
    transport = httpx.ASGITransport(rest_app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8765") as http:
        yield Visitor(http, new_user)


@pytest.fixture(scope="session")
async def site(
    services: Services,
    rest_app: FastAPI,  # noqa: F811
    eventually: Callable[..., Awaitable[None]],
) -> AsyncIterator[str]:
    """The address of the service on a port of this machine."""
    socket = one_socket()
    server = Server(public(rest_app, services.settings, patience=1))
    serving = asyncio.create_task(server.serve([socket]))

    async def started() -> bool:
        return server.started

    await eventually(started, within=30)
    yield f"http://localhost:{socket.getsockname()[1]}"
    server.should_exit = True
    await asyncio.wait_for(serving, 30)


@pytest.fixture(scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """The system's Chromium."""
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        lacking("the pages were not tried in a browser: `make .venv/.browser` installs what drives it")
    program = chromium_program()
    if program is None:
        lacking("the pages were not tried in a browser: there is no Chromium")
    async with living(async_playwright()) as driver:
        browser = await driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
def new_browser(chromium: Browser) -> NewBrowser:
    """Opens browsers that share no cookies: `async with new_browser(url) as browser`. A message of the browser, such as
    a violated policy or a failed script, fails the test. With `outage`, connections to the service may fail."""

    @asynccontextmanager
    async def opening(url: str, *, outage: bool = False, **options: Any) -> AsyncIterator[BrowserContext]:
        size = {"width": 1440, "height": 900}
        context = await chromium.new_context(**{"base_url": url, "viewport": size} | options)
        context.set_default_timeout(30_000)
        complaints: list[str] = []
        context.on(
            "console", lambda message: complaints.append(message.text) if _is_complaint(message, outage) else None
        )
        context.on("weberror", lambda error: complaints.append(str(error.error)))
        yield context
        await context.close()
        assert not complaints, complaints

    return opening


@pytest.fixture
def open_page(new_browser: NewBrowser, site: str, new_user: str, services: Services) -> OpenPage:
    """Opens pages in a browser of their own: `async with open_page("memories") as page`."""

    @asynccontextmanager
    async def opening(path: str, *, user: str = new_user, **options: Any) -> AsyncIterator[Page]:
        await services.directory.caller(user, None, owner=True)
        async with new_browser(site, **options) as browser:
            page = await browser.new_page()
            separator = "&" if "?" in path else "?"
            await page.goto(f"/ui/{path}{separator}user={user}")
            yield page

    return opening


def _is_complaint(message: ConsoleMessage, outage: bool) -> bool:
    """Chromium reports a refused request too, which the page shows; in an outage it reports lost ones, as htmx does."""
    expected = ["Failed to load resource: the server responded with"]
    if outage:
        expected += ["Failed to load resource: net::", "htmx: htmx:error", "htmx: htmx:sse:error"]
    return message.type == "error" and not message.text.startswith(tuple(expected))


@pytest.fixture
def accessible(chromium: Browser) -> Accessible:
    """Checks a page with axe for what keeps people from using it: `await accessible(page)`."""
    from axe_playwright_python.async_playwright import Axe

    async def check(page: Page) -> None:
        await page.evaluate("Promise.all(document.getAnimations().map(each => each.finished))")  # a fading text is pale
        found = await Axe().run(page)
        assert not found.violations_count, found.generate_report()

    return check
