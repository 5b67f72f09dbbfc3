"""Turns the projects of an archive, and the commits that they know, into rows. Texts are validated as if new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openmemory.backup.fields import Fields
from openmemory.backup.format import ANCHORS, PROJECTS
from openmemory.backup.recent import RecentRecords
from openmemory.backup.report import Row, SkippedItems
from openmemory.config.settings import LimitSettings
from openmemory.errors import Invalid
from openmemory.memories import validation
from openmemory.memories.intake import Intake
from openmemory.projects import anchors


@dataclass(frozen=True, slots=True)
class ProjectRecords:
    """Turns projects and anchors into rows. Those that may not be stored are left out."""

    intake: Intake
    limits: LimitSettings
    now: str
    recent: RecentRecords
    left_out: SkippedItems

    def project(self, place: str, _: int, value: Any) -> list[Row]:
        """A registered project.

        Raises:
            BadArchive: a field has the wrong type, or the registration of an app is repeated.
        """
        fields = Fields(place, value)
        namespace, app, metadata = fields.text("namespace"), fields.optional_id("app_id"), fields.mapping("metadata")
        texts = {name: fields.optional_text(name) for name in ("name", "root", "repo", "head", "branch")}
        created = fields.moment("created_at", self.now)
        updated = fields.moment("updated_at", created)
        self.recent.once(PROJECTS, (namespace, app), place, "namespace")
        try:
            checked = validation.name(namespace, "namespace", self.limits)
            for name, said in texts.items():
                if said is not None:
                    texts[name] = self.intake.spoken(validation.text(said, name, self.limits.query, "limits.query"))
            validation.metadata(metadata, self.limits)
        except Invalid as error:
            self.left_out.add("project", namespace, error.message)
            return []
        name = texts.pop("name") or checked
        return [("incoming_projects", (checked, name, *texts.values(), metadata, app, created, updated))]

    def anchor(self, place: str, _: int, value: Any) -> list[Row]:
        """A commit that was compared with a checkout.

        Raises:
            BadArchive: a field has the wrong type, or the anchor is repeated.
        """
        fields = Fields(place, value)
        namespace, head, commit = fields.text("namespace"), fields.text("head"), fields.text("commit")
        reachable, at = fields.flag("reachable", default=True), fields.moment("checked_at", self.now)
        self.recent.once(ANCHORS, (namespace, head, commit), place, "anchor")
        try:
            checked = validation.name(namespace, "namespace", self.limits)
            commits = anchors.commit(head, "head"), anchors.commit(commit, "commit")
        except Invalid as error:
            self.left_out.add("anchor", commit, error.message)
            return []
        return [("incoming_anchors", (checked, *commits, reachable, at))]
