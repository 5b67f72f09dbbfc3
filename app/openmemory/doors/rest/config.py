"""REST endpoints for the service's configuration, in OpenMemory's format; for administrators."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import Body, Response

from openmemory.doors.rest.http.caller import ThePrincipal, TheServices
from openmemory.doors.rest.http.errors import documented
from openmemory.doors.rest.http.routing import Router
from openmemory.saved_settings.schemas import (
    ConfigPatch,
    ConfigSchema,
    EmbedderProvider,
    LLMProvider,
    Mem0Config,
    OpenMemoryConfig,
    VectorStoreProvider,
)
from openmemory.saved_settings.trials import Trial
from openmemory.services import Services

T = TypeVar("T")

router = Router("/api/v1/config", "config")

NOTE = "X-OpenMemory-Note"
"""Response header: the saved configuration cannot be used at the moment. The body keeps OpenMemory's format."""

_LLM = {
    "provider": "openai",
    "config": {"model": "gpt-4o-mini", "temperature": 0.1, "max_tokens": 2000, "api_key": "env:OPENAI_API_KEY"},
}
_LOCAL = {"provider": "local", "config": {"model": "all-MiniLM-L6-v2-int8"}}
_OPENAI = {"provider": "openai", "config": {"model": "text-embedding-3-small", "api_key": "env:OPENAI_API_KEY"}}
_INSTRUCTIONS = {"custom_instructions": "Keep decisions; leave out small talk."}


@router.get("", responses=documented(403))
async def get_config(services: TheServices, principal: ThePrincipal) -> ConfigSchema:
    """Shows the configuration in force: saved values, otherwise the settings of the service. API keys are masked.

    If no language model was ever chosen, OpenMemory's default is shown as a proposal, and nothing is sent to it. Needs
    the scope `admin`.
    """
    return await services.configuration.read(principal)


@router.put("", responses=documented(403))
async def put_config(
    services: TheServices,
    principal: ThePrincipal,
    response: Response,
    config: Annotated[
        ConfigSchema,
        Body(
            openapi_examples={
                "another embedder": {"value": {"mem0": {"llm": _LLM, "embedder": _OPENAI, "vector_store": None}}},
                "instructions alone": {"value": {"openmemory": _INSTRUCTIONS}},
            }
        ),
    ],
) -> ConfigSchema:
    """Save the whole configuration: `openmemory` is merged, `mem0` replaced; what is left out of `mem0` follows the
    settings again. What comes as it was shown changes nothing, and a masked key stays what it is.

    Another embedder takes effect in every process, without a restart: its vectors are made beside the present ones, and
    searches go on with these until it is complete. Header `X-OpenMemory-Note`: it does not answer, and why. Language
    model and instructions take effect with the next text that is added with `infer`. Needs the scope `admin`.
    """
    result = await services.configuration.replace(principal, config)
    await _note(services, response)
    return result


@router.patch("", responses=documented(403))
async def patch_config(
    services: TheServices,
    principal: ThePrincipal,
    response: Response,
    config: Annotated[
        ConfigPatch,
        Body(
            openapi_examples={
                "a cooler model": {"value": {"mem0": {"llm": {"config": {"temperature": 0.0}}}}},
                "back to the embedder of the settings": {"value": {"mem0": {"embedder": None}}},
            }
        ),
    ],
) -> ConfigSchema:
    """Save the fields that are sent and leave the others. With another provider nothing of the old one's `config` is
    taken over, its key least of all. Needs the scope `admin`.
    """
    result = await services.configuration.merge(principal, config)
    await _note(services, response)
    return result


@router.post("/reset", responses=documented(403))
async def reset_config(services: TheServices, principal: ThePrincipal) -> ConfigSchema:
    """Forget everything that was saved: the settings of the service are in force again. Needs the scope `admin`."""
    return await services.configuration.reset(principal)


@router.post("/test", responses=documented(403))
async def test_config(
    services: TheServices,
    principal: ThePrincipal,
    config: Annotated[
        ConfigPatch,
        Body(
            openapi_examples={
                "a language model": {"value": {"mem0": {"llm": _LLM}}},
                "what is in force": {"value": {}},
            }
        ),
    ],
) -> Trial:
    """Try models before they are saved. The fields are those of `PATCH /api/v1/config`, laid over the present ones.

    Each model that is sent is called once; if none is sent, the present ones are. Nothing is stored. Needs the scope
    `admin`.
    """
    return await services.trials.run(principal, config)


@router.get("/mem0/llm", responses=documented(403))
async def get_llm_config(services: TheServices, principal: ThePrincipal) -> LLMProvider:
    """Show the language model. Needs the scope `admin`."""
    return _of(_mem0(await services.configuration.read(principal)).llm)


@router.put("/mem0/llm", responses=documented(403))
async def put_llm_config(
    services: TheServices,
    principal: ThePrincipal,
    config: Annotated[LLMProvider, Body(openapi_examples={"OpenAI": {"value": _LLM}})],
) -> LLMProvider:
    """Choose the language model that extracts facts from what is added with `infer`. `POST /api/v1/config/test` asks it
    beforehand. Needs the scope `admin`.
    """
    return LLMProvider.model_validate(await services.configuration.save_section(principal, "llm", config))


@router.get("/mem0/embedder", responses=documented(403))
async def get_embedder_config(services: TheServices, principal: ThePrincipal) -> EmbedderProvider:
    """Show the embedder that is configured. `/api/v1/doctor` tells which one is in use. Needs the scope `admin`."""
    return _of(_mem0(await services.configuration.read(principal)).embedder)


@router.put("/mem0/embedder", responses=documented(403))
async def put_embedder_config(
    services: TheServices,
    principal: ThePrincipal,
    response: Response,
    config: Annotated[
        EmbedderProvider, Body(openapi_examples={"the packaged model": {"value": _LOCAL}, "OpenAI": {"value": _OPENAI}})
    ],
) -> EmbedderProvider:
    """Choose the embedder; see `PUT /api/v1/config` for how it takes effect. Needs the scope `admin`."""
    result = await services.configuration.save_section(principal, "embedder", config)
    await _note(services, response)
    return EmbedderProvider.model_validate(result)


@router.get("/mem0/vector_store", responses=documented(403))
async def get_vector_store_config(services: TheServices, principal: ThePrincipal) -> VectorStoreProvider | None:
    """Null: vectors are in Qdrant, where the settings say (`qdrant.url`). Needs the scope `admin`."""
    return _mem0(await services.configuration.read(principal)).vector_store


@router.put("/mem0/vector_store", responses=documented(403))
async def put_vector_store_config(
    services: TheServices,
    principal: ThePrincipal,
    config: Annotated[
        VectorStoreProvider | None, Body(openapi_examples={"as it is": {"value": {"provider": "qdrant", "config": {}}}})
    ] = None,
) -> VectorStoreProvider | None:
    """Take null or what is the case already, and refuse every other vector store: the settings alone choose it
    (`qdrant.url`, `qdrant.collection`). Needs the scope `admin`.
    """
    await services.configuration.keep_vector_store(principal, config)
    return config


@router.get("/openmemory", responses=documented(403))
async def get_openmemory_config(services: TheServices, principal: ThePrincipal) -> OpenMemoryConfig:
    """Show the custom instructions of the language model. Needs the scope `admin`."""
    return (await services.configuration.read(principal)).openmemory or OpenMemoryConfig()


@router.put("/openmemory", responses=documented(403))
async def put_openmemory_config(
    services: TheServices,
    principal: ThePrincipal,
    config: Annotated[OpenMemoryConfig, Body(openapi_examples={"instructions": {"value": _INSTRUCTIONS}})],
) -> OpenMemoryConfig:
    """Save what the language model is told besides when it extracts facts. Needs the scope `admin`."""
    return await services.configuration.save_instructions(principal, config)


async def _note(services: Services, response: Response) -> None:
    """Sets the note header if the saved embedder does not answer. It was saved anyway, which does no harm."""
    if (wrong := await services.embedders.trial()) is not None:
        text = f"saved, but it cannot be used now: {wrong}; searches go on with {services.embedder.model}"
        response.headers[NOTE] = text.encode("ascii", "replace").decode().replace("\n", " ").replace("\r", " ")


def _mem0(config: ConfigSchema) -> Mem0Config:
    assert config.mem0 is not None  # the configuration that the service returns is complete
    return config.mem0


def _of(section: T | None) -> T:
    assert section is not None
    return section
