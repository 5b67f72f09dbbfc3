"""Answers without results, which state the reason: the number of memories, the terms of the query, and what waits.

A caller must be able to distinguish an empty answer from an empty memory. Every number counts only what the caller may
read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Uuid, bindparam, func, literal_column, select

from openmemory.access.apps import paused_message
from openmemory.access.readable import is_not_paused
from openmemory.database.compiled import CompiledStatement
from openmemory.identity.caller import Caller, Default
from openmemory.index.models import ItemKind, OutboxEntry
from openmemory.memories.models import Memory
from openmemory.search.answers.explanation import SearchRound
from openmemory.search.answers.readback import log_search
from openmemory.search.answers.results import ReadRows, search_answer
from openmemory.search.candidates.ruled_rows import allowed_memories, ruled_rows, rules_revision
from openmemory.search.context import SearchContext
from openmemory.search.query.periods import Period
from openmemory.search.query.text import STOP_WORDS, bare_words
from openmemory.search.schemas import Method, SearchAnswer, SearchQuery
from openmemory.search.sql.acl import RuleSets
from openmemory.search.sql.as_of import as_of_state, findable
from openmemory.search.sql.compiled_filter import compiled_filter
from openmemory.search.sql.filter import Shape, by_shape, is_usual, predicate

MAX_WORDS, MAX_CHARACTERS = 12, 100
"""The number of words, and of characters, of the query that a note repeats."""

MAX_TIMES = 2
"""The number of times that a note repeats. "In May" means ten."""


MOST_COUNTED = 1_000
"""The number of memories up to which a note counts them. Counting 100,000 would take longer than the search."""


class Tally(NamedTuple):
    """The memories that match the filters of a query and that the caller may read: their number (one more than
    `MOST_COUNTED` stands for more), the number of those that the index does not contain yet, and when the first and the
    last of them was written, if that was requested. `paused`: the calling app is paused and reads nothing."""

    paused: bool
    total: int
    waiting: int
    first: datetime | None
    last: datetime | None


async def tally(context: SearchContext, *, with_times: bool = False) -> Tally:
    """Counts the memories that the search looked among. `with_times`: also returns the times of the
    oldest and the newest one."""
    async with context.database.statement() as tx:
        [row] = await ruled_rows(tx, context, partial(_statement, with_times=with_times), {})
    return Tally(*row)


async def empty_answer(
    context: SearchContext, method: Method, *notes: str | None, last: SearchRound | None, embedded_text: str | None
) -> SearchAnswer:
    """An answer without results, and the event of the audit log. Its note states the query terms, and the number of
    memories. `notes` come first. `last` and `embedded_text` as in `search_answer`."""
    await log_search(context, method)
    counts = await tally(context)
    if not counts.total:
        why = await _no_memory(context, counts)
    else:
        why = f"nothing was found for {query_excerpt(context.query.text)} {_among(context, counts.total)}"
        if counts.waiting:
            why += f"; {_waits(counts)}"
    return _without_results(context, method, note_of(*notes, why), last, embedded_text)


async def undated_answer(context: SearchContext) -> SearchAnswer:
    """An answer without results to a question about a time in which no memory was written, and the event of the audit
    log."""
    await log_search(context, Method.TIME)
    counts = await tally(context, with_times=True)
    why = date_note(context, counts) if counts.total else await _no_memory(context, counts)
    return _without_results(context, Method.TIME, note_of(why))


async def no_memory(context: SearchContext, method: Method, *notes: str | None) -> SearchAnswer:
    """An answer without results where no memory matches the filters, and the event of the audit log."""
    await log_search(context, method)
    return _without_results(context, method, note_of(*notes, await _no_memory(context, await tally(context))))


def _without_results(
    context: SearchContext,
    method: Method,
    note: str | None,
    last: SearchRound | None = None,
    embedded_text: str | None = None,
) -> SearchAnswer:
    answer = search_answer(context, ReadRows(0), method, [], last=last, embedded_text=embedded_text)
    answer.note = note
    return answer


async def _no_memory(context: SearchContext, counts: Tally) -> str:
    """The reason why no memory matches the filters: the app is paused, there is none at all, or there are only
    others."""
    if not counts.paused and context.filter.shape != _unfiltered(context).filter.shape:
        counts = await tally(_unfiltered(context))
    if counts.paused:
        return paused_message(context.caller.app, "read memories")
    if counts.total:
        return f"no memory matches the filters of the query; without them, there {_at_least(counts.total)}"
    return "there is no memory that you may read"


def _unfiltered(context: SearchContext) -> SearchContext:
    everything = SearchQuery(context.query.text)
    return replace(context, query=everything, filter=compiled_filter(context.caller, everything))


def date_note(context: SearchContext, counts: Tally) -> str:
    """The note that no memory was written at the times that the query names, with the first and the last day of the
    counted memories. Days are those of the caller's time zone."""
    zone = context.caller.timezone
    note = f"nothing is dated {times_text(context.times, zone)}"
    if counts.first is None or counts.last is None:
        return note
    first, last = (moment.astimezone(zone) for moment in (counts.first, counts.last))
    return f"{note}; the memories that you may read go from {first:%Y-%m-%d} to {last:%Y-%m-%d}"


def times_text(times: Sequence[Period], zone: tzinfo) -> str:
    """The times as a note names them, such as "2026-11-16 to 2026-11-22"."""
    different = list(dict.fromkeys(times))
    some = [_period(time, zone) for time in different[:MAX_TIMES]]
    more = len(different) - len(some)
    return " or ".join(some) + (f" or at {more} other times that the query means" if more else "")


def _period(time: Period, zone: tzinfo) -> str:
    first = time.start and time.start.astimezone(zone)
    last = time.end and (time.end - timedelta(microseconds=1)).astimezone(zone)
    if first is None:
        return "at any time" if last is None else f"until {last:%Y-%m-%d}"
    if last is None:
        return f"since {first:%Y-%m-%d}"
    return f"{first:%Y-%m-%d}" + ("" if last.date() == first.date() else f" to {last:%Y-%m-%d}")


def query_excerpt(query: str) -> str:
    """The query as a note repeats it: the words of the query without stop words, or the query itself if it
    has none."""
    every = bare_words(query)
    terms = [word for word in every if word.lower() not in STOP_WORDS] or every
    excerpt = " ".join(terms[:MAX_WORDS])
    is_cut = len(terms) > MAX_WORDS or len(excerpt) > MAX_CHARACTERS
    return f"“{excerpt[:MAX_CHARACTERS].rstrip()}{' …' if is_cut else ''}”"


def note_of(*parts: str | None) -> str | None:
    """The parts of a note as one, which begins with a capital letter; None if there are none."""
    note = join_notes(parts) or ""
    return note[:1].upper() + note[1:] or None


def are(count: int) -> str:
    """The number of memories after "there"."""
    return "is 1 memory" if count == 1 else f"are {count:,} memories"


def _at_least(count: int) -> str:
    return are(count) if count <= MOST_COUNTED else f"are more than {MOST_COUNTED:,} memories"


def _among(context: SearchContext, total: int) -> str:
    filtered = context.filter.shape != _unfiltered(context).filter.shape
    which = "that match the filters and that you may read" if filtered else "that you may read"
    if total > MOST_COUNTED:
        return f"in more than {MOST_COUNTED:,} memories {which}"
    return f"in the only memory {which}" if total == 1 else f"in the {total:,} memories {which}"


def _waits(counts: Tally) -> str:
    if counts.waiting > 1:
        return f"{counts.waiting:,} of them wait for the vector index, and can be found by their words only until then"
    which = "it" if counts.total == 1 else "1 of them"
    return f"{which} waits for the vector index, and can be found by its words only until then"


@by_shape
def _statement(
    owner: bool, default: Default, as_then: bool, sets: RuleSets, shape: Shape, *, with_times: bool
) -> CompiledStatement:
    """One row: the revision of the rules, and a `Tally`."""
    caller = Caller.anyone(owner=owner, default=default)
    source, may_find = findable(caller, as_of_state(caller) if as_then else None, allowed_memories(sets))
    mine = Memory.user_id == bindparam("caller_user_id", type_=Uuid()), may_find, predicate(shape)
    count: Any = literal_column("count(*)")
    which = select(Memory.created_at).select_from(source).where(*mine)
    some = (which if with_times else which.limit(literal_column(f"{MOST_COUNTED + 1}"))).subquery("some")
    times = func.min(some.c.created_at).label("first"), func.max(some.c.created_at).label("last")
    total = select(func.least(count, literal_column(f"{MOST_COUNTED + 1}")).label("total"), *times).subquery("counted")
    kind: Any = literal_column(f"'{ItemKind.MEMORY.value}'")
    entry = OutboxEntry.__table__
    waits = (entry.c.user_id == bindparam("caller_user_id", type_=Uuid()), entry.c.kind == kind)
    waiting = (
        select(count.label("waiting"))
        .select_from(source.join(entry, entry.c.id == Memory.id))
        .where(*waits, *mine)
        .subquery("undelivered")
    )
    paused: Any = literal_column("false") if owner else ~is_not_paused()
    row = paused.label("paused"), total.c.total, waiting.c.waiting, total.c.first, total.c.last
    both = total.join(waiting, literal_column("true"))
    statement = select(rules_revision(owner), *row).select_from(both)
    return CompiledStatement(statement, plain=True, prepare=is_usual(shape))


def join_notes(notes: Iterable[str | None]) -> str | None:
    """The notes of an answer as one; None if there are none."""
    return "; ".join(note for note in notes if note) or None
