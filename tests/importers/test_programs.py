"""What other programs stored, imported from their own databases and files into a service, and found at its doors."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from mcp import Client as McpClient
from sqlalchemy import text

from openmemory.doors.cli.client import Client
from openmemory.doors.cli.migrating import ImportRequest, Migration
from openmemory.doors.cli.migration_report import answer
from openmemory.errors import Invalid, SetupError, Unavailable
from openmemory.services import Services
from tests import warm
from tests.doors.mcp.conftest import serving
from tests.importers import stores
from tests.importers.stores import COMMIT, id_of

Make = Callable[[str], Awaitable[str]]

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
async def url(services: Services) -> AsyncIterator[str]:
    async with serving(services) as address:
        yield address


@pytest.fixture(scope="module")
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
async def make(services: Services) -> AsyncIterator[Make]:
    async with stores.postgres(services) as maker:
        yield maker


@pytest.fixture
def bring(services: Services, http: httpx.AsyncClient) -> Callable[..., Awaitable[Migration]]:
    async def run(kind: Any, source: Any, **more: Any) -> Migration:
        client = None if more.get("dry_run") else Client(http, services.settings)
        migration = Migration(ImportRequest(kind, str(source), **more), "default_user", client)
        await migration.run()
        return migration

    return run


@pytest.fixture
def tool(url: str) -> Callable[..., Awaitable[str]]:
    """Calls a tool of MCP as an assistant, and returns its first text."""

    async def call(user: str, toolset: str, name: str, **given: Any) -> str:
        address = f"{url}/mcp/agent/http/{user}?toolsets={toolset}"
        async with McpClient(address, mode="legacy", read_timeout_seconds=30) as client:
            result = await client.call_tool(name, given)
        assert not result.is_error, result
        return str(result.content[0].text)  # type: ignore[union-attr]

    return call


async def rows(services: Services, user: str, query: str) -> list[Any]:
    async with services.database.transaction() as tx:
        found = await tx.execute(text(query), {"user": user})
        return [row._asdict() for row in found]


async def memories(services: Services, user: str) -> dict[str, dict[str, Any]]:
    """The memories of a user, by text."""
    query = """
        SELECT m.*, a.name AS app, array(SELECT c.name FROM categories AS c JOIN memory_categories AS f
            ON f.category_id = c.id WHERE f.memory_id = m.id) AS categories
        FROM memories AS m JOIN apps AS a ON a.id = m.app_id JOIN users AS u ON u.id = m.user_id
        WHERE u.user_id = :user
    """
    return {row["content"]: row for row in await rows(services, user, query)}


async def everything(services: Services, user: str) -> dict[str, list[Any]]:
    """All rows of a user but for what is counted or happens in the background."""
    of = "user_id = (SELECT id FROM users WHERE user_id = :user)"
    mine = f"(SELECT id FROM memories WHERE {of})"
    queries = {
        "memories": f"SELECT * FROM memories WHERE {of} ORDER BY id",
        "revisions": f"SELECT * FROM memory_revisions WHERE memory_id IN {mine} ORDER BY 1, 2",
        "links": f"SELECT * FROM memory_links WHERE {of} ORDER BY 1, 2, 3",
        "projects": f"SELECT * FROM projects WHERE {of} ORDER BY id",
        "sources": f"SELECT * FROM sources WHERE {of} ORDER BY id",
        "passages": f"SELECT * FROM passages WHERE {of} ORDER BY id",
    }
    return {name: await rows(services, user, query) for name, query in queries.items()}


async def test_devmemory_comes_with_its_values_sessions_and_files(
    services: Services, make: Make, bring: Any, tool: Any, new_user: str
) -> None:
    address = await make(stores.DEVMEMORY)
    migration = await bring("devmemory", address, into=new_user)
    assert migration.report.left_out.counts == {("memories", "value: must not be empty"): 1}
    assert migration.report.notes == [
        "Not imported: 2 rows of usage_stats, the counters of calls, which start anew here."
    ]
    value = json.loads(
        await tool(new_user, "devmemory", "memory_get", project_id="webshop", topic="stack", key="database")
    )
    assert (value["value"], value["created_by"]) == ("PostgreSQL 16 holds the orders", "claude")
    assert value["created_at"].startswith("2025-03-02T10:00:00")
    assert value["updated_at"].startswith("2025-03-03T10:00:00")
    for topic, key, port in (("stack/db", "port", "6432"), ("stack", "db/port", "5432")):
        value = json.loads(await tool(new_user, "devmemory", "memory_get", project_id="webshop", topic=topic, key=key))
        assert (value["topic"], value["key"], value["value"]) == (topic, key, port)
    session = json.loads(await tool(new_user, "devmemory", "session_get", project_id="webshop", session_num="7"))
    assert session["title"] == "Checkout"
    assert session["summary"] == "The basket survives a login"
    assert "Rounded per line." in session["content"]
    [project] = json.loads(await tool(new_user, "devmemory", "project_list"))
    assert {"id": "webshop", "name": "The shop", "root_path": "/src/webshop"}.items() <= project.items()
    found = json.loads(await tool(new_user, "devmemory", "file_search", project_id="webshop", query="card terminal"))
    assert "pay/card.go" in json.dumps(found)
    assert "ChargeCard" in json.dumps(found)
    said = await tool(new_user, "devmemory", "session_create", project_id="webshop", session_num="7", title="Checkout",
                      summary="The basket survives a login", content=session["content"])  # fmt: skip
    assert "7" in said, "the imported session is one that can be saved again"


async def test_mempack_comes_with_states_threads_links_and_files(
    services: Services, bring: Any, tool: Any, http: httpx.AsyncClient, new_user: str, tmp_path: Path
) -> None:
    root = tmp_path / "webshop"
    root.mkdir()
    stores.mempack(tmp_path / "data", root=str(root))
    migration = await bring("mempack", tmp_path / "data", into=new_user)
    counts = migration.report.left_out.counts
    assert counts["memory_links", "to_id: its memory is missing"] == 1
    assert counts["passages", "locator: must be git:COMMIT:PATH#L1-L9 or file:PATH#L1-L9"] == 1
    assert counts.total() == 2
    assert migration.report.notes == [
        f"The repository {root} is the project webshop.", "Not imported: 1 deleted chunks.",
    ]  # fmt: skip
    found = await memories(services, new_user)
    first = found["Cards are charged at dispatch\nNot at the order."]
    old, gone = found["Cards are charged at the order"], found["Forgotten"]
    assert (first["namespace"], first["thread_id"], first["state"]) == ("webshop", "T-pay", "active")
    assert first["metadata"] == {
        "tags": ["card"], "entities": ["pay/card.go"], "commit": COMMIT, "thread_title": "Payments",
        "thread_tags": ["money"],
    }  # fmt: skip
    assert (old["state"], old["superseded_by"], old["valid_until"]) == ("archived", first["id"], first["created_at"])
    assert (gone["state"], gone["deleted_at"].isoformat()) == ("deleted", "2025-04-03T10:00:00+00:00")
    assert found["Only in beta"]["namespace"] == "webshop/beta"
    state = (await http.get("/api/v1/state", params={"user_id": new_user, "namespace": "webshop"})).json()
    assert (state["state"], state["revision"], state["reason"]) == ({"goal": "sell more", "exact": 1}, 2, "Goal 2")
    history = (await http.get("/api/v1/state/history", params={"user_id": new_user, "namespace": "webshop"})).json()
    assert [one["reason"] for one in history["revisions"]] == ["Goal 2", "Goal 1"]
    [link] = await rows(services, new_user, "SELECT l.* FROM memory_links AS l JOIN users AS u ON u.id = l.user_id"
                        " WHERE u.user_id = :user")  # fmt: skip
    assert (link["from_id"], link["rel"], link["to_id"]) == (first["id"], "replaces", old["id"])
    pack = await tool(new_user, "mempack", "mem_get_context", query="when is the card charged?", repo="webshop")
    assert "Cards are charged at dispatch" in pack
    assert "ChargeCard" in pack
    assert "sell more" in pack
    assert "Only in beta" not in pack
    beta = await tool(new_user, "mempack", "mem_get_context", query="beta", repo="webshop", workspace="beta")
    assert "Only in beta" in beta
    asked = {"user_id": new_user, "query": "charge the card", "symbol": "ChargeCard", "corpus": "passages"}
    [code] = (await http.post("/api/v1/memories/search", json=asked)).json()["passages"]["results"]
    assert (code["path"], code["first_line"], code["last_line"]) == ("pay/card.go", 1, 3)


async def test_an_early_store_of_mempack_and_two_of_one_name_come(
    services: Services, bring: Any, new_user: str, tmp_path: Path
) -> None:
    stores.mempack(tmp_path, old=True)
    stores.mempack(tmp_path, "r_ffffffff", "/elsewhere/webshop")
    migration = await bring("mempack", tmp_path, into=new_user)
    assert migration.report.notes[0] == "The repository /src/webshop is the project webshop."
    assert "The repository /elsewhere/webshop is the project webshop-r_ffffffff." in migration.report.notes
    found = await rows(services, new_user, "SELECT m.namespace, m.metadata FROM memories AS m JOIN users AS u"
                       " ON u.id = m.user_id WHERE u.user_id = :user AND content LIKE 'Cards are charged at dis%'"
                       " ORDER BY 1")  # fmt: skip
    assert [one["namespace"] for one in found] == ["webshop", "webshop-r_ffffffff"]
    assert [one["metadata"]["tags"] for one in found] == [["card", "visa"], ["card"]]


def _entries(user: str) -> list[Any]:
    """The entries of a client, of which the last two are none."""
    return [
        {"id": id_of(f"{user} budget"), "client_id": "acme", "user_id": "_anonymous", "namespace": "seo",
         "content": "budget=500 | channel=search", "category": "business_context", "type": "decision",
         "reason": "The board said so", "created_at": "2025-05-01T10:00:00+00:00",
         "updated_at": "2025-05-02T10:00:00+00:00", "metadata": {"kv": {"budget": "500"}}, "source_mcp": "ads-mcp",
         "expires_at": "2099-01-01T00:00:00+00:00", "merged_from": [id_of("older")]},
        {"date": "2025-01-01T08:00:00", "ttl_days": 40_000, "content": "tone=formal", "category": "user_preference",
         "type": "insight"},
        {"content": "", "type": "action"},
        "no entry",
    ]  # fmt: skip


def _pimemento(folder: Path, user: str) -> Path:
    client = folder / "acme"
    client.mkdir(parents=True)
    (client / "memory.json").write_text(json.dumps(_entries(user)), encoding="utf-8")
    (client / "memory.json.corrupt-20250101.bak").write_text("{", encoding="utf-8")
    (folder / "broken").mkdir()
    (folder / "broken" / "memory.json").write_text('[{"content": "cut off', encoding="utf-8")
    return folder


@pytest.mark.parametrize("form", ["folder", "database"])
async def test_pimemento_comes_with_kinds_reasons_and_expiry(
    services: Services, make: Make, bring: Any, http: httpx.AsyncClient, new_user: str, tmp_path: Path, form: str
) -> None:
    source: Any = _pimemento(tmp_path / "memory", new_user)
    if form == "database":
        source = await make(stores.PIMEMENTO)
        async with await psycopg.AsyncConnection.connect(source) as connection:
            for entry in _entries(new_user)[:2]:
                assert isinstance(entry, dict)
                row = {"client_id": "acme"} | {
                    name: json.dumps(value) if name == "metadata" else value
                    for name, value in entry.items() if name not in ("date", "ttl_days")
                }  # fmt: skip
                names, marks = ", ".join(row), ", ".join(["%s"] * len(row))
                await connection.execute(
                    f"INSERT INTO memories ({names}) VALUES ({marks})".encode(), list(row.values())
                )
    migration = await bring("pimemento", source, into=new_user)
    if form == "folder":
        assert migration.report.left_out.counts == {
            ("memories", "content: must not be empty"): 1, ("memories", "must be a JSON object"): 1,
            ("memories", "memory.json: must be a JSON array; the file is damaged"): 1,
        }  # fmt: skip
        assert migration.report.notes == [
            "Not imported: 1 damaged files that Pimemento put aside, the first of them"
            " acme/memory.json.corrupt-20250101.bak."
        ]
    else:
        assert migration.report.whole
    found = await memories(services, new_user)
    budget, tone = found["budget=500 | channel=search"], found["tone=formal"]
    assert (budget["namespace"], budget["kind"], budget["app"]) == ("acme", "decision", "ads-mcp")
    assert str(budget["id"]) == id_of(f"{new_user} budget")
    assert budget["categories"] == ["business_context"]
    assert budget["metadata"] == {
        "kv": {"budget": "500"}, "namespace": "seo", "user_id": "_anonymous", "reason": "The board said so",
        "source_mcp": "ads-mcp", "merged_from": [id_of("older")],
    }  # fmt: skip
    assert budget["updated_at"].isoformat() == "2025-05-02T10:00:00+00:00"
    assert budget["expires_at"].year == 2099
    assert (tone["namespace"], tone["kind"], tone["app"]) == ("acme", "insight", "pimemento")
    assert tone["metadata"] == {"namespace": "general", "user_id": "_anonymous"}
    if form == "folder":
        assert tone["created_at"].isoformat() == "2025-01-01T08:00:00+00:00"
        assert (tone["expires_at"] - tone["created_at"]).days == 40_000
    search = (
        await http.post("/api/v1/memories/search", json={"user_id": new_user, "query": "budget for search"})
    ).json()
    assert search["results"][0]["memory"] == "budget=500 | channel=search"


def _neuromem(user: str, messages: int = 2) -> str:
    """A database of neuromem with a user and `messages` messages, which were all stored at once."""
    ids = {name: id_of(f"{user} {name}") for name in ("tea", "coffee", "trait", "doc", "session", "file", "quit")}
    said = ", ".join(
        f"('{id_of(f'{user} {number}')}', '{user}', '{user}-monday', '{'user' if number % 2 else 'assistant'}',"
        f" 'Message {number} about tea', '2025-06-01T09:00Z')"
        for number in range(1, messages + 1)
    )
    return f"""
        INSERT INTO conversation_sessions (id, user_id, session_id, title, summary, created_at) VALUES
            ('{ids["session"]}', '{user}', '{user}-monday', 'Monday', 'About tea', '2025-06-01T09:00Z'),
            ('{id_of(f"{user} silent")}', '{user}', '{user}-silent', NULL, NULL, '2025-06-01T09:00Z');
        INSERT INTO conversations (id, user_id, session_id, role, content, created_at) VALUES {said};
        INSERT INTO memories (id, user_id, content, memory_type, metadata, importance, valid_from, valid_until,
            superseded_by, version, trait_stage, trait_confidence, expired_at, created_at) VALUES
            ('{ids["tea"]}', '{user}', 'Drinks green tea', 'fact', '{{"importance": 8}}', 8, '2025-06-01T09:00Z', NULL,
             NULL, 2, NULL, NULL, NULL, '2025-06-01T09:01Z'),
            ('{ids["coffee"]}', '{user}', 'Drinks coffee', 'fact', NULL, 0.5, '2025-01-01T09:00Z', '2025-06-01T09:00Z',
             '{ids["tea"]}', 1, NULL, NULL, NULL, '2025-01-01T09:00Z'),
            ('{ids["trait"]}', '{user}', 'Rises early', 'trait', NULL, 0.5, NULL, NULL, NULL, 1, 'core', 0.9, NULL,
             '2025-06-01T09:02Z'),
            ('{ids["quit"]}', '{user}', 'Smokes', 'trait', NULL, 0.5, NULL, NULL, NULL, 1, 'dissolved', 0.05,
             '2025-05-01T09:00Z', '2025-03-01T09:00Z'),
            ('{ids["doc"]}', '{user}', 'Recipes of the house', 'document', NULL, 0.5, NULL, NULL, NULL, 1, NULL, NULL,
             NULL, '2025-06-01T09:03Z');
        INSERT INTO memory_sources VALUES ('{ids["tea"]}', '{ids["session"]}');
        INSERT INTO key_values (namespace, scope_id, key, value) VALUES
            ('preferences', '{user}', 'language', '"German"'), ('preferences', '{user}', 'sizes', '{{"shoe": 42}}');
        INSERT INTO documents (id, user_id, filename, file_type, mime_type, file_size, object_key, extracted_text,
            embedding_id, created_at) VALUES
            ('{ids["file"]}', '{user}', 'recipes.txt', 'txt', 'text/plain', 20, '{user}/1',
             'Recipes of the house: sencha at 70 degrees', '{ids["doc"]}', '2025-06-01T09:03Z'),
            ('{id_of(f"{user} scan")}', '{user}', 'scan.png', 'png', 'image/png', 9, '{user}/2', NULL, NULL, now());
        INSERT INTO graph_edges (user_id, source_id, edge_type, target_id) VALUES ('{user}', 'I', 'LIKES', 'tea');
    """


async def test_neuromem_comes_with_conversations_validity_and_documents(
    services: Services, make: Make, bring: Any, tool: Any, http: httpx.AsyncClient, new_user: str
) -> None:
    address = await make(stores.NEUROMEM + _neuromem(new_user, 12) + _neuromem(f"{new_user}-2"))
    report = (await bring("neuromem", address)).report
    assert [taken.user for taken in report.users] == [new_user, f"{new_user}-2"]
    assert report.left_out.counts == {("sources", "it has no text"): 4}
    assert report.notes == [
        "Not imported: 2 rows of graph_edges, because there is no graph here; the memories that it was made of are"
        " imported.",
        "Not imported: 2 memories of the kind document, whose documents are imported whole.",
    ]
    found = await memories(services, new_user)
    tea, coffee, trait = found["Drinks green tea"], found["Drinks coffee"], found["Rises early"]
    assert (tea["kind"], tea["importance"], tea["thread_id"]) == ("fact", 0.8, f"{new_user}-monday")
    assert (tea["metadata"], str(tea["id"])) == ({"importance": 8, "version": 2}, id_of(f"{new_user} tea"))
    assert (coffee["state"], coffee["superseded_by"]) == ("archived", tea["id"])
    assert coffee["valid_until"] == coffee["archived_at"] == tea["valid_from"]
    assert (trait["kind"], trait["metadata"]) == ("trait", {"trait_stage": "core", "trait_confidence": 0.9})
    assert found["Smokes"]["state"] == "archived"
    assert found["preferences/language: German"]["key"] == "preferences/language"
    assert 'preferences/sizes: {"shoe":42}' in found
    assert "Recipes of the house" not in found
    listed = (await http.get(f"/api/v1/threads/{new_user}-monday/messages", params={"user_id": new_user})).json()
    messages = listed.get("messages") or listed.get("items")
    assert [one["content"] for one in messages] == [f"Message {number} about tea" for number in range(1, 13)]
    [conversation] = [one for one in (await everything(services, new_user))["sources"] if one["kind"] == "conversation"]
    assert (conversation["title"], conversation["summary"]) == ("Monday", "About tea")
    assert not conversation["infer"], "neuromem has extracted its facts already"
    [document] = (await http.get("/api/v1/documents", params={"user_id": new_user})).json()["items"]
    assert document["name"] == "recipes.txt"
    answered = await http.post("/api/v1/memories/search", json={"user_id": new_user, "query": "which tea?"})
    assert answered.json()["results"][0]["memory"] == "Drinks green tea"


async def test_an_openmemory_in_postgresql_comes_as_from_its_file(
    services: Services, make: Make, bring: Any, new_user: str
) -> None:
    ids = {name: id_of(f"{new_user} {name}") for name in ("user", "app", "memory", "history", "log", "config")}
    address = await make(stores.OPENMEMORY + f"""
        INSERT INTO users VALUES ('{ids["user"]}', '{new_user}', NULL, NULL, '{{"n": 1}}', '2025-05-01 12:30:15.12');
        INSERT INTO apps VALUES ('{ids["app"]}', '{ids["user"]}', 'claude', NULL, '{{}}', false, '2025-05-01 12:30');
        INSERT INTO configs VALUES ('{ids["config"]}', 'main', '{{"api_key": "sk-not-yours"}}');
        INSERT INTO memories VALUES ('{ids["memory"]}', '{ids["user"]}', '{ids["app"]}', 'Likes tea ☕', NULL,
            '{{"big": 12345678901234567890.125}}', 'archived', '2025-05-01 12:30:15.123456', '2025-05-02 12:30',
            '2025-05-03 12:30');
        INSERT INTO memory_status_history VALUES
            ('{ids["history"]}', '{ids["memory"]}', '{ids["user"]}', 'active', 'archived', '2025-05-03 12:30');
        INSERT INTO memory_access_logs VALUES
            ('{ids["log"]}', '{ids["memory"]}', '{ids["app"]}', '2025-05-02 12:30', 'search', '{{"score": 0.5}}');
    """)  # fmt: skip
    report = (await bring("openmemory", address)).report
    assert report.whole, report.as_json()
    assert report.notes == [
        "The configuration is not imported, because it may contain keys; `openmemory config` shows the current one."
    ]
    [memory] = (await memories(services, new_user)).values()
    assert (str(memory["id"]), memory["app"], memory["state"]) == (ids["memory"], "claude", "archived")
    assert memory["created_at"].isoformat() == "2025-05-01T12:30:15.123456+00:00"
    of = f"SELECT metadata FROM memory_access_logs WHERE memory_id = '{memory['id']}' AND :user <> ''"
    assert await rows(services, new_user, of) == [{"metadata": {"score": 0.5}}]
    with pytest.raises(SetupError, match="is a database of this service"):
        await bring("openmemory", services.database.url, dry_run=True)


@pytest.mark.slow
async def test_a_second_import_adds_nothing_and_a_dry_run_nothing_at_all(
    services: Services, make: Make, bring: Any, new_user: str, tmp_path: Path
) -> None:
    stores.mempack(tmp_path / "mempack")
    sources = {
        "devmemory": await make(stores.DEVMEMORY), "mempack": tmp_path / "mempack",
        "pimemento": _pimemento(tmp_path / "pimemento", new_user),
        "neuromem": await make(stores.NEUROMEM + _neuromem(new_user)),
    }  # fmt: skip
    for kind, source in sources.items():
        user = f"{new_user}-{kind}"
        dry = await bring(kind, source, into=user, dry_run=True)
        assert not await rows(services, user, "SELECT 1 FROM users WHERE user_id = :user")
        first = await bring(kind, source, into=user)
        before = await everything(services, user)
        second = await bring(kind, source, into=user)
        assert await everything(services, user) == before, kind
        found = [one.report.users[0].found for one in (dry, first, second)]
        assert found[0] == found[1] == found[2]
        [taken] = second.report.users
        assert taken.service is not None
        assert (taken.service["memories"]["added"], taken.service["passages"]) == (0, 0)
        assert answer(second.report).failed == (not second.report.whole)


@pytest.mark.slow
async def test_an_import_that_was_killed_is_completed_by_the_next_one(
    services: Services, make: Make, bring: Any, url: str, new_user: str, tmp_path: Path
) -> None:
    users = [f"{new_user}-{number}" for number in range(3)]
    address = await make(stores.NEUROMEM + "".join(_neuromem(user, 300) for user in users))
    command = [sys.executable, "-m", "openmemory", "import", "neuromem", address, "--url", url]
    environment = warm.clean_environment() | {"OPENMEMORY_DATA_DIR": str(tmp_path / "none")}
    killed = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.DEVNULL)
    first = "SELECT 1 FROM memories AS m JOIN users AS u ON u.id = m.user_id WHERE u.user_id = :user"
    while not await rows(services, users[0], first):
        assert killed.returncode is None, "it ended before anything was imported"
    killed.kill()
    assert await killed.wait() < 0
    report = (await bring("neuromem", address)).report
    assert [taken.error for taken in report.users] == [None] * 3
    for user in users:
        found = await everything(services, user)
        assert len(found["passages"]) == 301
        assert len(found["memories"]) == 6
        assert len({row["created_at"] for row in found["passages"]}) == 301


ODD: list[Any] = [
    None, "", 0, -1, 1.5, 2**40, "x", "\x00", "\x1b[31m", "{}", "[[[[", '{"a": NaN}', b"\xff\xfe", "infinity",
    "0001-01-01", "y" * 20_000, "/" + "z" * 5_000, "file:a.go#L0-L0", "file:../a.go#L9-L1", "git::a.go#L999999999-L1",
]  # fmt: skip


async def test_odd_values_are_reported_and_stop_nothing(
    services: Services, bring: Any, new_user: str, tmp_path: Path
) -> None:
    store = stores.mempack(tmp_path / "mempack")
    with closing(sqlite3.connect(store)) as connection, connection:
        for table in ("repos", "threads", "memories", "links", "artifacts", "chunks", "state_current", "state_history"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for shift in range(2 * len(ODD)):
                row = [ODD[(number * 7 + shift) % len(ODD)] for number in range(len(columns))]
                marks = ", ".join("?" * len(row))
                connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)
    plain = [one for one in ODD if not isinstance(one, bytes)] + [[1], {"a": float("nan")}, "\ud800", 10**400]
    names = (*_entries(new_user)[0], "ttl_days", "date")
    odd = [
        {name: plain[(number * 5 + shift) % len(plain)] for number, name in enumerate(names)}
        for shift in range(2 * len(plain))
    ]
    folder = _pimemento(tmp_path / "pimemento", new_user)
    (folder / "acme" / "memory.json").write_text(json.dumps([*odd, *_entries(new_user)[:1]]), encoding="utf-8")
    for kind, source in (("mempack", tmp_path / "mempack"), ("pimemento", folder)):
        for _ in range(2):
            report = (await bring(kind, source, into=new_user, user=new_user)).report
            [taken] = report.users
            assert taken.error is None
            assert report.left_out.total > 10
        answer(report).show(json=False)
    found = await memories(services, new_user)
    assert {"budget=500 | channel=search", "Only in beta"} <= found.keys()


async def test_the_source_is_only_read(make: Make, bring: Any, new_user: str, tmp_path: Path, eventually: Any) -> None:
    store = stores.mempack(tmp_path)
    folder = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in store.parent.iterdir()}
    await bring("mempack", store, into=new_user, dry_run=True)
    assert folder == {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in store.parent.iterdir()}
    # A store in use has its last writes in a log beside it.
    with sqlite3.connect(store) as writer:
        writer.execute("INSERT INTO memories (id, repo_id, title, summary, created_at) VALUES ('M-9', 'r_0a1b2c3d',"
                       " 'Written just now', '', '2025-04-09T10:00:00Z')")  # fmt: skip
        writer.commit()
        names = {file.name for file in store.parent.iterdir()}
        assert "memory.db-wal" in names
        migration = await bring("mempack", tmp_path, into=new_user, dry_run=True)
        assert migration.report.users[0].found.memories["active"] == 4  # two, the state, and the one in the log
        assert {file.name for file in store.parent.iterdir()} == names
    address = await make(stores.DEVMEMORY + "ALTER TABLE memories ENABLE ROW LEVEL SECURITY")
    counted = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables"
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:

        async def written() -> bool:
            """True once the session that made the tables has reported its rows, which it does when it ends."""
            return (await (await connection.execute(counted.encode())).fetchone() or (0,))[0] > 0

        await eventually(written)
        before = await (await connection.execute(counted.encode())).fetchone()
        assert (await bring("devmemory", address, into=new_user)).report.users
        assert await (await connection.execute(counted.encode())).fetchone() == before
        # Rules that hide rows from the owner end the import; they would hide them without a word.
        await connection.execute(b"ALTER TABLE memories FORCE ROW LEVEL SECURITY")
        with pytest.raises(SetupError, match="row-level security"):
            await bring("devmemory", address, into=new_user)


async def test_what_cannot_be_read_is_named(
    services: Services, make: Make, bring: Any, tmp_path: Path, new_user: str
) -> None:
    other = await make("CREATE TABLE memories (id int, content text); CREATE TABLE projects (name text)")
    for kind, said in {
        "openmemory": "must be a database of OpenMemory; it has no table users, apps",
        "devmemory": "must be a database of DevMemory; it has no column projects.id, memories.project_id",
        "neuromem": "must be a database of neuromem; it has no column memories.user_id, memories.memory_type",
        "pimemento": "must be a database of Pimemento; it has no column memories.client_id, memories.source_mcp",
    }.items():
        with pytest.raises(SetupError, match=said) as refused:
            await bring(kind, other, dry_run=True)
        assert refused.value.message.startswith("postgresql://")
    with pytest.raises(Invalid, match="mempack has none that is read"):
        await bring("mempack", other, dry_run=True)
    with pytest.raises(Invalid, match="must be the database of neuromem"):
        await bring("neuromem", tmp_path, dry_run=True)
    for kind, said in {"mempack": "it has no repos/ID/memory.db", "pimemento": "it has no CLIENT/memory.json"}.items():
        with pytest.raises(SetupError, match=said):
            await bring(kind, tmp_path, dry_run=True)
    store = stores.mempack(tmp_path / "damaged")
    whole = store.read_bytes()
    store.write_bytes(whole[: len(whole) // 2] + b"\xff" * (len(whole) - len(whole) // 2))
    with pytest.raises(SetupError, match=r"repos/r_0a1b2c3d/memory\.db: (is damaged|cannot be read)"):
        await bring("mempack", tmp_path / "damaged", dry_run=True)
    store.write_bytes(b"SQLite format 3\0")
    with pytest.raises(SetupError, match="cannot be read"):
        await bring("mempack", store, dry_run=True)


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:s3cret@127.0.0.1:1/db", "postgresql+asyncpg://u:s3cret@127.0.0.1:1/db",
        "postgres://u:s3cret@no-such-host.invalid/db", "postgresql://u:p@s3cret@127.0.0.1:1/db",
        "postgresql://u:p/s3cret@127.0.0.1:1/db", "postgresql://127.0.0.1:1/db?password=s3cret",
        "postgresql://u:s3cret@127.0.0.1:port/db", "postgresql://u:s3cret@127.0.0.1/db?s3cret=1",
        "postgresql://u:s3cret%zz@127.0.0.1/db", "postgresql://u:[s3cret@127.0.0.1/db", "mysql://u:s3cret@127.0.0.1/db",
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["devmemory", "pimemento", "openmemory"])
async def test_no_password_is_told(kind: Any, address: str) -> None:
    migration = Migration(ImportRequest(kind, address, dry_run=True), "default_user", None)
    with pytest.raises((Invalid, SetupError, Unavailable)) as refused:
        await migration.run()
    told = f"{refused.value.message} {refused.value.hint} {migration.report.as_json()} {refused.value.__cause__}"
    assert "s3cret" not in told
