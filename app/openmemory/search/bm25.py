"""The statements of lexical retrieval: BM25 over a user's memories in one, and parts of words in another.

Their texts stand in `sql/`. This module fills in the filters and one column for each lexeme.

A search takes a few milliseconds among 100,000 memories of one user, for these reasons:

1. The query's lexemes are ordered by how many memories of the searched scope contain them (`lexical_statistics`; a term
   without a row is rare). A scope is the whole memory of a user or one namespace of it.
2. Rare lexemes, up to `POOL` memories altogether, select candidates alone. Common ones do so only in pairs with a more
   common one. The others only add to scores. In a scope without statistics (a small one), every lexeme selects. Of the
   ten best, 99.9 % among 100,000 memories and 99.4 % among 10,000 were those of the exhaustive ranking.
3. The GIN index on `lexical_keys(user_id, namespace, words)` contains a hash per (scope, lexeme), so that a lookup
   reads no other user's memories.
4. If too few candidates were selected because every lexeme is common, the newest `NEWEST` memories are scanned.
5. If the search is limited to given memories, all of these that contain a lexeme are candidates instead.

Score of a memory, natural logarithm, unbounded above (Robertson and Zaragoza 2009, "The Probabilistic Relevance
Framework: BM25 and Beyond", with the non-negative idf of Lucene):

    Σ over matched lexemes of idf · tf · (K1 + 1) / (tf + K1 · (1 - B + B · length / mean length))
    idf = ln(1 + (documents - df + 0.5) / (df + 0.5))

A thread is scored like one memory that contains a lexeme as often as memories of the thread do, with B = 0.

K1 = 0.9 and B = 0.4 (Trotman, Puurula and Burgess 2014, the defaults of Anserini) beat 1.2 and 0.75 on short texts.
Length counts distinct lexemes, without those that `lexical_words` adds (see `search.lexicon`). df is the larger of the
statistics and the candidates. tf is recovered from `ts_rank`, which for one lexeme is 0.1 · Σ(j = 1 … tf) 1/j² · 6/π²,
and Σ 1/j² is π²/6 - 1/(tf + 0.5) except for a term of tf⁻³.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from uuid import UUID

from openmemory.access.rules import ALL, Rules
from openmemory.database.sql_files import sql_template
from openmemory.search.acl_sql import UNRULED, RuleSets, sets_of

K1 = 0.9
B = 0.4
POOL = 700
"""The number of candidates that rare lexemes may select. Pairs of common ones may add twice as many."""
NEWEST = 2_000
"""The number of newest memories that are scanned if every lexeme is too common to select candidates."""
AMONG = 2 * NEWEST
"""The number of newest memories that are scanned for those that an app's rules allow."""
SLOTS = (4, 8, 12, 32)
"""The numbers of lexemes that a statement can score. The smallest that fits all words of a query except stop words is
used; each slot costs 2 % of it. If a query has more words than the largest, its most common lexemes are left out."""
READ = 50
"""The number of best memories by BM25 in which quoted phrases are looked for, or the requested number if that is
larger."""
FORMS = "(select unnest(forms) as form from (select former || language as forms from lexicon) x offset 0) form"
"""The languages of the memories' words: the configured one, and former ones during a backfill."""


def words_of(text: str) -> str:
    """The SQL expression for the words of a text in one of the `FORMS`."""
    return f"lexical_words(form::regconfig, {text})"


@dataclass(frozen=True, slots=True)
class LexicalFilter:
    """Limits the search. Empty tuples and None mean "anywhere", but empty `ids` mean none. `since` and `until` are
    inclusive."""

    user: UUID
    namespaces: tuple[str, ...] = ()
    thread: str | None = None
    kinds: tuple[str, ...] = ()
    apps: tuple[UUID, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    rules: Rules = ALL
    ids: tuple[UUID, ...] | None = None

    @property
    def nothing(self) -> bool:
        """Returns True if no memory can match."""
        return self.ids == () or self.rules.nothing


@dataclass(frozen=True, slots=True)
class FilterSet:
    """The filters that a statement has: one statement text per combination, prepared once per connection."""

    namespaces: bool
    thread: bool
    kinds: bool
    apps: bool
    since: bool
    until: bool
    ruled: RuleSets = UNRULED
    listed: bool = False

    @classmethod
    def of(cls, where: LexicalFilter) -> FilterSet:
        return cls(
            bool(where.namespaces),
            where.thread is not None,
            bool(where.kinds),
            bool(where.apps),
            where.since is not None,
            where.until is not None,
            sets_of(where.rules),
            where.ids is not None,
        )

    @property
    def sets(self) -> str:
        """The lookup sets, as the beginning of a WITH clause."""
        listed = "listed as materialized (select unnest(cast(:in_ids as uuid[])) as id), " if self.listed else ""
        return self.ruled.sets + listed

    @property
    def rows(self) -> str:
        """The memories to search: if ids are listed, only those are read, one by one."""
        return "(select m.* from listed join memories m using (id) offset 0) m" if self.listed else "memories m"

    @property
    def elsewhere(self) -> str:
        """The condition that disables the search for further candidates if all are listed."""
        return " and false" if self.listed else ""

    @property
    def scope(self) -> str:
        """The user, and the namespaces searched."""
        return "m.user_id = :in_user" + (" and m.namespace = any(:in_namespaces)" if self.namespaces else "")

    @property
    def filters(self) -> str:
        """Every filter except `state`, which stays beside the index condition so that partial indexes apply."""
        parts = {
            "m.thread_id = :in_thread": self.thread,
            "m.kind = any(:in_kinds)": self.kinds,
            "m.app_id = any(:in_apps)": self.apps,
            "m.created_at >= :in_since": self.since,
            "m.created_at <= :in_until": self.until,
            self.ruled.condition: self.ruled != UNRULED,
        }
        wanted = (condition for condition, on in parts.items() if on)
        return " and ".join((self.scope, "(m.expires_at is null or m.expires_at > now())", *wanted))

    @property
    def counted(self) -> str:
        """The memories of a small scope for its statistics. With rules, only those that the rules allow, so that scores
        reveal nothing about the others."""
        return self.scope if self.ruled == UNRULED else f"{self.scope} and {self.ruled.condition}"

    @property
    def newest(self) -> str:
        """The newest memories first. Rules may allow few, so with rules only `AMONG` of the newest are scanned."""
        latest = f"{self.rows} where {self.filters} and m.state = 'active' order by m.created_at desc"
        if self.ruled == UNRULED or self.listed:
            return latest
        newest = f"memories m where {self.scope} and m.state = 'active' order by m.created_at desc limit {AMONG}"
        return f"(select m.* from {newest}) m where {self.filters}"  # noqa: S608 - as below

    @property
    def scopes(self) -> str:
        """The names of the searched scopes in `lexical_statistics`."""
        return ":in_namespaces" if self.namespaces else "array['']"

    @property
    def seeds(self) -> str:
        """The hashes of the searched scopes, as computed by `lexical_keys`."""
        if self.namespaces:
            return "array(select hashtextextended(n, uuid_hash_extended(:in_user, 0)) from unnest(:in_namespaces) n)"
        return "array[uuid_hash_extended(:in_user, 0)]"


@lru_cache(maxsize=256)
def bm25(shape: FilterSet, slots: int, quoted: bool = False, every: bool = False) -> str:
    """Candidates with their BM25 score, best first. Binds user, query and the shape's filters.

    `quoted`: also uses bound phrases. `every`: returns all candidates, not only slightly more than the limit.
    """
    ids = range(1, slots + 1)

    def each(column: str, separator: str = ", ") -> str:
        return separator.join(column.format(i=i) for i in ids)

    # The words of a long memory are compressed: unpacked once per row here rather than once per lexeme.
    plain = "case when pg_column_size(m.words) > 1000 then m.words || ''::tsvector else m.words end as plain"
    keys = "lexical_keys(m.user_id, m.namespace, m.words)"
    row = {"plain": f"{plain}, m.word_count as length", "keys": keys}
    holding, choosing = ("m.words @@", "every") if shape.listed else (f"{keys} &&", "rare")
    idf = "ln(1 + (greatest(scope.documents - greatest(d{i}, n{i}), 0.0) + 0.5) / (greatest(d{i}, n{i}) + 0.5))"
    tf = "round(1.0::float8 / greatest(1.6449340668 - 16.449340668 * r{i}, 1e-4) - 0.5)"
    held = " + (select count(*) * (select weight from total) from phrase where pool.plain @@ phrase.query)"
    return _filled(
        "bm25",
        shape,
        **row,
        k1=K1,
        b=B,
        rest_of_b=1 - B,
        pool=POOL,
        twice_pool=2 * POOL,
        newest_read=NEWEST,
        read=READ,
        slots=slots,
        forms=FORMS,
        query_words=words_of(":query"),
        holding=holding,
        choosing=choosing,
        found="table chosen union all table paired" + (" union all table quoted" if quoted else ""),
        phrases=_filled("phrases", shape, **row) if quoted else "",
        held=held if quoted else "",
        carried=", plain" if quoted else "",
        slot_words=each("max(word::text) filter (where slot = {i})::tsquery as q{i}"),
        slot_documents=each("max(documents) filter (where slot = {i}) as d{i}"),
        slot_queries=each("q{i}"),
        frequencies=each("ts_rank(m.plain, q{i}) as r{i}"),
        holding_counts=each("count(*) filter (where r{i} > 0) as n{i}"),
        slot_weights=each(f"{idf} * {K1 + 1}::float8 as w{{i}}"),
        weights=each("w{i}"),
        gains=each(f"case when r{{i}} > 0 then w{{i}} * (1.0::float8 - k / (k + {tf})) else 0 end", " + "),
        thread_counts=each("count(*) filter (where r{i} > 0)::float8 as t{i}"),
        together=each(f"coalesce(w{{i}}, 0) * t{{i}} / ({K1}::float8 + t{{i}})", " + "),
        not_every="" if every else "not ",
        answered="scored" if every else "best",
    )


@lru_cache(maxsize=256)
def partial(shape: FilterSet) -> str:
    """Memories that contain a part of a word. Binds needles, found and the filters."""
    return _filled("partial_matches", shape, needle_words=words_of("needle"), newest_read=NEWEST)


def _filled(name: str, shape: FilterSet, **parts: object) -> str:
    """A statement of `sql/` for memories that pass the filters."""
    filters = {
        "sets": shape.sets,
        "rows": shape.rows,
        "filters": shape.filters,
        "counted": shape.counted,
        "elsewhere": shape.elsewhere,
        "newest": shape.newest,
        "scopes": shape.scopes,
        "seeds": shape.seeds,
    }
    return sql_template("openmemory.search", name).substitute(filters | parts)
