"""Signing in with Chromium, which sends the origin of a form only if the page lets it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import pytest

from openmemory.access.oauth.sign_in import OAuthSignIn
from openmemory.access.oauth.tokens import Tokens
from openmemory.access.schemas import KeyCreate
from openmemory.config.settings import Settings
from openmemory.doors.rest.http.credentials import COOKIE
from openmemory.doors.server.application import create_app
from openmemory.doors.server.web import Server, public
from openmemory.egress.clients import Egress
from openmemory.identity.principal import LOCAL
from openmemory.services import Services
from tests.access.oauth.authorization_server import AuthorizationServer
from tests.doors.web.conftest import Accessible, OpenPage
from tests.listening import one_socket

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = pytest.mark.browser


async def test_sign_in(open_page: OpenPage, accessible: Accessible, services: Services, new_user: str) -> None:
    key = await services.keys.create(LOCAL, KeyCreate(name="test", user_id=new_user))
    async with open_page("sign-in") as page:
        await accessible(page)
        await page.get_by_label("Key").fill("om_wrong")
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_text("The API key is invalid, revoked or expired.").wait_for()
        await accessible(page)
        await page.get_by_label("Key").fill(key.key)
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("heading", name="Memories").wait_for()
        [cookie] = [each for each in await page.context.cookies() if each["name"] == COOKIE]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")


async def test_choose_the_user(open_page: OpenPage, accessible: Accessible, services: Services, new_user: str) -> None:
    await services.directory.caller(f"not-{new_user}", None, owner=True)
    async with open_page("memories") as page:
        await page.get_by_title("Whose memory this page shows").click()
        await page.get_by_role("textbox", name="User").fill(f"not-{new_user}")
        await accessible(page)
        await page.get_by_role("button", name="Show", exact=True).click()
        await page.get_by_title("Whose memory this page shows").get_by_text(f"not-{new_user}").wait_for()
        assert page.url.endswith(f"?user=not-{new_user}")


@pytest.mark.parametrize("width", [1440, 390])
async def test_sign_in_at_an_authorization_server(
    chromium: Browser,
    accessible: Accessible,
    services: Services,
    new_user: str,
    eventually: Callable[..., Awaitable[None]],
    width: int,
) -> None:
    listening = one_socket()
    here = f"http://localhost:{listening.getsockname()[1]}"
    async with AuthorizationServer().running() as server, httpx.AsyncClient(trust_env=False) as http:
        server.user, server.asks = new_user, True
        asked = {"redirect_uris": [f"{here}/ui/sign-in/callback"], "token_endpoint_auth_method": "none"}
        client = (await http.post(server.issuer + "/register", json=asked)).json()["client_id"]
        given = {"issuer": server.issuer, "resource": here, "client_id": client}
        settings = Settings.model_validate({"data_dir": services.settings.data_dir, "oauth": given})
        tokens = Tokens.of(settings.oauth, settings.limits, Egress())
        sign_in = OAuthSignIn.of(settings.oauth, Egress())
        app = create_app(replace(services, settings=settings, tokens=tokens, sign_in=sign_in))
        serving = Server(public(app, settings, patience=1))
        running = asyncio.create_task(serving.serve([listening]))

        async def started() -> bool:
            return serving.started

        await eventually(started, within=30)
        context = await chromium.new_context(base_url=here, viewport={"width": width, "height": 900})
        context.set_default_timeout(30_000)
        page = await context.new_page()
        await page.goto("/ui/time")
        await accessible(page)
        await page.get_by_role("link", name="Sign in with").click()
        await page.get_by_role("link", name="Approve").click()
        await page.get_by_role("heading", name="Time").wait_for()
        await page.get_by_role("button", name="Sign out").click()
        await page.get_by_role("link", name="Sign in with").wait_for()
        server.denies = True
        await page.get_by_role("link", name="Sign in with").click()
        await page.get_by_text("access_denied: the user said <no>").wait_for()
        await accessible(page)
        await context.close()
        serving.should_exit = True
        await asyncio.wait_for(running, 30)
        await sign_in.close()
        await tokens.close()
