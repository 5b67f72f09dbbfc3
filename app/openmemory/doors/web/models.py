"""The language model and the embedder: trying them, choosing them, and additional instructions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from starlette.datastructures import FormData
from starlette.responses import Response

from openmemory.doors.web.page import PageRequest, TheForm, ThePage, text_of, validate
from openmemory.errors import Invalid
from openmemory.saved_settings.document import Part
from openmemory.saved_settings.providers import EMBEDDERS, LLMS, address_config, address_field, canonical
from openmemory.saved_settings.schemas import (
    MASK,
    ConfigPatch,
    EmbedderProvider,
    LLMProvider,
    OpenMemoryConfig,
)
from openmemory.saved_settings.trials import Trial, Tried

router = APIRouter(include_in_schema=False)

PARTS: dict[str, Part] = {"llm": "llm", "embedder": "embedder"}
_SECTIONS: dict[Part, type[LLMProvider | EmbedderProvider]] = {"llm": LLMProvider, "embedder": EmbedderProvider}


@router.get("/ui/settings/models")
async def show(page: ThePage) -> Response:
    """Show the models in use."""
    return await _render(page)


@router.post("/ui/settings/models/test")
async def test(page: ThePage, form: TheForm) -> Response:
    """Ask a model once, before it is saved. Nothing is stored."""
    part = _part_of(form)
    section = await _section_of(page, part, form)
    trial: Trial = await page.services.trials.run(page.principal, validate(ConfigPatch, {"mem0": {part: section}}))
    return await _render(page, part, section, getattr(trial, part))


@router.post("/ui/settings/models")
async def save(page: ThePage, form: TheForm) -> Response:
    """Save a model."""
    part = _part_of(form)
    section = validate(_SECTIONS[part], await _section_of(page, part, form))
    await page.services.configuration.save_section(page.principal, part, section)
    if part == "llm":
        return page.redirect_with_notice(
            "Saved. The next text that is added with the language model goes to it.", "settings/models"
        )
    wrong = await page.services.embedders.trial()
    message = "Saved. Its vectors are made beside the present ones, and searches change to it when they are complete."
    return page.redirect_with_notice(
        message if wrong is None else f"Saved, but it cannot be used now: {wrong}", "settings/models"
    )


@router.post("/ui/settings/models/reset")
async def reset(page: ThePage, form: TheForm) -> Response:
    """Follow the settings again."""
    patch = ConfigPatch.model_validate({"mem0": {_part_of(form): None}})
    await page.services.configuration.merge(page.principal, patch)
    return page.redirect_with_notice("The model follows the settings of the service again.", "settings/models")


@router.post("/ui/settings/models/instructions")
async def instruct(page: ThePage, form: TheForm) -> Response:
    """Save the additional instructions for the language model."""
    config = OpenMemoryConfig(custom_instructions=None)
    if text := text_of(form, "instructions").strip():
        config = validate(OpenMemoryConfig, {"custom_instructions": text})
    await page.services.configuration.save_instructions(page.principal, config)
    return page.redirect_with_notice(
        "Saved the instructions." if text else "Removed the instructions.", "settings/models"
    )


async def _render(
    page: PageRequest,
    part: Part | None = None,
    draft: Mapping[str, Any] | None = None,
    result: Tried | None = None,
) -> Response:
    """Returns the page. `draft`: the section that was tried, which its form shows again without the key."""
    if not page.administers:
        return page.render("models.html", overview=None)
    overview = await page.services.configuration.overview(page.principal)
    config = overview.config.model_dump()
    sections: dict[str, Mapping[str, Any]] = {each: config["mem0"][each] for each in PARTS}
    if part is not None and draft is not None:
        sections[part] = draft
    return page.render(
        "models.html",
        overview=overview,
        sections=sections,
        addresses={each: _address_of(section) for each, section in sections.items()},
        keys={each: _describe_key(config["mem0"][each]) for each in PARTS},
        instructions=(config["openmemory"] or {}).get("custom_instructions") or "",
        providers={"llm": sorted(LLMS), "embedder": sorted(EMBEDDERS)},
        results={part: result} if result else {},
        in_use=page.services.embedder.model,
    )


async def _section_of(page: PageRequest, part: Part, form: FormData) -> dict[str, Any]:
    """Returns the section that a form describes. An empty key stays what it is, for the same provider."""
    page.principal.must_administer()
    provider = text_of(form, "provider").strip()
    config: dict[str, Any] = {
        name: value
        for name in ("model", "api_key", "temperature", "max_tokens", "embedding_dims")
        if (value := text_of(form, name).strip())
    }
    if address := text_of(form, "address").strip():
        config |= address_config(provider, address)
    if "api_key" not in config:
        current = (await page.services.configuration.read(page.principal)).model_dump()["mem0"][part]
        if canonical(current["provider"]) == canonical(provider):
            config["api_key"] = current["config"]["api_key"]
    return {"provider": provider, "config": {name: value for name, value in config.items() if value is not None}}


def _part_of(form: FormData) -> Part:
    part = PARTS.get(text_of(form, "part"))
    if part is None:
        raise Invalid("part", f"must be one of {', '.join(PARTS)}")
    return part


def _address_of(section: Mapping[str, Any]) -> str:
    field = address_field(section["provider"])
    return (section["config"].get(field) or "") if field else ""


def _describe_key(section: Mapping[str, Any]) -> str:
    """Describes the key of a section. The key itself is never shown."""
    key = section["config"].get("api_key")
    if not key:
        return "none"
    return "unchanged" if key == MASK else str(key)
