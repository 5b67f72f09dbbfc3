"""Memories of pairs over REST."""

from __future__ import annotations

from datetime import UTC, datetime

from openmemory.dedup import key_value_merge


async def test_pairs_are_merged_and_the_answer_tells_what_changed(client, new_user, remember):
    old = await remember(new_user, "budget=50K | lead=Ada", app="claude", categories=["work"])
    row = await remember(new_user, "budget=40K | floor=3", app="claude", metadata={"source": "standup"}, infer=True)
    assert (row["id"], row["event"]) == (old["id"], "UPDATE")
    assert (row["content"], row["previous_memory"]) == ("budget=40K | lead=Ada | floor=3", "budget=50K | lead=Ada")
    assert row["metadata_"] == {"source": "standup"}
    [changed] = row["changed"]
    assert (changed["key"], changed["old"], changed["new"]) == ("budget", "50K", "40K")
    assert changed["was"]["app"] == "claude"
    at = datetime.fromisoformat(changed["was"]["at"])
    assert at.replace(tzinfo=None) == datetime.fromisoformat(old["created_at"])
    told = f"changed: budget 50K -> 40K (was @claude {datetime.now(UTC):%Y-%m-%d})"
    assert row["note"] == f"{key_value_merge.MERGED} added: floor. {told}"
    again = await remember(new_user, "floor=3", app="claude")
    assert (again["id"], again["event"], again["note"]) == (old["id"], "NONE", key_value_merge.ALREADY_STORED)
    assert "changed" not in again
    detail = (await client.get(f"/api/v1/memories/{old['id']}", params={"user_id": new_user})).json()
    assert (detail["text"], detail["categories"]) == (row["content"], ["work"])


async def test_a_merge_is_undone_by_what_the_history_tells(client, new_user, remember):
    row = await remember(new_user, "budget=50K")
    await remember(new_user, "budget=40K")
    path, who = f"/api/v1/memories/{row['id']}", {"user_id": new_user}
    history = (await client.get(f"{path}/history", params=who)).json()
    old = history["revisions"][-1]["old_text"]
    undone = await client.put(path, json=who | {"memory_content": old})
    assert (undone.status_code, undone.json()["content"]) == (200, "budget=50K")


async def test_batches_are_kept_as_they_are(client, new_user):
    texts = ["budget=50K", "budget=40K"]
    body = {"user_id": new_user, "memories": [{"text": text} for text in texts]}
    answer = await client.post("/api/v1/memories/batch", json=body)
    assert [each["event"] for each in answer.json()["results"]] == ["ADD", "ADD"]
    page = (await client.get("/api/v1/memories", params={"user_id": new_user})).json()
    assert sorted(item["content"] for item in page["items"]) == sorted(texts)


async def test_a_search_tells_of_conflicts_only_where_there_are_some(client, services, new_user, remember):
    old = await remember(new_user, "budget=50K | lead=Ada", app="claude")
    await services.outbox_delivery.drain()
    question = {"user_id": new_user, "query": "budget"}
    answer = await client.post("/api/v1/memories/search", json=question)
    assert list(answer.json()) == ["results", "search_method", "note"]
    new = await remember(new_user, "budget=40K", app="cursor")
    await services.outbox_delivery.drain()
    for asked in (
        client.post("/api/v1/memories/search", json=question),
        client.get("/api/v1/memories/search", params=question),
    ):
        [conflict] = (await asked).json()["conflicts"]
        times = [conflict["current"].pop("at"), conflict["previous"][0].pop("at")]
        assert conflict == {
            "key": "budget", "namespace": "default",
            "current": {"value": "40K", "id": new["id"], "app": "cursor"},
            "previous": [{"value": "50K", "id": old["id"], "app": "claude"}],
        }  # fmt: skip
        assert datetime.fromisoformat(times[0]) > datetime.fromisoformat(times[1])
