"""Files over REST: plan, batch, finish, list and search."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from tests.backup.archives import bring_in, export

GUIDE = "# Webshop\n\n## Install\n\nRun make serve.\n\n## Pay\n\nOnly with cards.\n"


@pytest.fixture
def post(client, new_user):
    async def send(part, *, status=200, **body):
        answer = await client.post(f"/api/v1/files/{part}", json={"user_id": new_user, "namespace": "shop"} | body)
        assert answer.status_code == status, answer.text
        return answer.json()

    return send


async def test_a_folder_is_planned_sent_and_finished(client, post, new_user):
    seen = [{"path": "README.md", "hash": "one"}, {"path": "src/pay.py", "hash": "two"}]
    plan = await post("plan", files=seen)
    assert plan == {"wanted": ["README.md", "src/pay.py"], "renamed": [], "gone": [], "unchanged": 0}
    texts = {"README.md": GUIDE, "src/pay.py": "def pay(card):\n    pass\n"}
    sent = await post("batch", files=[one | {"text": texts[one["path"]]} for one in seen])
    assert [(each["path"], each["event"], each["passages"]) for each in sent["results"]] == [
        ("README.md", "ADD", 3), ("src/pay.py", "ADD", 1),
    ]  # fmt: skip
    assert (await post("plan", files=seen))["unchanged"] == 2
    body = {"user_id": new_user, "query": "make serve", "corpus": "passages", "path": "README"}
    found = (await client.post("/api/v1/memories/search", json=body)).json()["passages"]["results"]
    assert (found[0]["path"], found[0]["heading"], found[0]["first_line"]) == ("README.md", "Webshop > Install", 3)
    assert {one["path"] for one in found} == {"README.md"}
    moved = await post("plan", files=[{"path": "docs/README.md", "hash": "one"}])
    assert moved == {
        "wanted": [], "renamed": [{"old": "README.md", "new": "docs/README.md"}], "gone": ["src/pay.py"],
        "unchanged": 0,
    }  # fmt: skip
    assert await post("finish", renamed=moved["renamed"], gone=moved["gone"]) == {"renamed": 1, "removed": 1}
    page = (await client.get("/api/v1/files", params={"user_id": new_user})).json()
    assert [(one["path"], one["language"], one["bytes"]) for one in page["items"]] == [
        ("docs/README.md", "markdown", len(GUIDE)),
    ]


async def test_a_bad_file_is_named_and_the_others_are_stored(post):
    files = [{"path": "a.md", "text": "tea"}, {"path": "../b.md", "text": "x"}, {"path": "c.md"}, "d.md"]
    answer = await post("batch", files=files)
    assert [(one["index"], one["field"]) for one in answer["refused"]] == [(1, "path"), (2, "text"), (3, "body")]
    refused = await post("batch", files=files, on_error="fail", status=422)
    assert len(refused["refused"]) == 3


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ({"path": "a.md", "hash": "one", "size": 3}, "files[0].size: is not a known field"),
        ({"path": "a.md"}, "files[0].hash: is required"),
        ("a.md", "files[0]: must be a JSON object"),
    ],
)
async def test_a_plan_names_what_is_wrong_with_a_file(post, file, problem):
    assert (await post("plan", files=[file], status=422))["detail"] == problem


async def test_fields_of_files_are_for_passages_only(client, new_user, post):
    await post("batch", files=[{"path": "a.md", "text": "tea"}])
    for field in ({"path": "a"}, {"language": "markdown"}, {"symbol": "tea"}):
        answer = await client.post("/api/v1/memories/search", json={"user_id": new_user, "query": "tea"} | field)
        assert answer.status_code == 422
        assert answer.json()["detail"].startswith(next(iter(field)))


STORE = """class Store:
    def get(self, key):
        return self.items[key]

    def put(self, key, item):
        self.items[key] = item
"""
SHELF = """class Shelf {
  get(number) {
    return this.books[number];
  }
}
"""


async def test_code_is_found_by_what_it_defines(services, client, post, new_user):
    texts = {"store.py": STORE, "shelf.js": SHELF, "get.md": "get"}
    files = [{"path": path, "text": text} for path, text in texts.items()]
    await post("batch", files=files)

    async def found(symbol, user=new_user, **more):
        body = {"user_id": user, "query": "get", "corpus": "passages", "symbol": symbol} | more
        answer = await client.post("/api/v1/memories/search", json=body)
        assert answer.status_code == 200, answer.text
        return [one["path"] for one in answer.json()["passages"]["results"]]

    async def the_same(user):
        assert await found("Store.get", user) == await found("store::get", user) == ["store.py"]
        assert sorted(await found("get", user)) == ["shelf.js", "store.py"]
        assert await found("Shelf.put", user) == []
        assert await found("get", user, path="other") == []

    await services.outbox_delivery.drain()
    await the_same(new_user)
    other = f"{new_user}-other"
    await services.directory.caller(other, None, owner=True)
    await bring_in(client, other, await export(client, new_user))
    await the_same(other)
    too_long = {"user_id": new_user, "query": "get", "corpus": "passages", "symbol": "x" * 1_000}
    refused = await client.post("/api/v1/memories/search", json=too_long)
    assert refused.json()["detail"].startswith("symbol: ")


async def test_the_index_of_symbols_answers_among_many_passages(services, post):
    await post("batch", files=[{"path": "store.py", "text": STORE}])
    async with services.database.transaction() as tx:
        await tx.execute(text("SET LOCAL enable_seqscan = off"))
        lines = await tx.scalars(
            text("EXPLAIN SELECT id FROM passages WHERE symbols <> '{}' AND symbols @> ARRAY['store.get']")
        )
        assert any("idx_passage_symbols" in line for line in lines)


async def test_an_app_stores_no_file_that_it_could_not_read_whether_or_not_there_is_one(client, post, new_user):
    files = [{"path": "a.md", "text": "# One"}]
    await post("batch", files=files, app="cursor")
    rule = {"user_id": new_user, "effect": "deny", "object_type": "namespace", "object": "shop", "app": "cursor"}
    assert (await client.post("/api/v1/grants", json=rule)).status_code == 201
    for path, said in (("a.md", "# One"), ("a.md", "# Two"), ("b.md", "# One")):
        refused = await post("batch", files=[{"path": path, "text": said}], app="cursor", status=403)
        assert refused["error"] == "not_readable"
    listed = (await client.get("/api/v1/files", params={"user_id": new_user})).json()
    assert [one["path"] for one in listed["items"]] == ["a.md"]
