"""Turns the sources of an archive into rows: conversations, files, documents. Texts are validated as if new."""

from __future__ import annotations

from dataclasses import dataclass

from openmemory.backup.fields import Fields
from openmemory.backup.report import Row
from openmemory.config.settings import LimitSettings
from openmemory.errors import Invalid
from openmemory.memories import validation
from openmemory.memories.intake import Intake
from openmemory.sources.files import checked_path
from openmemory.sources.models import PassageKind, SourceKind
from openmemory.sources.symbols import symbols

_STATES = ("active", "deleted")
_LONGEST = 2**31 - 1
_MAX_BYTES = 2**40


@dataclass(frozen=True, slots=True)
class SourceRecords:
    """Turns sources and their passages into rows."""

    intake: Intake
    limits: LimitSettings
    now: str

    def source(self, fields: Fields, number: int, id_: str) -> Row:
        """A source, without its passages.

        Raises:
            Invalid: it may not be stored.
        """
        kind = fields.one_of("kind", tuple(SourceKind), SourceKind.CONVERSATION)
        app, namespace, locator = fields.optional_id("app_id"), fields.text("namespace"), fields.text("locator")
        title, summary = fields.optional_text("title"), fields.optional_text("summary")
        language, hash_ = fields.optional_text("language"), fields.optional_text("hash")
        media_type = fields.optional_text("media_type")
        size = fields.whole("bytes", 0, _MAX_BYTES, 0) if fields.values.get("bytes") is not None else None
        metadata, state = fields.mapping("metadata"), fields.one_of("state", _STATES, "active")
        created = fields.moment("created_at", self.now)
        updated = fields.moment("updated_at", created)
        ends = [fields.optional_moment(name) for name in ("closed_at", "deleted_at")]
        infer, captured = fields.flag("infer", default=True), fields.whole("captured", 0, _LONGEST, 0)
        namespace = validation.name(namespace, "namespace", self.limits)
        if kind in (SourceKind.FILE, SourceKind.DOCUMENT):
            locator = checked_path(locator, "locator")
        else:
            locator = validation.name(locator, "locator", self.limits)
        for name, value in (("language", language), ("media_type", media_type), ("hash", hash_)):
            if value is not None:
                validation.name(value, name, self.limits)
        title, summary = self._said(title, "title"), self._said(summary, "summary")
        validation.metadata(metadata, self.limits)
        return "incoming_sources", (
            number, id_, app, kind, namespace, locator, language, media_type, hash_, size, title, summary, metadata,
            state, created, updated, *ends, infer, captured,
        )  # fmt: skip

    def passage(self, fields: Fields, number: int, id_: str) -> Row:
        """A passage.

        Raises:
            Invalid: it may not be stored.
        """
        source, place = fields.id("source_id"), fields.whole("position", 1, _LONGEST)
        kind = fields.one_of("kind", tuple(PassageKind), PassageKind.TURN)
        own, speaker, content = (
            fields.optional_text("external_id"),
            fields.optional_text("role"),
            fields.text("content"),
        )
        heading = fields.optional_text("heading")
        lines = [
            None if fields.values.get(name) is None else fields.whole(name, 1, _LONGEST)
            for name in ("first_line", "last_line")
        ]
        metadata, state = fields.mapping("metadata"), fields.one_of("state", _STATES, "active")
        created, expires = fields.moment("created_at", self.now), fields.optional_moment("expires_at")
        if own is not None:
            own = validation.name(own, "external_id", self.limits)
        if kind == PassageKind.TURN:
            speaker = validation.name(speaker or "user", "role", self.limits)
        elif speaker is not None:
            raise Invalid("role", "must be left out of a passage of a file")
        validation.metadata(metadata, self.limits)
        said = self.intake.spoken(validation.text(content, "content", self.limits.text, "limits.text"))
        labels = list(self.intake.labels(said, {}))
        return "incoming_passages", (
            number, id_, source, kind, place, own, speaker, self._said(heading, "heading"), *lines, said, metadata,
            state, created, expires, labels, symbols(said, heading) if kind == PassageKind.CODE else [],
        )  # fmt: skip

    def _said(self, text: str | None, field: str) -> str | None:
        if text is None:
            return None
        return self.intake.spoken(validation.text(text, field, self.limits.text, "limits.text"))
