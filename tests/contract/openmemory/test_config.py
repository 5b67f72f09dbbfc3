"""`/api/v1/config`: every operation, shape and default, and what OpenMemory did wrong there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from openmemory.config.settings import Settings
from openmemory.services import Services, open_services
from tests.clusters import furnish
from tests.doors.mcp.conftest import serving
from tests.living import living

CONFIG = "/api/v1/config"
MASK = "********"
LLM = {"provider": "openai", "config": {"model": "gpt-4o-mini", "temperature": 0.1, "max_tokens": 2000}}
REFERENCE = {"api_key": "env:OPENAI_API_KEY", "ollama_base_url": None}
PACKAGED = {"provider": "local", "config": {"model": "all-MiniLM-L6-v2-int8", "api_key": None, "ollama_base_url": None}}
KEY = "sk-very-secret-0123456789"

Installed = Callable[..., AbstractAsyncContextManager[tuple[httpx.AsyncClient, Services]]]

_numbers = count()


@pytest.fixture(scope="module")
def installed(short_folder: Path) -> Installed:
    """A service of its own behind a socket, and a client of it: what is configured concerns the whole service."""

    @asynccontextmanager
    async def make(**settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Services]]:
        folder = furnish(short_folder / f"config-{next(_numbers)}")
        async with (
            open_services(Settings.model_validate({"data_dir": str(folder), "port": 0} | settings)) as services,
            serving(services) as address,
            httpx.AsyncClient(base_url=address, timeout=30) as client,
        ):
            yield client, services

    return make


@pytest.fixture(scope="module")
async def installation(installed: Installed) -> AsyncIterator[tuple[httpx.AsyncClient, Services]]:
    """One with nothing set."""
    async with living(installed()) as both:
        yield both


@pytest.fixture
async def http(installation: tuple[httpx.AsyncClient, Services]) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a service that nobody has configured yet."""
    client = installation[0]
    yield client
    assert (await client.post(f"{CONFIG}/reset")).status_code == 200


async def shown(http: httpx.AsyncClient, path: str = "") -> Any:
    answer = await http.get(CONFIG + path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def saved(http: httpx.AsyncClient, method: str, path: str, body: Any) -> Any:
    answer = await http.request(method, CONFIG + path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refused(http: httpx.AsyncClient, method: str, path: str, body: Any) -> str:
    """The words of a refusal; nothing was saved."""
    before = await shown(http)
    answer = await http.request(method, CONFIG + path, json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"] in ("invalid", "address_not_allowed")
    assert await shown(http) == before
    detail: str = answer.json()["detail"]
    return detail


def llm(**config: Any) -> dict[str, Any]:
    return {"provider": "openai", "config": {"model": "gpt-4o-mini", "temperature": 0.1, "max_tokens": 2000} | config}


def embedder(provider: str = "openai", **config: Any) -> dict[str, Any]:
    return {"provider": provider, "config": {"model": "some-model"} | config}


# Every operation, under both forms of its path.

EVERY = [
    ("GET", "", None, {"openmemory", "mem0"}),
    ("PUT", "", {"openmemory": {"custom_instructions": "a"}}, {"openmemory", "mem0"}),
    ("PATCH", "", {"openmemory": {"custom_instructions": "a"}}, {"openmemory", "mem0"}),
    ("POST", "/reset", None, {"openmemory", "mem0"}),
    ("POST", "/test", {"mem0": {"embedder": PACKAGED}}, {"llm", "embedder"}),
    ("GET", "/mem0/llm", None, {"provider", "config"}),
    ("PUT", "/mem0/llm", llm(), {"provider", "config"}),
    ("GET", "/mem0/embedder", None, {"provider", "config"}),
    ("PUT", "/mem0/embedder", PACKAGED, {"provider", "config"}),
    ("PUT", "/mem0/vector_store", {"provider": "qdrant", "config": {}}, {"provider", "config"}),
    ("GET", "/openmemory", None, {"custom_instructions"}),
    ("PUT", "/openmemory", {"custom_instructions": "a"}, {"custom_instructions"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path", "body", "keys"), EVERY, ids=[f"{m} {p or '/'}" for m, p, _, _ in EVERY])
@pytest.mark.parametrize("slash", ["", "/"])
async def test_every_operation_answers_under_both_forms(
    http: httpx.AsyncClient, method: str, path: str, body: Any, keys: set[str], slash: str
) -> None:
    answer = await http.request(method, CONFIG + path + slash, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == keys


@pytest.mark.parametrize("slash", ["", "/"])
async def test_the_vector_store_is_null(http: httpx.AsyncClient, slash: str) -> None:
    assert await shown(http, f"/mem0/vector_store{slash}") is None
    assert await saved(http, "PUT", f"/mem0/vector_store{slash}", None) is None


# Shape and defaults.


async def test_what_nobody_configured_is_what_the_service_does(http: httpx.AsyncClient) -> None:
    assert await shown(http) == {
        "openmemory": {"custom_instructions": None},
        "mem0": {
            "llm": LLM | {"config": LLM["config"] | REFERENCE},  # type: ignore[operator]
            "embedder": PACKAGED,
            "vector_store": None,
        },
    }


async def test_the_sections_are_those_of_the_whole(http: httpx.AsyncClient) -> None:
    whole = await shown(http)
    assert await shown(http, "/mem0/llm") == whole["mem0"]["llm"]
    assert await shown(http, "/mem0/embedder") == whole["mem0"]["embedder"]
    assert await shown(http, "/openmemory") == whole["openmemory"]


# Saving.


async def test_put_saves_and_returns_what_it_saved(http: httpx.AsyncClient) -> None:
    body = {"openmemory": {"custom_instructions": "Be brief."}, "mem0": {"llm": llm(temperature=0.7), "embedder": None}}
    answer = await saved(http, "PUT", "", body)
    assert answer["openmemory"] == {"custom_instructions": "Be brief."}
    assert answer["mem0"]["llm"]["config"]["temperature"] == 0.7
    assert await shown(http) == answer


async def test_put_merges_openmemory_and_replaces_mem0(http: httpx.AsyncClient) -> None:
    await saved(http, "PUT", "", {"openmemory": {"custom_instructions": "Be brief."}, "mem0": {"llm": llm(model="x")}})
    answer = await saved(http, "PUT", "", {"openmemory": {}, "mem0": {"embedder": PACKAGED}})
    assert answer["openmemory"] == {"custom_instructions": "Be brief."}
    assert answer["mem0"]["llm"]["config"]["model"] == "gpt-4o-mini"
    answer = await saved(http, "PUT", "", {"openmemory": {"custom_instructions": None}})
    assert answer["openmemory"] == {"custom_instructions": None}


async def test_the_page_sends_back_what_it_was_shown(
    http: httpx.AsyncClient, installation: tuple[httpx.AsyncClient, Services]
) -> None:
    """As the old settings page does on Save. Nothing that it did not change is stored."""
    page = await shown(http)
    page["openmemory"]["custom_instructions"] = "Only decisions."
    answer = await saved(http, "PUT", "", page)
    assert answer.pop("note")
    assert answer == page
    async with installation[1].database.statement() as tx:
        [(value,)] = await tx.execute(text("SELECT value FROM configs WHERE key = 'main'"))
    assert value == {"openmemory": {"custom_instructions": "Only decisions."}}


async def test_patch_merges_deeply(http: httpx.AsyncClient) -> None:
    await saved(http, "PUT", "/mem0/llm", llm(api_key="env:OPENAI_API_KEY"))
    answer = await saved(http, "PATCH", "", {"mem0": {"llm": {"config": {"temperature": 0.9}}}})
    assert answer["mem0"]["llm"]["config"] == {
        "model": "gpt-4o-mini", "temperature": 0.9, "max_tokens": 2000, "api_key": "env:OPENAI_API_KEY",
        "ollama_base_url": None,
    }  # fmt: skip
    answer = await saved(http, "PATCH", "", {"mem0": {}})
    assert answer["mem0"]["llm"]["config"]["temperature"] == 0.9
    answer = await saved(http, "PATCH", "", {"mem0": {"llm": None}})
    assert answer["mem0"]["llm"]["config"]["temperature"] == 0.1


async def test_reset_brings_back_what_the_settings_say(http: httpx.AsyncClient) -> None:
    before = await shown(http)
    await saved(http, "PUT", "", {"openmemory": {"custom_instructions": "x"}, "mem0": {"llm": llm(model="y")}})
    assert await saved(http, "POST", "/reset", None) == before == await shown(http)


async def test_patches_at_once_lose_nothing(http: httpx.AsyncClient) -> None:
    fields = [{"temperature": 0.3}, {"max_tokens": 17}, {"model": "z"}]
    bodies: list[Any] = [{"mem0": {"llm": {"config": field}}} for field in fields]
    bodies.append({"openmemory": {"custom_instructions": "all at once"}})
    for _ in range(5):
        await saved(http, "POST", "/reset", None)
        await asyncio.gather(*(saved(http, "PATCH", "", body) for body in bodies))
        now = await shown(http)
        config = now["mem0"]["llm"]["config"]
        assert (config["temperature"], config["max_tokens"], config["model"]) == (0.3, 17, "z")
        assert now["openmemory"]["custom_instructions"] == "all at once"


@pytest.mark.parametrize(
    "provider",
    ["OpenAI", "Anthropic", "Azure OpenAI", "Together", "Groq", "Litellm", "Mistral AI", "Google AI", "AWS Bedrock",
     "Gemini", "DeepSeek", "xAI", "LangChain"],
)  # fmt: skip
async def test_every_language_model_of_the_page_is_taken_as_it_spells_it(
    http: httpx.AsyncClient, provider: str
) -> None:
    sent = llm(model="some-model", api_key=KEY) | {"provider": provider.lower()}
    assert (await saved(http, "PUT", "/mem0/llm", sent))["provider"] == provider.lower()


# Keys.


@pytest.mark.parametrize("section", ["llm", "embedder"])
async def test_a_key_comes_back_masked_and_masked_it_stays_as_it_is(
    http: httpx.AsyncClient, installation: tuple[httpx.AsyncClient, Services], section: str
) -> None:
    body = llm(api_key=KEY) if section == "llm" else embedder("together", api_key=KEY)
    answer = await saved(http, "PUT", f"/mem0/{section}", body)
    assert answer["config"]["api_key"] == MASK
    answer["config"]["model"] = "another"
    assert (await saved(http, "PUT", f"/mem0/{section}", answer))["config"]["api_key"] == MASK
    for path in ("", f"/mem0/{section}"):
        assert KEY not in (await http.get(CONFIG + path)).text
    async with installation[1].database.statement() as tx:
        kept = await tx.scalar(text(f"SELECT value #>> '{{mem0,{section},config,api_key}}' FROM configs"))
    assert kept == KEY
    answer["config"]["api_key"] = None
    assert (await saved(http, "PUT", f"/mem0/{section}", answer))["config"]["api_key"] is None


@pytest.mark.parametrize("change", [{"provider": "groq"}, {"config": {"openai_base_url": "https://example.com/v1"}}])
@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_a_masked_key_goes_to_nobody_else(http: httpx.AsyncClient, change: dict[str, Any], method: str) -> None:
    answer = await saved(http, "PUT", "/mem0/llm", llm(api_key=KEY))
    sent = {**answer, **change, "config": answer["config"] | change.get("config", {})}
    words = await refused(http, method, "", {"mem0": {"llm": sent}})
    assert words.startswith("mem0.llm.config.api_key: must be the key itself")


async def test_a_patch_to_another_provider_takes_no_key_along(http: httpx.AsyncClient) -> None:
    await saved(http, "PUT", "/mem0/llm", llm(api_key=KEY))
    sent = {"provider": "groq", "config": {"model": "m"}}
    answer = await saved(http, "PATCH", "", {"mem0": {"llm": sent}})
    assert answer["mem0"]["llm"]["config"]["api_key"] is None


@pytest.mark.parametrize(
    "name",
    ["OPENMEMORY_DATABASE_URL", "OPENMEMORY_ACCESS_API_KEY", "DATABASE_URL", "HOME", "AWS_SECRET_ACCESS_KEY", ""],
)
async def test_only_variables_of_api_keys_can_be_named(http: httpx.AsyncClient, name: str) -> None:
    words = await refused(http, "PUT", "/mem0/llm", llm(api_key=f"env:{name}"))
    assert words.startswith("mem0.llm.config.api_key: env: must name a variable that ends in API_KEY")


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"provider": "groq", "config": {"api_key": "env:OPENAI_API_KEY"}}, "OPENAI_API_KEY is the key of openai"),
        (
            {"config": {"api_key": "env:OPENAI_API_KEY", "openai_base_url": "https://example.com/v1"}},
            "a variable's key goes only to",
        ),
    ],
)
async def test_a_variable_is_read_for_nobody_else(http: httpx.AsyncClient, sent: dict[str, Any], words: str) -> None:
    whole = llm() | sent
    whole["config"] = llm()["config"] | sent["config"]
    assert f"mem0.llm.config.api_key: {words}" in await refused(http, "PUT", "/mem0/llm", whole)


async def test_a_reference_is_kept_and_shown_as_one(http: httpx.AsyncClient) -> None:
    answer = await saved(http, "PUT", "/mem0/llm", llm(api_key="env:LLM_API_KEY"))
    assert answer["config"]["api_key"] == "env:LLM_API_KEY"


# Addresses.


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:11435", "http://localhost:80", "http://10.0.0.7", "http://[::1]:1", "http://192.168.1.4:8080",
     "http://169.254.169.254/latest/meta-data", "http://[::ffff:127.0.0.1]:80", "http://0x7f.1:80", "http://2130706433"],
)  # fmt: skip
@pytest.mark.parametrize(("method", "path"), [("PUT", "/mem0/embedder"), ("PUT", ""), ("PATCH", "")])
async def test_a_private_address_is_refused_by_its_field(
    http: httpx.AsyncClient, address: str, method: str, path: str
) -> None:
    section = embedder("ollama", ollama_base_url=address)
    words = await refused(http, method, path, {"mem0": {"embedder": section}} if path == "" else section)
    assert words.startswith("mem0.embedder.config.ollama_base_url: ")


@pytest.mark.parametrize(
    "address", ["file:///etc/passwd", "ftp://example.com", "example", "http://u:p@example.com", "//x"]
)
async def test_what_is_no_address_of_the_web_is_refused(http: httpx.AsyncClient, address: str) -> None:
    words = await refused(http, "PUT", "/mem0/llm", llm(openai_base_url=address))
    assert words.startswith("mem0.llm.config.openai_base_url: must ")
    assert "u:p" not in words


async def test_an_address_that_the_settings_allow_is_taken_and_metadata_is_not(installed: Installed) -> None:
    async with installed(egress={"allow": ["127.0.0.1:9", "10.0.0.0/8"]}) as (http, _):
        for address in ("http://127.0.0.1:9", "http://10.1.2.3:11434"):
            section = embedder("ollama", ollama_base_url=address)
            assert await saved(http, "PUT", "/mem0/embedder", section) == {
                "provider": "ollama",
                "config": {"model": "some-model", "api_key": None, "ollama_base_url": address},
            }
        for address in ("http://127.0.0.1:10", "http://169.254.169.254"):
            await refused(http, "PUT", "/mem0/embedder", embedder("ollama", ollama_base_url=address))


@pytest.mark.parametrize("address", [None, "http://localhost:11434", "http://127.0.0.1:11434", "http://[::1]:11434/"])
async def test_an_ollama_on_this_machine_can_be_chosen_where_only_this_machine_reaches_the_service(
    http: httpx.AsyncClient, address: str | None
) -> None:
    section = {"provider": "ollama", "config": {"model": "llama3.1", "ollama_base_url": address}}
    assert (await saved(http, "PUT", "/mem0/llm", section))["config"]["model"] == "llama3.1"
    assert (await shown(http, "/mem0/llm"))["provider"] == "ollama"
    await saved(http, "PUT", "", {"mem0": {"llm": section, "embedder": embedder("ollama", ollama_base_url=address)}})


async def test_an_ollama_on_this_machine_needs_a_setting_where_a_key_is_required(installed: Installed) -> None:
    key = token_hex(32)
    async with installed(access={"api_key": key}) as (http, _):
        http.headers["Authorization"] = f"Bearer {key}"
        words = await refused(http, "PUT", "/mem0/llm", {"provider": "ollama", "config": {"model": "llama3.1"}})
        assert 'add "localhost:11434" to egress.allow' in words


async def test_fields_of_another_provider_are_ignored(http: httpx.AsyncClient) -> None:
    """The retired server's page keeps the address of Ollama in its form when another provider is chosen."""
    sent = llm(api_key="sk-test-0123456789", ollama_base_url="http://10.0.0.7:11434", embedding_dims=3)
    assert await saved(http, "PUT", "/mem0/llm", sent) == {
        "provider": "openai",
        "config": LLM["config"] | {"api_key": MASK, "ollama_base_url": None},
    }
    other = embedder("openai", vllm_base_url="http://10.0.0.7", temperature=0.2, max_tokens=9)
    assert (await saved(http, "PATCH", "", {"mem0": {"embedder": other}}))["mem0"]["embedder"] == {
        "provider": "openai",
        "config": {"model": "some-model", "api_key": None, "ollama_base_url": None},
    }


async def test_temperature_and_length_have_defaults(http: httpx.AsyncClient) -> None:
    sent = {"provider": "openai", "config": {"model": "gpt-4o-mini", "api_key": "sk-test-0123456789"}}
    config = (await saved(http, "PUT", "/mem0/llm", sent))["config"]
    assert (config["temperature"], config["max_tokens"]) == (0.1, 2000)


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_saving_the_proposed_language_model_says_that_none_is_in_use(
    http: httpx.AsyncClient, method: str
) -> None:
    proposed = await shown(http)
    assert "note" not in proposed
    answer = await saved(http, method, "", proposed)
    assert answer["note"].startswith("No language model is in use")
    again = await saved(http, method, "", answer)
    assert again == answer
    await saved(http, "PUT", "/mem0/llm", proposed["mem0"]["llm"])
    assert "note" not in await saved(http, method, "", answer)


# Everything else that cannot be used.


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("PUT", "", {"mem1": {}}, "mem1: is not a known field"),
        ("PUT", "", {"mem0": {"llm": llm(colour="red")}}, "mem0.llm.config.colour: is not a known field"),
        ("PUT", "", {"mem0": []}, "mem0: must be a JSON object"),
        ("PUT", "", [], "body: must be a JSON object"),
        ("PUT", "/mem0/llm", llm(temperature="warm"), "config.temperature: "),
        ("PUT", "/mem0/llm", llm(max_tokens=0), "config.max_tokens: "),
        ("PUT", "/mem0/llm", llm(max_tokens=""), "config.max_tokens: "),
        ("PUT", "/mem0/llm", llm(model=5), "config.model: "),
        ("PUT", "/mem0/llm", llm(api_key="two words"), "config.api_key: "),
        ("PUT", "/mem0/llm", {"provider": "openai"}, "config: is required"),
        ("PUT", "/mem0/llm", {"provider": "openai", "config": {}}, "config.model: is required"),
        ("PUT", "/mem0/llm", llm() | {"provider": "opneai"}, "mem0.llm.provider: must be a known provider:"),
        ("PUT", "/mem0/embedder", embedder("opneai"), "mem0.embedder.provider: must be a known provider: "),
        (
            "PUT",
            "/mem0/embedder",
            embedder("vertexai"),
            "mem0.embedder.provider: vertexai can be chosen only in the settings",
        ),
        ("PUT", "/mem0/embedder", embedder("hugging face"), "mem0.embedder.config.huggingface_base_url: must be given"),
        ("PUT", "/mem0/embedder", embedder("local"), "mem0.embedder.config.model: local is the packaged model"),
        ("PUT", "/openmemory", {"custom_instructions": 5}, "custom_instructions: "),
        ("PUT", "/openmemory", {"custom_instructions": "a\x00b"}, "custom_instructions: must not contain a NUL"),
        ("PUT", "/openmemory", {"custom_instructions": "x" * 20_000}, "custom_instructions: "),
        (
            "PUT",
            "/mem0/vector_store",
            {"provider": "chroma", "config": {}},
            "mem0.vector_store.provider: must be qdrant",
        ),
        (
            "PUT",
            "/mem0/vector_store",
            {"provider": "qdrant", "config": {"host": "mem0_store"}},
            "mem0.vector_store.config.host: can be set only in the settings (qdrant.url",
        ),
        (
            "PATCH",
            "",
            {"mem0": {"vector_store": {"provider": "qdrant", "config": {"collection_name": "mine"}}}},
            "mem0.vector_store.config.collection_name: can be set only in the settings (qdrant.collection",
        ),
        ("PATCH", "", {"mem0": {"llm": {"provider": None}}}, "mem0.llm.provider: "),
    ],
)
async def test_what_cannot_be_used_is_refused_by_its_field(
    http: httpx.AsyncClient, method: str, path: str, body: Any, words: str
) -> None:
    assert words in await refused(http, method, path, body)


async def test_the_vector_store_that_is_in_use_is_taken(http: httpx.AsyncClient) -> None:
    present = {"provider": "qdrant", "config": {"collection_name": "openmemory"}}
    assert await saved(http, "PUT", "/mem0/vector_store", present) == present
    body = {"mem0": {"vector_store": present}}
    assert (await saved(http, "PUT", "", body))["mem0"]["vector_store"] is None


# What OpenMemory let happen besides.


async def test_a_saved_row_overrides_no_setting_that_nobody_meant_to_change(installed: Installed) -> None:
    settings = {
        "embedder": {"provider": "openai", "model": "mine", "base_url": "http://127.0.0.1:9/v1", "api_key": KEY},
        "llm": {"provider": "ollama", "model": "llama3.1:latest"},
    }
    async with installed(**settings) as (http, services):
        page = await shown(http)
        assert page["mem0"] == {
            "llm": {
                "provider": "ollama",
                "config": {"model": "llama3.1:latest", "temperature": 0.1, "max_tokens": 2000} | REFERENCE
                | {"api_key": None},
            },
            "embedder": {
                "provider": "openai",
                "config": {
                    "model": "mine", "api_key": MASK, "ollama_base_url": None,
                    "openai_base_url": "http://127.0.0.1:9/v1",
                },
            },
            "vector_store": None,
        }  # fmt: skip
        page["openmemory"]["custom_instructions"] = "x"
        await saved(http, "PUT", "", page)
        # The key of the settings is used on, and copied nowhere.
        page["mem0"]["embedder"]["config"]["model"] = "another"
        assert (await saved(http, "PUT", "", page))["mem0"]["embedder"]["config"]["api_key"] == MASK
        async with services.database.statement() as tx:
            [(value,)] = await tx.execute(text("SELECT value FROM configs"))
        assert value["mem0"].keys() == {"embedder"}
        assert KEY not in json.dumps(value)


@pytest.mark.slow
async def test_only_administrators_see_and_change_it(installed: Installed) -> None:
    admin = "Vd7-kq2Xw9-pLr4mZt8n"
    async with installed(access={"require": "always", "api_key": admin}) as (http, _):
        http.headers["Authorization"] = f"Bearer {admin}"
        body = {"name": "one", "user_id": "alice", "scopes": ["read", "write"]}
        key = (await http.post("/api/v1/keys", json=body)).json()["key"]
        http.headers["Authorization"] = f"Bearer {key}"
        for method, path, sent, _ in EVERY:
            answer = await http.request(method, CONFIG + path, json=sent)
            assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_scope"), (method, path)


async def test_changes_are_in_the_audit_log_without_their_values(http: httpx.AsyncClient) -> None:
    await saved(http, "PATCH", "", {"mem0": {"llm": {"config": {"api_key": KEY, "model": "told-nowhere"}}}})
    await saved(http, "POST", "/reset", None)
    answer = await http.get("/api/v1/audit", params={"limit": 2})
    found = {event["event"]: event["detail"] for event in answer.json()["events"]}
    assert "mem0.llm.config.model" in found["config.change"]["fields"]
    assert "mem0.llm.config.model" in found["config.reset"]["fields"]
    assert KEY not in answer.text
    assert "told-nowhere" not in answer.text
