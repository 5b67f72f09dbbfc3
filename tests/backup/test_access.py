"""Who may take a user's memory out and bring one in, and what is decided before a body is read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from openmemory.access.schemas import KeyCreate
from openmemory.identity.principal import LOCAL, Scope
from openmemory.services import Services
from tests.backup.archives import EXPORT, IMPORT, Upstream, export, send, tables_of
from tests.backup.conftest import MakeClient

ADMIN = "an-administrator-for-everyone-0123456789"


class Form:
    """A form with an archive, which notes whether it was read."""

    def __init__(self, user: str, archive: bytes | None = None) -> None:
        request = httpx.Request(
            "POST", "http://x", files={"file": ("a.zip", archive or Upstream().zip())}, data={"user_id": user}
        )
        self.body = request.read()
        self.headers = {"Content-Type": request.headers["Content-Type"]}
        self.was_read = False

    async def pieces(self) -> AsyncIterator[bytes]:
        self.was_read = True
        yield self.body


async def key(services: Services, user: str, **more: Any) -> dict[str, str]:
    """The headers of a new key of a user."""
    scopes = more.pop("scopes", [Scope.READ, Scope.WRITE])
    made = await services.keys.create(LOCAL, KeyCreate(name="k", user_id=user, scopes=scopes, **more))
    return {"Authorization": f"Bearer {made.key}"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
async def test_a_form_of_another_sites_page_is_refused_unread(
    api: httpx.AsyncClient, user: str, headers: dict[str, str]
) -> None:
    """A browser sends such a form anywhere without asking first."""
    form = Form(user)
    answer = await api.post(IMPORT, content=form.pieces(), headers=form.headers | headers)
    assert (answer.status_code, answer.json()["error"], form.was_read) == (403, "origin_not_allowed", False)


@pytest.mark.parametrize("headers", [{"Origin": "http://localhost:3000"}, {"Origin": "http://localhost:8765"}, {}])
async def test_the_page_may_send_one(api: httpx.AsyncClient, user: str, headers: dict[str, str]) -> None:
    assert (await send(api, user, Upstream().zip(), headers=headers)).status_code == 200


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/x-www-form-urlencoded", None])
async def test_anything_but_a_form_is_refused(api: httpx.AsyncClient, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    answer = await api.post(IMPORT, content=b"user_id=alice", headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (IMPORT, "application/json"),
        (IMPORT, "multipart/form-data-not; boundary=x"),
        (f"{IMPORT}/more", "multipart/form-data; boundary=x"),
        (EXPORT, "multipart/form-data; boundary=x"),
        ("/api/v1/memories", "multipart/form-data; boundary=x"),
    ],
)
async def test_only_a_form_for_the_import_may_be_larger_than_other_bodies(
    make_client: MakeClient, path: str, kind: str
) -> None:
    async with make_client(limits={"body": 2_000}) as client:
        answer = await client.post(path, content=b"x" * 3_000, headers={"Content-Type": kind})
    assert answer.status_code == 413
    assert answer.json()["detail"].endswith("(limits.body)")


@pytest.mark.usefixtures("in_bulk")
async def test_a_form_may_be_larger_than_other_bodies_and_hold_more_than_json_may(
    make_client: MakeClient, user: str
) -> None:
    archive = Upstream()
    for number in range(400):
        archive.memory(f"memory number {number}", metadata={"list": [1] * 20})
    async with make_client(limits={"body": 2_000, "json_values": 1_000}) as client:
        assert (await send(client, user, archive.zip())).status_code == 200
        form = Form(user, archive.zip())
        answer = await client.post(IMPORT, content=form.pieces(), headers=form.headers)
    assert answer.status_code == 200, answer.text


async def test_without_a_credential_nothing_is_read(make_client: MakeClient, user: str) -> None:
    form = Form(user)
    async with make_client(access={"require": "always", "api_key": ADMIN}) as client:
        answer = await client.post(IMPORT, content=form.pieces(), headers=form.headers)
    assert (answer.status_code, form.was_read) == (401, False)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"app": "claude"}, "owner_only"),
        ({"namespaces": ["work"]}, "namespace_not_allowed"),
        ({"scopes": [Scope.READ]}, "insufficient_scope"),
    ],
)
async def test_a_credential_that_may_not_import_is_refused_before_anything_is_read(
    services: Services, api: httpx.AsyncClient, user: str, more: dict[str, Any], code: str
) -> None:
    form = Form(user)
    answer = await api.post(IMPORT, content=form.pieces(), headers=form.headers | await key(services, user, **more))
    assert (answer.status_code, answer.json()["error"], form.was_read) == (403, code, False)


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"app": "claude"}, "owner_only"),
        ({"namespaces": ["work"]}, "namespace_not_allowed"),
        ({"scopes": [Scope.WRITE]}, "insufficient_scope"),
    ],
)
async def test_a_credential_that_may_not_read_everything_may_not_export(
    services: Services, api: httpx.AsyncClient, user: str, more: dict[str, Any], code: str
) -> None:
    answer = await api.post(EXPORT, json={"user_id": user}, headers=await key(services, user, **more))
    assert (answer.status_code, answer.json()["error"]) == (403, code)


async def test_a_key_of_one_user_reaches_no_other(services: Services, api: httpx.AsyncClient, user: str) -> None:
    headers = await key(services, f"{user}-other")
    exported = await api.post(EXPORT, json={"user_id": user}, headers=headers)
    imported = await send(api, user, Upstream().zip(), headers=headers)
    for answer in (exported, imported):
        assert (answer.status_code, answer.json()["error"]) == (403, "user_not_allowed")


async def test_what_all_users_share_is_not_written_with_a_key_of_one(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    """The description of a category would be read by whoever files under its name; an address is one user's."""
    archive = Upstream()
    archive.memory("something", categories=[archive.category(f"food of {user}", description="Read this!")])
    archive.tables["user"]["email"] = f"{user}@example.com"
    headers = await key(services, user)
    answer = await send(api, user, archive.zip(), headers=headers)
    assert [item["kind"] for item in answer.json()["report"]["left_out"]] == ["user", "category"]
    exported = (await api.get("/api/v1/memories", params={"user_id": user})).json()
    assert exported["items"][0]["categories"] == [f"food of {user}"]
    tables = tables_of(await export(api, user))
    assert (tables["user"]["email"], tables["categories"][0]["description"]) == (None, None)


def part(*headers: str, value: str = "") -> str:
    lines = "".join(f"{header}\r\n" for header in headers)
    return f"--x\r\n{lines}\r\n{value}\r\n"


FILE = part('Content-Disposition: form-data; name="file"; filename="a.zip"', value="PK")


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ("", 400, "body: is not a valid form: it ends too soon"),
        (FILE, 400, "body: is not a valid form: it ends too soon"),
        ("rubbish", 400, "body: is not a valid form"),
        (FILE * 2 + "--x--\r\n", 422, "file: is there twice"),
        (part('Content-Disposition: form-data; name="file"', value="PK") + "--x--\r\n", 422, "file: must be sent as a"),
        (part('Content-Disposition: form-data; name="user_id"', value="a" * 9_000) + "--x--", 422, "user_id: has more"),
        (part('Content-Disposition: form-data; name="user_id"', value="a") * 2 + "--x--", 422, "user_id: is there tw"),
        (
            "".join(part(f'Content-Disposition: form-data; name="{n}"') for n in range(20)),
            422,
            "body: has more than 16",
        ),
        (part("X-Long: " + "a" * 9_000), 400, "body: is not a valid form: "),
    ],
)
async def test_a_broken_form_is_refused(api: httpx.AsyncClient, body: str, status: int, words: str) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    answer = await api.post(IMPORT, content=body.encode(), headers=headers)
    assert (answer.status_code, answer.json()["detail"][: len(words)]) == (status, words)


async def test_the_boundary_must_be_named(api: httpx.AsyncClient) -> None:
    answer = await api.post(IMPORT, content=b"x", headers={"Content-Type": "multipart/form-data"})
    assert (answer.status_code, answer.json()["detail"]) == (
        400, "body: the boundary of the form is missing in Content-Type",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "disposition"),
    [
        ("a b", 'attachment; filename="memories_export_a b.zip"'),
        (
            'q"uote',
            "attachment; filename=\"memories_export_q_uote.zip\"; filename*=UTF-8''memories_export_q%22uote.zip",
        ),
        ("a/b; X: y", "filename*=UTF-8''memories_export_a%2Fb%3B%20X%3A%20y.zip"),
        ("Zoë", "filename*=UTF-8''memories_export_Zo%C3%AB.zip"),
    ],
)
async def test_any_user_has_a_file_name(
    services: Services, api: httpx.AsyncClient, name: str, disposition: str
) -> None:
    await services.directory.caller(name, None, owner=True)
    answer = await api.post(EXPORT, json={"user_id": name})
    assert answer.status_code == 200
    assert disposition in answer.headers["content-disposition"]
    assert "x" not in answer.headers
