"""Tools that pack what an assistant should know, and save the state of a project. Offered by the toolset `context`.

Their names, arguments and JSON answers are those of Mempack. A repository is a namespace.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from mcp_types import ToolAnnotations
from pydantic import Field

from openmemory.doors.mcp.compact import inline
from openmemory.doors.mcp.identity import Offer
from openmemory.doors.mcp.tool import Answer, Arguments, JsonObject, Tool, ToolCall
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.errors import Invalid
from openmemory.projects.context import BUDGET, ContextQuery
from openmemory.projects.pack_schemas import ConflictSide, ContextPack, ItemEvidence, PackedPassage
from openmemory.projects.schemas import NewCheckpoint, TokensGiven
from openmemory.projects.states import summary
from openmemory.projects.usage import MAX_DAYS
from openmemory.search.brief import BriefQuery
from openmemory.search.schemas import Method
from openmemory.services import Services

_THREADS = 5

THREAD = "T-SESSION"
"""The thread that Mempack gives to a memory without one. Answers show it. It is not stored, because a search would take
all such memories for one conversation."""


def stored_thread(thread: str | None) -> str | None:
    """Returns the thread of a call as it is stored: none if it is the default one."""
    return None if thread == THREAD else thread


class ProjectArguments(Arguments):
    repo: str | None = Field(None, description="The project, if not this one: a namespace.")
    workspace: str | None = None

    def namespace(self, offer: Offer) -> str:
        """The namespace that is meant: without a name, the project of the client. A workspace other than the default
        one is a part of its repository."""
        names = [self.repo or offer.project.name, self.workspace if self.workspace != "default" else None]
        return "/".join(name for name in names if name) or "default"

    def head(self, offer: Offer) -> str | None:
        """The commit that is checked out, if the project of the client is meant."""
        return offer.head if self.repo in (None, offer.project.name) else None


class QueryArguments(ProjectArguments):
    query: str = Field(description="The task or question.")
    budget: int = Field(BUDGET, description="Tokens.")

    def question(self) -> str:
        """Returns the query.

        Raises:
            Invalid: it is blank.
        """
        if not self.query.strip():
            raise Invalid("query", "must not be empty or blank")
        return self.query


class InitialArguments(ProjectArguments):
    pass


class ContextArguments(QueryArguments):
    cluster: bool = Field(True, description="Show memories that say the same once.")
    detail: Literal["full", "index"] = Field("full", description="index: a line of each item.")
    include_orphans: bool = Field(False, description="Memories of dropped commits too.")


class ExplainArguments(QueryArguments):
    pass


class UsageArguments(ProjectArguments):
    me: bool = Field(False, description="All projects.")


class CheckpointArguments(ProjectArguments):
    zeros = frozenset({"expected_revision"})  # there must be no state yet

    reason: str = Field(description="Why, in a sentence.")
    state_json: JsonObject = Field(description="The whole state, an object.")
    thread: str | None = None
    expected_revision: int | None = Field(None, description="Fail unless the state has this revision.")


async def _initial(services: Services, call: ToolCall[InitialArguments]) -> Answer:
    namespace = call.arguments.namespace(call.offer)
    state = await services.states.find(call.caller, namespace)
    lead = await summary(state)
    orphans = await services.anchors.orphans(call.caller, namespace, call.arguments.head(call.offer))
    brief = await services.briefs.brief(call.caller, BriefQuery(namespace, lead=lead, without=orphans))
    threads = await services.conversations.threads(call.caller, namespaces=(namespace,), size=_THREADS)
    passages = await services.sources.passages(call.caller, namespace)
    untrusted = Untrusted(services.settings.capture.injection)
    recent = {untrusted.name(one.thread_id): untrusted.name(one.title or "") for one in threads.items}
    suggestion = "Call mem_get_context with your task." if brief.total or state else "Nothing is remembered here yet."
    lines = [brief.text] if brief.text else []
    lines += [f"Thread {inline(thread)}: {inline(title)}".rstrip(": ") for thread, title in recent.items()]
    data = {
        "repo_id": namespace, "workspace": call.arguments.workspace or "default", "has_state": state is not None,
        "state_summary": lead, "recent_threads": list(recent), "memory_count": brief.total,
        "chunk_count": passages, "suggestion": suggestion,
    }  # fmt: skip
    lines.append(suggestion)
    return Answer(lines, data, untrusted.note(), "\n".join(lines))


async def _context(services: Services, call: ToolCall[ContextArguments]) -> Answer:
    arguments = call.arguments
    namespace = arguments.namespace(call.offer)
    query = ContextQuery(
        arguments.question(), namespace, arguments.budget, None, arguments.detail, arguments.cluster,
        head=arguments.head(call.offer), orphans=arguments.include_orphans,
    )  # fmt: skip
    pack = await services.context.pack(call.caller, query)
    lines = [pack.text] if pack.text else ["Nothing that you may read fits."]
    return Answer(lines, _to_mempack(pack, arguments, call.offer), pack.note)


def _to_mempack(pack: ContextPack, arguments: ProjectArguments, offer: Offer) -> dict[str, Any]:
    """A pack in the fields of Mempack. A field is empty if our search has no such value, for example `intent`."""
    here = offer.project.name is not None and arguments.repo in (None, offer.project.name)
    mode = "bm25" if pack.search_method is Method.LEXICAL else "hybrid"
    links = [{"from": str(link.from_id), "rel": link.rel, "to": str(link.to_id)} for link in pack.links]
    return {
        "version": "1.0",
        "tool": "mem_get_context",
        "repo": {
            "repo_id": pack.namespace, "git_root": (here and offer.project.folder) or "",
            "head": arguments.head(offer) or "", "branch": (here and offer.branch) or "",
        },
        "workspace": arguments.workspace or "default",
        "search_meta": {
            "query": pack.query, "sanitized_query": pack.query, "mode": mode, "mode_used": mode,
            "vector_used": mode == "hybrid", "fallback_reason": pack.note or "",
            "rewritten_query": "", "rewrites_applied": [], "warnings": [], "intent": "", "entities_found": [],
            "time_hint": "", "recency_boost": 1.0,
            "clusters_formed": sum(bool(one.cluster_ids) for one in pack.memories),
        },
        "state": pack.state or {},
        "state_source": "none" if pack.state is None else "state_current",
        "matched_threads": [{"thread_id": thread, "why": "its items are in the pack"} for thread in pack.threads],
        "top_memories": [
            {
                "id": str(one.id), "thread_id": one.thread_id or THREAD, "title": one.text.partition("\n")[0],
                "summary": one.text.partition("\n")[2], "app_name": one.app_name,
                "anchor_commit": one.commit or "", "created_at": one.created_at.isoformat(),
                "is_cluster": bool(one.cluster_ids),
                "cluster_size": 1 + len(one.cluster_ids), "cluster_ids": [str(id_) for id_ in one.cluster_ids],
                "overruled": one.overruled, "tags": one.tags, "entities": one.entities, "around": one.around or "",
                "links": [link for link in links if str(one.id) in (link["from"], link["to"])],
            }
            for one in pack.memories
        ],
        "top_chunks": [_chunk(one) for one in pack.passages],
        "link_trail": links,
        "conflicts": [
            {"about": one.about, "newer": _side(one.newer), "older": _side(one.older)} for one in pack.conflicts
        ],
        "dropped": [
            {"kind": one.kind.value, "id": one.id, "title": one.title, "tokens": one.tokens, "why": one.why}
            for one in pack.dropped
        ],
        "rules": pack.rules,
        "budget": {
            "tokenizer": pack.budget.tokenizer, "target_total": pack.budget.target,
            "candidate_total": pack.budget.candidates, "used_total": pack.budget.used,
            "pre_budget_total": pack.budget.candidates - pack.budget.truncated,
            "truncated_total": pack.budget.truncated, "dropped_total": pack.budget.dropped,
            "saved_total": pack.budget.saved,
        },
    }  # fmt: skip


def _chunk(passage: PackedPassage) -> dict[str, Any]:
    """A passage in the fields of Mempack. Passages are never merged, so each is its only source."""
    place = {
        "chunk_id": str(passage.id), "artifact_id": passage.source, "thread_id": passage.thread_id or "",
        "locator": passage.locator,
    }  # fmt: skip
    return {**place, "text": passage.text, "sources": [{**place, "created_at": passage.created_at.isoformat()}]}


def _side(side: ConflictSide) -> dict[str, Any]:
    return {"memory_id": str(side.memory_id or ""), "value": side.value or "", "at": side.at.isoformat()}


async def _explain(services: Services, call: ToolCall[ExplainArguments]) -> Answer:
    arguments = call.arguments
    query = ContextQuery(
        arguments.question(),
        arguments.namespace(call.offer),
        arguments.budget,
        explain=True,
        head=arguments.head(call.offer),
    )
    pack = await services.context.pack(call.caller, query)
    untrusted = Untrusted(services.settings.capture.injection)
    rows: list[dict[str, Any]] = [
        {
            "kind": one.kind.value, "id": one.id, "title": untrusted.name(one.title), "rank": one.rank,
            "score": one.score, "tokens": one.tokens, "full_tokens": one.full_tokens, "included": one.included,
            "why": one.why, "orphaned": one.orphaned, "final": one.score, **_evidence(one.evidence),
        }
        for one in pack.decisions
    ]  # fmt: skip
    lines = [
        f"{'in' if row['included'] else 'out'} {row['kind']} {row['id'][:8]}"
        f" {row['tokens']} of {row['full_tokens']} tokens, {row['why']}: {inline(row['title'])}"
        for row in rows
    ]
    return Answer(lines or ["Nothing that you may read fits."], {"items": rows}, untrusted.note(pack.note))


_EVIDENCE = ("bm25", "fts_rank", "vector_score", "vector_rank", "fusion", "bonus", "penalty")


def _evidence(evidence: ItemEvidence | None) -> dict[str, Any]:
    """The evidence for an item, in the fields of Mempack."""
    if evidence is None:
        return dict.fromkeys(_EVIDENCE) | {"superseded": False}
    words, meaning = evidence.words, evidence.meaning
    return {
        "bm25": words and words.score, "fts_rank": words and words.rank,
        "vector_score": meaning and meaning.score, "vector_rank": meaning and meaning.rank,
        "fusion": evidence.fusion, "bonus": evidence.bonus, "penalty": evidence.penalty,
        "superseded": evidence.superseded,
    }  # fmt: skip


async def _usage(services: Services, call: ToolCall[UsageArguments]) -> Answer:
    arguments = call.arguments
    if arguments.me and arguments.repo:
        raise Invalid("me", "must be left out where repo is given")
    namespace = None if arguments.me else arguments.namespace(call.offer)
    report = partial(services.reads.report, call.caller, days=MAX_DAYS)
    overall = _totals((await report()).total)
    if namespace is None:
        data, sums = {"scope": "profile", "overall": overall}, overall
    else:
        sums = _totals((await report(namespace=namespace)).total)
        data = {"scope": "repo", "repo_id": namespace, "repo": sums, "overall": overall}
    lines = [
        f"{sums['request_count']} packs in a year: {sums['used_total']:,} tokens given, {sums['saved_total']:,}"
        f" saved against the full texts, {sums['dropped_total']:,} left out."
    ]
    return Answer(lines, data)


def _totals(tokens: TokensGiven) -> dict[str, int]:
    return {
        "request_count": tokens.calls, "candidate_total": tokens.candidates, "used_total": tokens.used,
        "saved_total": tokens.saved, "truncated_total": tokens.truncated, "dropped_total": tokens.dropped,
    }  # fmt: skip


async def _checkpoint(services: Services, call: ToolCall[CheckpointArguments]) -> Answer:
    arguments = call.arguments
    namespace = arguments.namespace(call.offer)
    thread = stored_thread(arguments.thread)
    new = NewCheckpoint(
        arguments.state_json,
        arguments.reason,
        namespace,
        thread,
        arguments.expected_revision,
        arguments.head(call.offer),
    )
    state = await services.states.checkpoint(call.caller, new)
    data = {
        "state_id": str(state.id), "workspace": arguments.workspace or "default", "reason": arguments.reason,
        "memory_id": str(state.memory_id), "thread_used": thread or THREAD,
        "thread_defaulted": arguments.thread is None, "revision": state.revision,
    }  # fmt: skip
    return Answer([f"State saved: revision {state.revision}, {state.size:,} of {state.limit:,} characters."], data)


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "mem_get_initial_context", "Begin a session",
        "What is known of a project when a session begins: its state in short, memories and recent conversations.",
        InitialArguments, ToolAnnotations(read_only_hint=True),
        _initial, "Error getting context", toolset="context",
    ),
    Tool(
        "mem_get_context", "Get context",
        "Pack the project's state, and memories, links and passages that fit a task, within a budget of tokens.",
        ContextArguments, ToolAnnotations(read_only_hint=True),
        _context, "Error getting context", toolset="context",
    ),
    Tool(
        "mem_explain", "Explain a pack", "Say of each item why mem_get_context shows it or not.",
        ExplainArguments, ToolAnnotations(read_only_hint=True),
        _explain, "Error explaining context", toolset="context",
    ),
    Tool(
        "mem_usage", "Count tokens", "How many tokens mem_get_context gave and saved.",
        UsageArguments, ToolAnnotations(read_only_hint=True),
        _usage, "Error counting tokens", toolset="context",
    ),
    Tool(
        "mem_checkpoint", "Save the state",
        "Save the project's state, which replaces the one before, and remember the reason.",
        CheckpointArguments, ToolAnnotations(read_only_hint=False, destructive_hint=True),
        _checkpoint, "Error saving the state", toolset="context",
    ),
)  # fmt: skip
"""The tools for context packs."""
