"""The settings at the page: models, categories, policies, keys, import and export."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from openmemory.access.schemas import KeyCreate
from openmemory.audit.schemas import AuditAction, AuditQuery
from openmemory.config.settings import load
from openmemory.errors import Forbidden
from openmemory.identity.principal import LOCAL
from openmemory.services import Services
from tests.doors.rest.conftest import MakeClient
from tests.doors.web.conftest import Visitor

PARTS = ["", "/models", "/categories", "/policies", "/archives", "/keys"]
OUTSIDE = "http://memory.example:8765"


@pytest.fixture
def outside(make_client: MakeClient, services: Services, new_user: str) -> Callable[..., Any]:
    """Opens a browser on another machine with a key for the test's user."""

    @asynccontextmanager
    async def opened(**about: Any) -> Any:
        key = await services.keys.create(LOCAL, KeyCreate.model_validate({"name": "test", "user_id": new_user} | about))
        async with make_client(base_url=OUTSIDE, access={"require": "always"}, host="0.0.0.0") as http:
            http.headers["Origin"] = OUTSIDE
            await http.post("/ui/sign-in", data={"key": key.key})
            yield http

    return opened


def posted(shown: str) -> set[str]:
    """The addresses of the forms that change something."""
    return set(re.findall(r'method="post"[^>]* action="([^"]+)"', shown))


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("bound", [{"scopes": ["read"]}, {"app": "claude", "scopes": ["read"]}])
async def test_a_key_that_only_reads_sees_no_form(
    outside: Callable[..., Any], part: str, bound: dict[str, Any]
) -> None:
    async with outside(**bound) as http:
        answer = await http.get(f"/ui/settings{part}")
    assert answer.status_code == 200, answer.text
    assert {each.rpartition("/")[2] for each in posted(answer.text)} <= {"sign-out", "export"}


@pytest.mark.parametrize("part", ["/models", "/keys"])
async def test_what_only_an_administrator_may_change_says_so(outside: Callable[..., Any], part: str) -> None:
    async with outside() as http:
        shown = (await http.get(f"/ui/settings{part}")).text
        assert "Only an administrator" in shown
        token = re.search(r'name="token" value="(\w+)"', (await http.get("/ui/memories")).text)
        assert token
        sent = {"token": token[1], "part": "llm", "provider": "openai", "model": "m", "name": "n", "scopes": "read"}
        refused = await http.post(f"/ui/settings{part}", data=sent)
    assert refused.status_code == 403
    assert "This needs the scope admin" in refused.text


@pytest.mark.parametrize("part", ["", "/archives"])
async def test_the_commands_that_back_up_everything_name_the_data_folder(
    visitor: Visitor, outside: Callable[..., Any], services: Services, part: str
) -> None:
    await visitor.get(f"settings{part}")
    folder = str(services.stores.folder)
    assert f"openmemory stop --data-dir {folder}" in visitor.words
    assert re.search(rf"cp -a {re.escape(folder)} {re.escape(folder)}-backup-\d{{4}}-\d\d-\d\d ", visitor.words)
    async with outside() as http:  # a key of one user
        shown = (await http.get(f"/ui/settings{part}")).text
    assert folder not in shown


async def test_the_source_of_each_setting_is_told_and_secrets_are_not() -> None:
    settings = load(
        environ={"OPENMEMORY_LLM_API_KEY": "sk-secret", "OPENMEMORY_LIMITS_TEXT": "500"},
        flags={"port": 9},
        inherit=False,
    )
    assert settings.masked(("llm", "api_key")) == "********"
    assert settings.source(("llm", "api_key")) == "environment: OPENMEMORY_LLM_API_KEY"
    assert settings.source(("port",)) == "--port"
    assert settings.source(("limits", "query")) is None


async def test_the_limits_are_shown_to_everybody_and_the_rest_to_operators(
    visitor: Visitor, outside: Callable[..., Any]
) -> None:
    shown = await visitor.get("settings")
    assert "limits.text" in shown
    assert "access.api_key" in shown
    async with outside() as http:
        theirs = (await http.get("/ui/settings")).text
    assert "limits.text" in theirs
    assert "database.url" not in theirs


async def test_a_key_is_made_shown_once_replaced_and_revoked(visitor: Visitor, client: httpx.AsyncClient) -> None:
    await visitor.get("settings/keys")
    fields = {
        "name": f"laptop of {visitor.user}",
        "user_id": visitor.user,
        "app": "claude",
        "scopes": ["read", "write"],
    }
    shown = await visitor.submit("settings/keys", namespaces="webshop, home", **fields)
    made = re.search(r">(om_\w{8}_[\w-]{43})<", shown)
    assert made
    me = (await client.get("/api/v1/me", headers={"Authorization": f"Bearer {made[1]}"})).json()
    assert (me["user"], me["app"], sorted(me["namespaces"])) == (visitor.user, "claude", ["home", "webshop"])
    again = await visitor.get("settings/keys")
    assert made[1] not in again
    assert f"laptop of {visitor.user}" in visitor.words

    async def row() -> str:
        found = [each for each in re.findall("<tr>.*?</tr>", visitor.shown, re.DOTALL) if fields["name"] in each]
        return found[0] if found else ""

    id_ = re.search(r'name="id" value="([^"]+)"', await row())
    assert id_
    replaced = await visitor.submit("settings/keys/rotate", id=id_[1])
    new = re.search(r">(om_\w{8}_[\w-]{43})<", replaced)
    assert new
    assert new[1] != made[1]
    id_ = re.search(r'name="id" value="([^"]+)"', await row())
    assert id_
    await visitor.submit("settings/keys/revoke", id=id_[1])
    assert "Revoked the key." in visitor.words
    assert not await row()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": ""}, "name"),
        ({"user_id": ""}, "user_id: must be given"),
        ({"scopes": []}, "scopes: must name at least one of read, write, admin"),
        ({"scopes": ["fly"]}, "scopes"),
        ({"expires_at": "2001-01-01"}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
    ],
)
async def test_a_wrong_key_is_refused_in_words(visitor: Visitor, fields: dict[str, Any], words: str) -> None:
    await visitor.get("settings/keys")
    sent = {"name": "n", "user_id": visitor.user, "scopes": ["read"]} | fields
    await visitor.submit("settings/keys", status=422, **sent)
    assert words in visitor.words


async def test_a_policy_is_made_changed_and_ended_and_the_end_is_undone(visitor: Visitor) -> None:
    await visitor.get("settings/policies")
    assert "Nothing: every memory stays active" in visitor.words
    sent = {"criteria_type": "namespace", "criteria_name": "webshop", "action": "expire", "days": "14"}
    await visitor.submit("settings/policies", **sent)
    assert "From now on, namespace webshop expires after 14 days." in visitor.words
    assert "expire 14 days after they were made" in visitor.words
    id_ = re.search(r'name="id" value="([^"]+)"', visitor.shown)
    assert id_
    await visitor.submit("settings/policies/delete", id=id_[1])
    assert "Nothing: every memory stays active" in visitor.words
    assert 'name="criteria_name" value="webshop"' in visitor.shown
    await visitor.submit("settings/policies", **sent)
    assert "expire 14 days after they were made" in visitor.words


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"days": "many"}, "days: must be a number of days, from 1"),
        ({"days": "0"}, "days_to_archive"),
        ({"criteria_type": "namespace"}, "criteria_name: must name the namespace"),
        ({"criteria_type": "moon"}, "criteria_type"),
    ],
)
async def test_a_wrong_policy_is_refused_in_words(visitor: Visitor, fields: dict[str, Any], words: str) -> None:
    await visitor.get("settings/policies")
    sent = {"criteria_type": "user", "action": "archive", "days": "90"} | fields
    await visitor.submit("settings/policies", status=422, **sent)
    assert words in visitor.words


async def test_a_category_is_described_and_forgotten_and_that_is_undone(visitor: Visitor) -> None:
    await visitor.get("settings/categories")
    await visitor.submit("settings/categories", name="beekeeping", description="Keeping bees: hives, honey.")
    assert "Saved beekeeping." in visitor.words
    assert "Keeping bees: hives, honey." in visitor.shown
    await visitor.submit("settings/categories/forget", name="beekeeping")
    assert 'name="description" value="Keeping bees: hives, honey."' in visitor.shown
    await visitor.submit("settings/categories", name="beekeeping", description="Keeping bees: hives, honey.")
    assert "described by you" in visitor.words
    await visitor.submit("settings/categories", status=422, name="x", description="")
    assert "description: must have from 1 to" in visitor.words


async def test_where_no_categories_are_assigned_the_page_says_so(
    visitor: Visitor, remember: Callable[..., Any]
) -> None:
    await remember(visitor.user, "I keep two hives of bees.")
    await visitor.get("settings/categories")
    assert "Assign now" not in visitor.words
    assert "This service assigns no categories by itself" in visitor.words
    await visitor.submit("settings/categories/assign", status=409)
    assert "This service assigns no categories." in visitor.words


async def _exported(visitor: Visitor) -> bytes:
    await visitor.get("settings/archives")
    token = re.search(r'name="token" value="(\w+)"', visitor.shown)
    assert token
    answer = await visitor.http.post(
        "/ui/settings/archives/export", params={"user": visitor.user}, data={"token": token[1], "vectors": "1"}
    )
    assert answer.status_code == 200
    assert f'filename="memories_export_{visitor.user}.zip"' in answer.headers["content-disposition"]
    return answer.content


async def _imported(visitor: Visitor, user: str, archive: bytes, *, status: int = 200, **fields: str) -> str:
    shown = (await visitor.http.get("/ui/settings/archives", params={"user": user})).text
    token = re.search(r'name="token" value="(\w+)"', shown)
    assert token
    answer = await visitor.http.post(
        "/ui/settings/archives",
        params={"user": user},
        data={"token": token[1]} | fields,
        files={"file": ("memories.zip", archive, "application/zip")},
    )
    assert answer.status_code == status, answer.text
    visitor.shown = answer.text
    return visitor.words


@pytest.mark.slow
async def test_an_archive_is_exported_tried_and_imported(
    visitor: Visitor, remember: Callable[..., Any], services: Services
) -> None:
    await remember(visitor.user, "Carol feeds the goats.", app="claude", categories=[f"of {visitor.user}"])
    archive = await _exported(visitor)
    assert "memories.json" in zipfile.ZipFile(io.BytesIO(archive)).namelist()
    await visitor.get("settings/archives")
    assert "Last exported just now , by this machine." in visitor.words, visitor.words[-1800:]
    other = f"not-{visitor.user}"
    await services.directory.caller(other, None, owner=True)
    words = await _imported(visitor, other, archive)
    assert "Nothing was imported." in words
    assert "Memories with a new id 1" in words
    assert "Carol feeds the goats." not in await _list(visitor, other)
    words = await _imported(visitor, other, archive, do="import")
    assert "Imported" in words
    assert "Nothing was imported." not in words
    assert "Carol feeds the goats." in await _list(visitor, other)


async def test_showing_the_last_export_is_no_read_of_the_audit_log(
    visitor: Visitor, remember: Callable[..., Any], services: Services
) -> None:
    await remember(visitor.user, "Carol feeds the goats.")
    await _exported(visitor)
    for _ in range(2):
        await visitor.get("settings/archives")
        assert "Last exported just now , by this machine." in visitor.words
    owner = await services.directory.owner(LOCAL, visitor.user)
    wanted = AuditQuery((AuditAction.MEMORY_EXPORT, AuditAction.AUDIT_READ))
    assert [each.event for each in (await services.audit.read(owner, wanted)).events] == ["memory.export"]
    assert [each.event for each in (await services.audit.read(owner, wanted)).events] == [
        "audit.read",
        "memory.export",
    ]
    app = await services.directory.caller(visitor.user, "claude")
    with pytest.raises(Forbidden):
        await services.audit.last_export(app)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("memories/undo", "change"),
        ("memories/change", "id"),
        ("settings/keys/rotate", "id"),
        ("settings/keys/revoke", "id"),
        ("settings/policies/delete", "id"),
    ],
)
async def test_what_is_no_id_is_refused_in_the_same_words_everywhere(visitor: Visitor, path: str, field: str) -> None:
    await visitor.get("settings/keys")
    await visitor.submit(
        path, status=422, **{field: "seven"}, **({"action": "pause"} if path.endswith("change") else {})
    )
    assert f"{field}: must be an id, which is a UUID" in visitor.words


async def _list(visitor: Visitor, user: str) -> str:
    visitor.shown = (await visitor.http.get("/ui/memories", params={"user": user})).text
    return visitor.words


@pytest.mark.slow
async def test_a_try_writes_nothing_not_even_a_category(
    visitor: Visitor, remember: Callable[..., Any], services: Services
) -> None:
    await remember(visitor.user, "I keep bees.", app="claude", categories=[f"old {visitor.user}"])
    renamed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(await _exported(visitor))) as read, zipfile.ZipFile(renamed, "w") as written:
        for name in read.namelist():
            written.writestr(
                name, read.read(name).replace(b"old " + visitor.user.encode(), b"new one of " + visitor.user.encode())
            )
    other = f"not-{visitor.user}"
    await services.directory.caller(other, None, owner=True)
    for _ in range(2):
        assert "Categories 1" in await _imported(visitor, other, renamed.getvalue())
    assert "Categories 1" in await _imported(visitor, other, renamed.getvalue(), do="import")
    assert "Categories 1" not in await _imported(visitor, other, renamed.getvalue())


@pytest.mark.parametrize(
    ("name", "token", "status", "words"),
    [
        ("memories.txt", None, 422, "file: must be a database of OpenMemory (openmemory.db), a ZIP archive, or"),
        ("memories.zip", "0" * 64, 403, "This form is from another session of the browser."),
    ],
)
async def test_a_wrong_upload_is_refused_in_words(
    visitor: Visitor, name: str, token: str | None, status: int, words: str
) -> None:
    shown = await visitor.get("settings/archives")
    found = re.search(r'name="token" value="(\w+)"', shown)
    assert found
    answer = await visitor.http.post(
        "/ui/settings/archives",
        params={"user": visitor.user},
        data={"token": token or found[1]},
        files={"file": (name, b"text", "application/zip")},
    )
    assert answer.status_code == status
    assert words in answer.text


async def test_an_upload_may_be_as_large_as_an_archive(make_client: MakeClient, new_user: str) -> None:
    async with make_client(limits={"body": 2_000, "backup": 100_000}) as http:
        shown = (await http.get("/ui/settings/archives")).text
        token = re.search(r'name="token" value="(\w+)"', shown)
        assert token
        answer = await http.post(
            "/ui/settings/archives", data={"token": token[1]}, files={"file": ("a.zip", b"x" * 50_000)}
        )
    assert answer.status_code == 422
    assert "file: must be a database of OpenMemory" in answer.text


async def test_a_user_saves_their_time_zone_and_forgets_it(visitor: Visitor, services: Services) -> None:
    await services.directory.caller(visitor.user, None)
    await visitor.get("settings")
    await visitor.submit("settings/timezone", timezone=" Asia/Kolkata ")
    assert "Saved the time zone." in visitor.words
    assert 'name="timezone" value="Asia/Kolkata"' in visitor.shown
    assert "On this page it is Asia/Kolkata." in visitor.words
    await visitor.submit("settings/timezone", status=422, timezone="Mars/Phobos")
    assert "timezone: must be the IANA name of a time zone" in visitor.words
    await visitor.get("settings")
    await visitor.submit("settings/timezone", timezone="")
    assert "No time zone is saved any more." in visitor.words
    assert 'name="timezone" value=""' in visitor.shown
