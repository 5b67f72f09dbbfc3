"""The use cases of the configuration: reading it, changing it, and the language model that it selects.

The configuration belongs to the service, not to a user: reading and changing it requires the scope `admin`. Every
change is one transaction under a row lock, with an audit log event that names the fields and never a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from openmemory.access.authentication import credentials_required
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.addresses import web_url
from openmemory.config.settings import Settings
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.egress.clients import Egress
from openmemory.egress.policy import EgressRefused
from openmemory.errors import Invalid
from openmemory.identity.principal import Principal
from openmemory.llm.port import LanguageModel
from openmemory.saved_settings import document, row
from openmemory.saved_settings.document import Baseline, Part
from openmemory.saved_settings.providers import address_field, canonical, expanded
from openmemory.saved_settings.saved import SavedDocument, Section
from openmemory.saved_settings.schemas import (
    ConfigPatch,
    ConfigSchema,
    EmbedderProvider,
    LLMProvider,
    Mem0Config,
    Mem0Patch,
    OpenMemoryConfig,
    VectorStoreProvider,
)

_PARTS: tuple[Part, ...] = ("llm", "embedder")

_Change = Callable[[SavedDocument], SavedDocument]


@dataclass(frozen=True, slots=True)
class Effective:
    """The configuration for fact extraction. With `llm=None` no model was chosen, and nothing may be sent to one."""

    llm: LanguageModel | None
    custom_instructions: str | None


class Overview(NamedTuple):
    """The configuration as it is shown. `saved`: the parts that do not follow the settings; `llm_in_use`: the language
    model was chosen, and is not only a proposal."""

    config: ConfigSchema
    saved: frozenset[Part]
    llm_in_use: bool


NO_LLM = (
    "No language model is in use: the one shown is a proposal. Change it, or choose it as it is with"
    " PUT /api/v1/config/mem0/llm."
)


class Configuration:
    """Reads, changes and resets the settings that can be configured over the API."""

    def __init__(self, database: Database, settings: Settings, egress: Egress, environ: Mapping[str, str]) -> None:
        self._database = database
        self._settings = settings
        self._egress = egress
        self._environ = environ
        self.baseline = Baseline.of(settings, here=not credentials_required(settings))

    async def read(self, principal: Principal) -> ConfigSchema:
        """The effective configuration, with masked keys. Reading stores nothing: unsaved parts follow the settings.

        Raises:
            Forbidden: the principal is not an administrator.
        """
        return (await self.overview(principal)).config

    async def overview(self, principal: Principal) -> Overview:
        """The effective configuration, with masked keys, and which of its parts were saved.

        Raises:
            Forbidden: the principal is not an administrator.
        """
        principal.must_administer()
        async with self._database.transaction() as tx:
            stored_settings = await row.read_settings(tx)
            await audit_log.record(tx, principal, AuditAction.CONFIG_READ)
        saved = frozenset(part for part in _PARTS if getattr(stored_settings, part) is not None)
        return Overview(self._view(stored_settings), saved, self.is_llm_chosen(stored_settings))

    async def replace(self, principal: Principal, config: ConfigSchema) -> ConfigSchema:
        """Save a whole configuration: `openmemory` is merged, `mem0` is replaced. Either may be omitted.

        An omitted section of `mem0` follows the settings again. A section that is sent back unchanged changes nothing.

        Raises:
            Forbidden: the principal is not an administrator.
            Invalid: a field is invalid.
        """
        principal.must_administer()
        mem0: Mapping[Part, Any] = {}
        if config.mem0 is not None:
            self._check_vector_store(config.mem0.vector_store)
            mem0 = {part: config.mem0.model_dump()[part] for part in _PARTS}
        change = await self._section_change(mem0, config.openmemory)
        return self._view_after_save(await self._save(principal, AuditAction.CONFIG_CHANGE, change), config.mem0)

    async def merge(self, principal: Principal, patch: ConfigPatch) -> ConfigSchema:
        """Save the fields of a patch and keep the others. A section that is null follows the settings again.

        Raises:
            Forbidden: the principal is not an administrator.
            Invalid: a field is invalid.
        """
        principal.must_administer()
        change = await self._patch_change(patch)
        return self._view_after_save(await self._save(principal, AuditAction.CONFIG_CHANGE, change), patch.mem0)

    async def reset(self, principal: Principal) -> ConfigSchema:
        """Delete everything that was saved, so that the settings of this service are in force again.

        OpenMemory saved its defaults instead, which include an OpenAI model. Here the defaults are the settings: a
        reset restores the service's own behaviour, which may be a model that runs on this machine only.

        Raises:
            Forbidden: the principal is not an administrator.
        """
        principal.must_administer()
        return self._view(
            await self._save(
                principal, AuditAction.CONFIG_RESET, lambda before: SavedDocument(former_keys=before.former_keys)
            )
        )

    async def save_section(self, principal: Principal, part: Part, provider: LLMProvider | EmbedderProvider) -> Section:
        """Save one model. A language model counts as chosen even if it equals the one that is shown.

        Raises:
            Forbidden: the principal is not an administrator.
            Invalid: a field is invalid.
        """
        principal.must_administer()
        change = await self._section_change({part: provider.model_dump()}, None, force=part == "llm")
        stored_settings = await self._save(principal, AuditAction.CONFIG_CHANGE, change)
        return document.masked_section(part, stored_settings, self.baseline)

    async def save_instructions(self, principal: Principal, config: OpenMemoryConfig) -> OpenMemoryConfig:
        """Save the custom instructions for the language model.

        Raises:
            Forbidden: the principal is not an administrator.
        """
        principal.must_administer()
        stored_settings = await self._save(principal, AuditAction.CONFIG_CHANGE, await self._section_change({}, config))
        return OpenMemoryConfig(custom_instructions=stored_settings.instructions)

    async def keep_vector_store(self, principal: Principal, vector_store: VectorStoreProvider | None) -> None:
        """Accept the vector store in use and reject any other. Only the settings choose the vector store.

        Raises:
            Forbidden: the principal is not an administrator.
            Invalid: it is not the vector store in use.
        """
        principal.must_administer()
        self._check_vector_store(vector_store)

    async def effective(self) -> Effective:
        """The effective configuration with unmasked keys, for calls to the language model.

        Raises:
            Invalid: the variable that holds the key is not in the environment of this process.
        """
        async with self._database.statement() as tx:
            stored_settings = await row.read_settings(tx)
        return Effective(
            self.language_model(stored_settings) if self.is_llm_chosen(stored_settings) else None,
            stored_settings.instructions,
        )

    async def proposed(self, principal: Principal, patch: ConfigPatch) -> SavedDocument:
        """The configuration that saving these fields would store. It is only for a trial and is not saved.

        Raises:
            Forbidden: the principal is not an administrator.
            Invalid: a field is invalid.
        """
        principal.must_administer()
        change = await self._patch_change(patch)
        async with self._database.transaction() as tx:
            stored_settings = change(await row.read_settings(tx))
            await audit_log.record(tx, principal, AuditAction.CONFIG_TEST)
        return stored_settings

    def is_llm_chosen(self, stored_settings: SavedDocument) -> bool:
        """Returns True if a language model was chosen, so that texts may be sent to it."""
        return stored_settings.llm is not None or self.baseline.llm_chosen

    def language_model(self, stored_settings: SavedDocument) -> LanguageModel:
        """The language model of a configuration; the proposed one if none was chosen.

        Raises:
            Invalid: the variable that holds the key is not in the environment of this process.
        """
        section, settings = document.effective_section("llm", stored_settings, self.baseline), self._settings.llm
        config, address = section["config"], document.address_of(section)
        key = document.key_of(section, self.baseline.llm)
        by_settings = stored_settings.llm is None and self.baseline.llm_chosen
        return LanguageModel(
            provider=canonical(section["provider"]),
            model=config["model"],
            temperature=config.get("temperature", settings.temperature),
            max_tokens=config.get("max_tokens", settings.max_tokens),
            api_key=SecretStr(key or "" if by_settings else expanded(key, self._environ)),
            base_url=address or settings.base_url if by_settings else address,
            trusted=by_settings or self.baseline.names(address),
            by_settings=by_settings,
            timeout=settings.timeout,
            concurrency=settings.concurrency,
        )

    @retry_on_conflict
    async def prune(self) -> None:
        """Delete the keys of embedders whose vectors no longer exist."""
        async with self._database.transaction() as tx:
            stored_settings = await row.locked(tx)
            former_keys = await row.still_needed(tx, stored_settings.former_keys)
            if former_keys != stored_settings.former_keys:
                await row.write(tx, replace(stored_settings, former_keys=former_keys))

    @retry_on_conflict
    async def _save(self, principal: Principal, event: AuditAction, change: _Change) -> SavedDocument:
        async with self._database.transaction() as tx:
            before = await row.locked(tx, make=True)
            after = replace(change(before), unreadable=())
            if after.embedder != before.embedder and before.embedder is not None:
                keys = *row.former_key(before.embedder), *before.former_keys
                after = replace(after, former_keys=await row.still_needed(tx, keys))
            if after != before:
                await row.write(tx, after)
            await audit_log.record(tx, principal, event, detail={"fields": _differences(before, after)})
        return after

    async def _patch_change(self, patch: ConfigPatch) -> _Change:
        """Returns a function that applies the fields of a patch to the stored configuration.

        Raises:
            Invalid: a field is invalid.
        """
        fields = patch.model_dump(exclude_unset=True)
        mem0 = fields.get("mem0", {})
        if patch.mem0 is not None:
            self._check_vector_store(patch.mem0.vector_store)
        sections = {part: (mem0 or {}).get(part) for part in _PARTS if mem0 is None or part in mem0}
        instructions = patch.openmemory
        if instructions is None and "openmemory" in fields:
            instructions = OpenMemoryConfig(custom_instructions=None)
        return await self._section_change(sections, instructions, is_partial=True)

    async def _section_change(
        self,
        sections: Mapping[Part, Section | None],
        instructions: OpenMemoryConfig | None,
        *,
        is_partial: bool = False,
        force: bool = False,
    ) -> _Change:
        """Returns a function that puts sections and instructions into the stored configuration. None for a section: it
        follows the settings again. `is_partial`: the sections are partial.

        Checks every new address before anything is locked.

        Raises:
            Invalid: a field is invalid.
        """

        def whole(stored_settings: SavedDocument, part: Part, section: Section) -> Section:
            return (
                document.merged(section, document.masked_section(part, stored_settings, self.baseline))
                if is_partial
                else section
            )

        async with self._database.statement() as tx:
            before = await row.read_settings(tx)
        for part, section in sections.items():
            if section is not None:
                await self._check_addresses(part, whole(before, part, section), before)

        def change(stored_settings: SavedDocument) -> SavedDocument:
            for part, section in sections.items():
                if section is not None:
                    section = document.to_store(  # noqa: PLW2901
                        part, whole(stored_settings, part, section), stored_settings, self.baseline, force=force
                    )
                stored_settings = (
                    replace(stored_settings, llm=section)
                    if part == "llm"
                    else replace(stored_settings, embedder=section)
                )
            if instructions is None or "custom_instructions" not in instructions.model_fields_set:
                return stored_settings
            return replace(stored_settings, instructions=instructions.custom_instructions)

        return change

    async def _check_addresses(self, part: Part, section: Section, stored_settings: SavedDocument) -> None:
        """Check the address of a section against the egress policy, unless it is the present one.

        Raises:
            Invalid: it is not a web address, or the policy does not allow it.
        """
        address = document.address_of(section)
        if not address or document.same_place(section, document.masked_section(part, stored_settings, self.baseline)):
            return
        field = f"mem0.{part}.config.{address_field(section['provider'])}"
        try:
            web_url(address)
            await self._egress.check(address, self.baseline.addresses)
        except ValueError as error:
            raise Invalid(field, str(error)) from None
        except EgressRefused as error:
            raise Invalid(field, str(error), code="address_not_allowed") from None

    def _check_vector_store(self, vector_store: VectorStoreProvider | None) -> None:
        """Raises `Invalid` for any vector store other than the one in use."""
        if vector_store is None:
            return
        qdrant, field = self._settings.qdrant, "mem0.vector_store"
        if canonical(vector_store.provider) != "qdrant":
            raise Invalid(
                f"{field}.provider", "must be qdrant: vectors are in Qdrant; qdrant.url in the settings says where"
            )
        address = urlsplit(qdrant.url)
        present = {
            "collection_name": qdrant.collection, "url": qdrant.url or None, "host": address.hostname,
            "port": address.port or (6333 if qdrant.url else None),
        }  # fmt: skip
        for name, value in vector_store.config.items():
            if name not in present or value != present[name]:
                setting = {"collection_name": "qdrant.collection"}.get(name, "qdrant.url")
                raise Invalid(
                    f"{field}.config.{name[:80]}",
                    f"can be set only in the settings ({setting} in openmemory.toml); leave it out, or send null",
                )

    def _view_after_save(self, stored_settings: SavedDocument, mem0: Mem0Config | Mem0Patch | None) -> ConfigSchema:
        """The view of what was just saved. A note states that no language model is in use although one was sent."""
        note = NO_LLM if mem0 is not None and mem0.llm is not None and not self.is_llm_chosen(stored_settings) else None
        return self._view(stored_settings).model_copy(update={"note": note})

    def _view(self, stored_settings: SavedDocument) -> ConfigSchema:
        return ConfigSchema.model_validate(
            {
                "openmemory": {"custom_instructions": stored_settings.instructions},
                "mem0": {part: document.masked_section(part, stored_settings, self.baseline) for part in _PARTS},
            }
        )


def _differences(before: SavedDocument, after: SavedDocument) -> list[str]:
    """The names of the fields that differ, sorted."""
    one, other = _flat(before.value()), _flat(after.value())
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _flat(value: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, inner in value.items():
        if isinstance(inner, dict):
            fields |= _flat(inner, f"{path}{name}.")
        elif name != "kept":
            fields[path + name] = inner
    return fields
