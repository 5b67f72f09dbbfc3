"""Documents over REST: store, search, read, download, delete, restore and erase."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import text

from openmemory.config.settings import LimitSettings
from tests.sources.text_extraction.documents import pdf, word

LEASE = pdf("The rent is 900 euros.", "Pets are allowed.")


@pytest.fixture
def store(client: httpx.AsyncClient, new_user: str) -> Any:
    async def send(content: bytes, filename: str = "lease.pdf", *, status: int = 200, **fields: str) -> Any:
        form = {"user_id": new_user} | fields
        answer = await client.post("/api/v1/documents", data=form, files={"file": (filename, content)})
        assert answer.status_code == status, answer.text
        return answer.json()

    return send


async def passages(client: httpx.AsyncClient, user: str, query: str, **more: Any) -> list[dict[str, Any]]:
    body = {"user_id": user, "query": query, "corpus": "passages"} | more
    answer = await client.post("/api/v1/memories/search", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["passages"]["results"]


async def test_a_document_is_stored_found_read_and_downloaded(client, new_user, store):
    stored = await store(LEASE, title="Where we live", namespace="home")
    assert stored | {"id": None} == {
        "id": None, "name": "lease.pdf", "namespace": "home", "event": "ADD", "media_type": "application/pdf",
        "bytes": len(LEASE), "passages": 2, "changed": 2, "kept": True,
    }  # fmt: skip
    [first, *_] = await passages(client, new_user, "may I have a dog?", kinds=["document"])
    assert (first["path"], first["heading"], first["content"], first["first_line"]) == (
        "lease.pdf", "Page 2", "Pets are allowed.", None,
    )  # fmt: skip
    assert await passages(client, new_user, "rent", path="other") == []
    whose = {"user_id": new_user}
    read = (await client.get(f"/api/v1/documents/{stored['id']}", params=whose)).json()
    assert [(one["position"], one["content"]) for one in read["items"]] == [
        (1, "The rent is 900 euros."), (2, "Pets are allowed."),
    ]  # fmt: skip
    assert (read["document"]["title"], read["total"]) == ("Where we live", 2)
    original = await client.get(f"/api/v1/documents/{stored['id']}/original", params=whose)
    assert original.content == LEASE
    assert original.headers["content-disposition"] == "attachment; filename*=UTF-8''lease.pdf"
    assert original.headers["content-type"] == "application/octet-stream"
    listed = (await client.get("/api/v1/documents", params=whose | {"namespace": "home"})).json()
    assert [(one["name"], one["kept"]) for one in listed["items"]] == [("lease.pdf", True)]
    assert (await client.get("/api/v1/documents", params=whose | {"name": "other"})).json()["items"] == []


async def test_a_document_that_is_sent_again_keeps_what_did_not_change(client, new_user, store):
    first = await store(LEASE)
    assert (await store(LEASE))["event"] == "NONE"
    again = await store(pdf("The rent is 950 euros.", "Pets are allowed."))
    assert (again["id"], again["event"], again["passages"], again["changed"]) == (first["id"], "UPDATE", 2, 1)
    assert {one["content"] for one in await passages(client, new_user, "rent euros pets")} == {
        "The rent is 950 euros.", "Pets are allowed.",
    }  # fmt: skip
    original = await client.get(f"/api/v1/documents/{first['id']}/original", params={"user_id": new_user})
    assert b"startxref" in original.content
    assert original.content != LEASE


async def test_an_original_is_kept_by_choice(client, new_user, store):
    stored = await store(LEASE, keep="false")
    assert not stored["kept"]
    missing = await client.get(f"/api/v1/documents/{stored['id']}/original", params={"user_id": new_user})
    assert (missing.status_code, missing.json()["error"]) == (404, "original_not_kept")
    assert (await store(LEASE, keep="true"))["event"] == "UPDATE"
    there = await client.get(f"/api/v1/documents/{stored['id']}/original", params={"user_id": new_user})
    assert there.content == LEASE
    assert not (await store(LEASE, keep="false"))["kept"]
    gone = await client.get(f"/api/v1/documents/{stored['id']}/original", params={"user_id": new_user})
    assert gone.status_code == 404


async def test_a_deleted_document_can_be_restored_and_an_erased_one_cannot(client, new_user, store):
    stored = await store(LEASE)
    whose, path = {"user_id": new_user}, f"/api/v1/documents/{stored['id']}"
    assert (await client.delete(path, params=whose)).json() == {"id": stored["id"], "passages": 2}
    assert await passages(client, new_user, "rent") == []
    for answer in (
        await client.get(path, params=whose),
        await client.get(f"{path}/original", params=whose),
        await client.delete(path, params=whose),
    ):
        assert (answer.status_code, answer.json()["error"]) == (404, "document_not_found")
    assert (await client.post(f"{path}/restore", json=whose)).json()["passages"] == 2
    assert len(await passages(client, new_user, "rent pets")) == 2
    assert (await client.get(f"{path}/original", params=whose)).content == LEASE
    assert (await client.post(f"{path}/erase", json=whose)).json()["passages"] == 2
    assert (await client.post(f"{path}/restore", json=whose)).status_code == 404
    assert (await store(LEASE))["event"] == "ADD"


async def test_a_deleted_document_that_is_sent_again_is_new(client, new_user, store):
    stored = await store(LEASE)
    await client.delete(f"/api/v1/documents/{stored['id']}", params={"user_id": new_user})
    again = await store(pdf("The rent is 900 euros."))
    assert (again["event"], again["passages"], again["changed"]) == ("ADD", 1, 1)
    assert [one["content"] for one in await passages(client, new_user, "rent pets")] == ["The rent is 900 euros."]


async def test_an_expired_document_is_found_no_more_until_it_is_restored(client, new_user, store, services):
    async def pass_time() -> None:
        for table in ("sources", "passages"):
            past = f"UPDATE {table} SET expires_at = now() - interval '1 day' WHERE expires_at IS NOT NULL"
            async with services.database.transaction() as tx:
                await tx.execute(text(past + " AND user_id = (SELECT id FROM users WHERE user_id = :user)"), whose)

    async def listed() -> list[str]:
        answer = await client.get("/api/v1/documents", params={"user_id": new_user})
        return [one["name"] for one in answer.json()["items"]]

    whose = {"user": new_user}
    stored = await store(LEASE, ttl_days="90")
    assert len(await passages(client, new_user, "rent pets")) == 2
    await pass_time()
    assert await listed() == []
    assert await passages(client, new_user, "rent pets") == []
    again = await store(LEASE, ttl_days="90")  # before the job
    assert (again["id"], again["event"], again["changed"]) == (stored["id"], "ADD", 2)
    await pass_time()
    assert await services.conversations.expire() == 2
    assert await services.conversations.expire() == 0
    restore = f"/api/v1/documents/{stored['id']}/restore"
    assert (await client.post(restore, json={"user_id": new_user})).json()["passages"] == 2
    assert await services.conversations.expire() == 0
    assert await listed() == ["lease.pdf"]
    assert (await store(LEASE, ttl_days="90"))["event"] == "UPDATE"
    assert (await store(LEASE))["event"] == "UPDATE"  # it stays
    await pass_time()
    assert await listed() == ["lease.pdf"]
    assert len(await passages(client, new_user, "rent pets")) == 2


async def test_secrets_are_redacted_in_passages_and_titles(client, new_user, store):
    token = "ghp_" + "a1B2c3D4e5F6" * 3
    stored = await store(f"# Deploy\n\nUse {token} there.\n".encode(), "deploy.md", title=f"About {token}")
    assert stored["redacted"] == ["a GitHub token"]
    read = (await client.get(f"/api/v1/documents/{stored['id']}", params={"user_id": new_user})).json()
    assert token not in str(read)
    assert read["items"][0]["heading"] == "Deploy"
    assert (read["items"][0]["first_line"], read["items"][0]["last_line"]) == (1, 3)


@pytest.mark.parametrize(
    ("name", "content", "fields", "field"),
    [
        ("a.png", b"\x89PNG\0", {}, "file"),
        ("a.txt", b"", {}, "file"),
        ("a.txt", b" \n ", {}, "file"),
        ("a.txt", b"a", {"name": "../a.txt"}, "name"),
        ("a.txt", b"a", {"name": "/a.txt"}, "name"),
        ("a.txt", b"a", {"name": "a" * 2000}, "name"),
        ("a.txt", b"a", {"namespace": "a" * 300}, "namespace"),
        ("a.txt", b"a", {"title": "a" * 300}, "title"),
        ("a.txt", b"a", {"keep": "yes"}, "keep"),
        ("a.txt", b"a", {"ttl_days": "soon"}, "ttl_days"),
        ("a.txt", b"a", {"ttl_days": "0"}, "ttl_days"),
        ("a.txt", b"a", {"nmae": "b.txt"}, "nmae"),
    ],
)
async def test_bad_input_is_refused_and_nothing_is_stored(client, new_user, store, name, content, fields, field):
    refused = await store(content, name, status=413 if len(fields.get(field, "")) == 300 else 422, **fields)
    assert refused["detail"].startswith(field), refused
    there = (await client.get("/api/v1/documents", params={"user_id": new_user})).json()
    assert there.get("total", 0) == 0 or there["error"] == "user_not_found"


async def test_a_body_that_is_no_form_or_has_no_file_is_refused(client, new_user):
    answer = await client.post("/api/v1/documents", json={"user_id": new_user})
    assert (answer.status_code, answer.json()["detail"].partition(":")[0]) == (415, "Content-Type")
    answer = await client.post("/api/v1/documents", files={"other": ("a.txt", b"a")})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("file: is required")


async def test_a_document_that_is_too_large_is_refused_as_it_comes(make_client, new_user):
    async with make_client(limits=LimitSettings(document=2_000)) as client:
        answer = await client.post(
            "/api/v1/documents", data={"user_id": new_user}, files={"file": ("a.txt", b"a" * 200_000)}
        )
        assert (answer.status_code, answer.json()["error"]) == (413, "too_large")
        assert "limits.document" in answer.json()["detail"]


async def test_an_app_stores_no_document_that_it_could_not_read_whether_or_not_there_is_one(client, new_user, store):
    await store(b"We ship in May.", "plan.txt", app="cursor")
    rule = {"user_id": new_user, "effect": "deny", "object_type": "app", "object": "cursor", "app": "cursor"}
    assert (await client.post("/api/v1/grants", json=rule)).status_code == 201
    for name in ("plan.txt", "other.txt"):
        assert (await store(b"We ship in May.", name, app="cursor", status=403))["error"] == "not_readable"
    listed = (await client.get("/api/v1/documents", params={"user_id": new_user})).json()
    assert [one["name"] for one in listed["items"]] == ["plan.txt"]


async def test_documents_of_others_are_not_found(client, new_user, store):
    stored = await store(LEASE)
    for user in ("nobody-else", new_user + "x"):
        await client.post("/api/v1/memories/", json={"user_id": user, "text": "I am here."})
        for method, path in (
            ("GET", ""), ("GET", "/original"), ("DELETE", ""), ("POST", "/restore"), ("POST", "/erase"),
        ):  # fmt: skip
            whose = {"json": {"user_id": user}} if method == "POST" else {"params": {"user_id": user}}
            answer = await client.request(method, f"/api/v1/documents/{stored['id']}{path}", **whose)
            assert (answer.status_code, answer.json()["error"]) == (404, "document_not_found")
    answer = await client.get(f"/api/v1/documents/{uuid4()}", params={"user_id": new_user})
    assert answer.status_code == 404


async def test_two_who_send_the_same_name_at_once_leave_one_whole_document(client, new_user, store):
    contents = [word(*(("Normal", f"Version {number}, line {line}.") for line in range(3))) for number in range(6)]
    sent = await asyncio.gather(*(store(content, "plan.docx") for content in contents))
    assert len({one["id"] for one in sent}) == 1
    read = (await client.get(f"/api/v1/documents/{sent[0]['id']}", params={"user_id": new_user})).json()
    original = await client.get(f"/api/v1/documents/{sent[0]['id']}/original", params={"user_id": new_user})
    number = contents.index(original.content)
    assert [one["content"].split(",")[0] for one in read["items"]] == [f"Version {number}"]


async def test_a_document_without_a_user_is_its_owners_where_no_credential_is_asked_for(client, new_user, store):
    path = f"/api/v1/documents/{(await store(LEASE))['id']}"
    assert (await client.get(path)).json()["total"] == 2
    assert (await client.get(f"{path}/original")).content == LEASE
    assert (await client.get(path, params={"user_id": f"{new_user}-other"})).status_code == 404
    assert (await client.delete(path)).status_code == 200
    assert (await client.post(f"{path}/restore", json={})).status_code == 200
    assert (await client.post(f"{path}/erase", json={})).status_code == 200
    assert (await client.get(path)).status_code == 404
