"""The shape of a context pack."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import Field

from openmemory.search.schemas import Arm, Method, PassageResult, SearchResult
from openmemory.serialization.omission import is_none


class PackedKind(StrEnum):
    """The kinds of items that a pack contains."""

    STATE = "state"
    MEMORY = "memory"
    LINK = "link"
    PASSAGE = "passage"


@dataclass(slots=True)
class PackedMemory:
    """A memory in a pack. It stands for others that say the same."""

    id: UUID
    text: Annotated[str, Field(description="Its first line, and the rest on a second line.")]
    score: Annotated[
        float | None, Field(description="That of the search. Null: an overview, a link or a rule brings it.")
    ]
    app_name: str
    namespace: str
    thread_id: str | None
    kind: str
    created_at: datetime
    valid_until: Annotated[datetime | None, Field(exclude_if=is_none)]
    cluster_ids: Annotated[list[UUID], Field(description="Memories that say the same, which were left out.")]
    overruled: Annotated[bool, Field(description="The state gives one of its keys another value.")]
    truncated: bool
    tags: Annotated[list[str], Field(description="Its tags (`metadata.tags`).")] = field(default_factory=list)
    entities: Annotated[list[str], Field(description="Its entities (`metadata.entities`).")] = field(
        default_factory=list
    )
    around: Annotated[
        str | None, Field(exclude_if=is_none, description="What relates it to the memory that the pack is `about`.")
    ] = None
    commit: Annotated[
        str | None, Field(exclude_if=is_none, description="The commit that it belongs to (`metadata.commit`).")
    ] = None


@dataclass(slots=True)
class PackedPassage:
    """A passage in a pack, as evidence."""

    id: UUID
    locator: Annotated[str, Field(description="Where it stands: a path with lines, a document, or a conversation.")]
    text: str
    score: float
    kind: str
    app_name: str
    thread_id: Annotated[str | None, Field(exclude_if=is_none, description="The conversation that it is from.")]
    truncated: bool
    source: Annotated[str, Field(description="The file, the document or the conversation, without the place in it.")]
    created_at: datetime


@dataclass(slots=True)
class PackedLink:
    """A link between two memories of a pack."""

    from_id: UUID
    rel: str
    to_id: UUID


@dataclass(slots=True)
class ConflictSide:
    """One side of a conflict: its value, and since when."""

    memory_id: Annotated[UUID | None, Field(description="null: the state of the project.")]
    value: Annotated[str | None, Field(description="Its value; null: the texts differ by a negation.")]
    at: datetime


@dataclass(slots=True)
class PackedConflict:
    """Two sides that exclude each other: memories of the pack, or its state and a memory."""

    about: Annotated[
        str,
        Field(
            description="The key or subject that has two values; or what makes two sentences differ: `number`, "
            "`negation` or `opposite`."
        ),
    ]
    newer: ConflictSide
    older: ConflictSide


@dataclass(slots=True)
class DroppedItem:
    """An item that is not in the pack."""

    kind: PackedKind
    id: Annotated[str, Field(description="The id, or the key of the state.")]
    title: str
    tokens: int
    why: str


@dataclass(slots=True)
class ItemEvidence:
    """The evidence of the search for an item. `fusion` and `bonus` add up to the logit of the score, less `penalty`."""

    words: Annotated[Arm | None, Field(description="null: its words were not compared.")]
    meaning: Annotated[Arm | None, Field(description="null: its meaning was not compared.")]
    fusion: Annotated[float, Field(description="Words and meaning together.")]
    bonus: Annotated[float, Field(description="Added for its time, its thread and what else is known of it.")]
    penalty: float
    superseded: Annotated[bool, Field(description="Another item replaces it.")]

    @classmethod
    def of(cls, result: SearchResult | PassageResult) -> Self | None:
        """The evidence for a result; None if no search has found it."""
        parts = result.parts
        if parts is None:
            return None
        explanation = result.explanation if isinstance(result, SearchResult) else None
        words = Arm(None, parts.bm25) if explanation is None else explanation.words
        meaning = Arm(None, parts.cosine) if explanation is None else explanation.meaning
        return cls(
            words, meaning, parts.base + parts.dense + parts.lexical + parts.late,
            parts.beside + parts.text + parts.time + parts.named + parts.recency + parts.reranked, parts.penalty,
            isinstance(result, SearchResult) and result.newer is not None,
        )  # fmt: skip


@dataclass(slots=True)
class ItemDecision:
    """An item, and why it is in the pack or not. Only where it was asked for."""

    kind: PackedKind
    id: str
    title: str
    rank: Annotated[int, Field(description="Its place among the items of its kind, from 1.")]
    score: float | None
    tokens: Annotated[int, Field(description="Its size in the pack.")]
    full_tokens: Annotated[int, Field(description="Its size as a whole.")]
    included: bool
    why: str
    orphaned: Annotated[bool, Field(description="Its commit is not in the history of the checkout.")] = False
    evidence: Annotated[ItemEvidence | None, Field(description="null: it was not searched for.")] = None


@dataclass(slots=True)
class PackBudget:
    """The numbers of tokens of a pack. `used` is that of the whole `text`."""

    tokenizer: str
    target: int
    candidates: Annotated[int, Field(description="The full texts of everything that was found.")]
    used: int
    truncated: Annotated[int, Field(description="What was cut from items that are in the pack.")]
    dropped: Annotated[int, Field(description="The full texts of what is not in the pack.")]
    saved: Annotated[int, Field(description="`candidates` less `used`; 0 if that is negative.")]


@dataclass(slots=True)
class ContextPack:
    """A pack: all that an assistant should know now, within a budget."""

    namespace: str
    query: str
    text: Annotated[str, Field(description="For the assistant; empty if the budget holds nothing.")]
    state: dict[str, Any] | None
    state_revision: int | None
    memories: list[PackedMemory]
    links: list[PackedLink]
    passages: list[PackedPassage]
    threads: Annotated[list[str], Field(description="The conversations that its items come from.")]
    conflicts: Annotated[list[PackedConflict], Field(description="The newer side first.")]
    dropped: list[DroppedItem]
    rules: list[str]
    budget: PackBudget
    search_method: Method = Method.HYBRID
    note: Annotated[str | None, Field(exclude_if=is_none)] = None
    decisions: Annotated[list[ItemDecision], Field(exclude_if=lambda found: not found)] = field(default_factory=list)
