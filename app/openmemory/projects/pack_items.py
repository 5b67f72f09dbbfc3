"""The items that may be in a context pack, each with its lines. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from openmemory.content_policy.injection import LABEL, instructs
from openmemory.memories.intake import KEYED
from openmemory.projects import tokens
from openmemory.projects.contradictions import said_at
from openmemory.projects.pack_schemas import DroppedItem, PackedKind, PackedMemory, PackedPassage
from openmemory.projects.schemas import ProjectState
from openmemory.search.schemas import Method, PassageResult, SearchResult
from openmemory.serialization.zones import UTC_ZONE, day_shown

MEMORY_MOST, PASSAGE_MOST = 80, 320
"""The number of tokens that one item may have."""

INDEX_MOST = 25
"""The number of tokens of a memory in an index."""

NAMES, NAMES_MOST = 4, 16
"""The most tags and entities that are shown with a memory, and the most tokens of all of them."""

REPEATED = "says the same as another"


@dataclass(frozen=True, slots=True)
class Material:
    """The input of a pack. `clusters` maps a memory to the other memories that say the same. `orphans`: the items that
    stay out because their commit is not in the history of the checkout. `commits`: those of memories.

    `links` has all links between the memories. `about`: the memory that comes first. `around` says what relates a
    memory to it. `standing`: the memories that are candidates whatever the question is. `timezone`: that of
    the dates in the text.
    """

    namespace: str
    query: str
    state: ProjectState | None = None
    memories: Sequence[SearchResult] = ()
    passages: Sequence[PassageResult] = ()
    clusters: Mapping[UUID, Sequence[UUID]] = field(default_factory=dict)
    links: Sequence[tuple[UUID, str, UUID]] = ()
    orphans: Sequence[SearchResult | PassageResult] = ()
    commits: Mapping[UUID, str] = field(default_factory=dict)
    search_method: Method = Method.HYBRID
    note: str | None = None
    about: UUID | None = None
    around: Mapping[UUID, str] = field(default_factory=dict)
    standing: Set[UUID] = frozenset()
    timezone: ZoneInfo = UTC_ZONE


@dataclass(slots=True)
class Item:
    """A candidate: its lines in the pack, and its size as a whole."""

    kind: PackedKind
    id: str
    title: str
    text: str
    full: int
    rank: int
    score: float | None = None
    value: Any = None
    truncated: bool = False
    size: int = 0


def memory_items(
    material: Material, overruled: Collection[UUID], dropped: list[DroppedItem], *, index: bool
) -> list[Item]:
    """The memories that may be in the pack, in their order. `overruled`: those that the state contradicts."""
    alike = {other for others in material.clusters.values() for other in others}
    items, only = list[Item](), only_app(material)
    for rank, one in enumerate(material.memories, 1):
        full, title = tokens.count(one.memory), titled(one.memory)
        if LABEL in one.labels:
            dropped.append(DroppedItem(PackedKind.MEMORY, str(one.id), "(withheld)", full, "reads like instructions"))
        elif one.id in alike:
            dropped.append(DroppedItem(PackedKind.MEMORY, str(one.id), title, full, REPEATED))
        else:
            app = "" if only else f" {name_of(one.app_name)}"
            items.append(_memory(material, one, rank, full, app, overruled=one.id in overruled, index=index))
    for orphan in material.orphans:
        kind = PackedKind.MEMORY if isinstance(orphan, SearchResult) else PackedKind.PASSAGE
        text = text_of(orphan)
        title = "(withheld)" if LABEL in orphan.labels else titled(text)
        why = "its commit is not in the history"
        dropped.append(DroppedItem(kind, str(orphan.id), title, tokens.count(text), why))
    return items


def only_app(material: Material) -> str | None:
    """The app that all memories come from, which is then named once. None: there are several."""
    apps = {one.app_name for one in material.memories}
    return next(iter(apps)) if len(apps) == 1 else None


def _memory(
    material: Material, one: SearchResult, rank: int, full: int, app: str, *, overruled: bool, index: bool
) -> Item:
    cluster = list(material.clusters.get(one.id, ()))
    text = " ".join(one.memory.split())
    excerpt = tokens.cut(text, INDEX_MOST if index else MEMORY_MOST)
    tags, entities = (_names(one.metadata.get(name)) for name in ("tags", "entities"))
    around = material.around.get(one.id)
    marks = [around] if around else []
    marks += _extra_names(tags, entities, text)
    marks += [f"valid until {day_shown(one.valid_until, material.timezone)}"] if one.valid_until else []
    marks += ["overruled by the state"] if overruled else []
    marks += [f"+{len(cluster)} alike"] if cluster else []
    at = said_at(one) if one.kind == KEYED else one.created_at
    parts = [f"[{short(one.id)}] {day_shown(at, material.timezone)}{app}:", excerpt]
    parts += [f"({'; '.join(marks)})"] if marks else []
    value = PackedMemory(
        one.id, _two_lines(one.memory, excerpt), one.score, one.app_name, one.namespace, one.thread_id, one.kind,
        one.created_at, one.valid_until, cluster, overruled, excerpt != text, tags, entities, around,
        material.commits.get(one.id),
    )  # fmt: skip
    return Item(
        PackedKind.MEMORY, str(one.id), titled(one.memory), " ".join(parts), full, rank, one.score, value,
        excerpt != text, sum(map(tokens.count, parts)),  # as many as those of the line: most are counted already
    )  # fmt: skip


def _names(value: Any) -> list[str]:
    """The names that a client stored under a field of the metadata. It may hold anything."""
    return [one for one in value if isinstance(one, str) and one.strip()] if isinstance(value, list) else []


def _extra_names(tags: Sequence[str], entities: Sequence[str], content: str) -> list[str]:
    """The names that the text does not say, in a few tokens."""
    text, names = content.casefold(), list[str]()
    for name in (*(f"#{tag}" for tag in tags), *entities):
        some = [*names, name_of(name)]
        if name.removeprefix("#").casefold() not in text and tokens.count(" ".join(some)) <= NAMES_MOST:
            names = some
        if len(names) == NAMES:
            break
    return [" ".join(names)] if names else []


def passage_items(material: Material, dropped: list[DroppedItem], *, index: bool) -> list[Item]:
    """The passages that may be in the pack, in their order."""
    items = list[Item]()
    for rank, one in enumerate(material.passages, 1):
        full, locator = tokens.count(one.content), name_of(_locator(one))
        if LABEL in one.labels:
            dropped.append(DroppedItem(PackedKind.PASSAGE, str(one.id), "(withheld)", full, "reads like instructions"))
            continue
        excerpt = "" if index else tokens.cut(one.content.strip("\n"), PASSAGE_MOST)
        heading = f"[{short(one.id)}] {locator}" + (f" > {name_of(one.heading)}" if one.heading else "")
        text = heading if index else "\n".join([heading, *(f"  {line}" for line in excerpt.split("\n"))])
        truncated = not index and excerpt != one.content.strip("\n")
        value = PackedPassage(
            one.id, locator, excerpt, one.score, one.kind, one.app_name, one.thread_id, truncated,
            name_of(one.path or one.thread_id or ""), one.created_at,
        )  # fmt: skip
        items.append(
            Item(
                PackedKind.PASSAGE, str(one.id), locator, text, full, rank, one.score, value, truncated,
                tokens.count(text),
            )
        )  # fmt: skip
    return items


def _locator(one: PassageResult) -> str:
    if one.path is not None:
        return one.path if one.first_line is None else f"{one.path}:{one.first_line}-{one.last_line}"
    locator = f"{one.thread_id}#{one.position}"
    return f"{locator} {one.role}" if one.role else locator


def short(id_: UUID) -> str:
    """The first characters of an id, by which it is read."""
    return str(id_)[:8]


def text_of(one: SearchResult | PassageResult) -> str:
    """The whole text of a result."""
    return one.memory if isinstance(one, SearchResult) else one.content


def _two_lines(text: str, excerpt: str) -> str:
    """The beginning of a text, which is `excerpt` on one line, with the break after its first line."""
    first = " ".join(text.lstrip().partition("\n")[0].split())
    return f"{first}\n{excerpt[len(first) + 1 :]}" if first and excerpt.startswith(f"{first} ") else excerpt


def titled(text: str) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else line[:59].rstrip() + "…"


def name_of(name: str) -> str:
    """A name on one line. One that reads like instructions is withheld."""
    return "(withheld)" if instructs(name) else " ".join(name.split())
