"""The SQL of lexical retrieval: BM25 over a user's memories in one statement, and what stemming misses in another.

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
6. Words of the `READ` best that are adjacent as in the query add to their scores (a part of the sequential dependence
   model of Metzler and Croft 2005, "A Markov Random Field Model for Term Dependencies").

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
NEAR = 0.4
"""The score for two words that are adjacent as in the query, as a share of the score of the rarer one."""
GAP = 3
"""The maximum distance between two words of the query that belong together."""
READ = 50
"""The number of best memories by BM25 whose word positions are checked, or the requested number if that is larger. Hits
requested in place of lowered ones must be able to rise like these."""
ALIKE = 100
"""The number of memories that are read to find similar spellings of a query word."""
MISSPELT = 3
"""The maximum number of query words that are looked up in other spellings, the longest first."""
SPELT = 0.5
"""The weight of a similarly spelt word, used if no memory contains the word of the query."""
FORMS = (
    "(select form, n = cardinality(forms) as newest from (select former || language as forms from lexicon) x,"
    " unnest(forms) with ordinality f(form, n) offset 0) form"
)
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
    excluded: tuple[UUID, ...] = ()
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
    excluded: bool
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
            bool(where.excluded),
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
            "m.id <> all(:in_excluded)": self.excluded,
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
def bm25(shape: FilterSet, slots: int, spelt: bool = False, quoted: bool = False, every: bool = False) -> str:
    """Candidates with their BM25 score, best first. Binds user, query and the shape's filters.

    `spelt`: also uses bound lexemes that weigh `SPELT`. `quoted`: also uses bound phrases. `every`: returns all
    candidates, not only slightly more than the limit.
    """
    ids = range(1, slots + 1)
    keys = "lexical_keys(m.user_id, m.namespace, m.words)"
    frequencies = ", ".join(f"ts_rank(m.plain, q{i}) as r{i}" for i in ids)
    # The words of a long memory are compressed: unpacked once per row here rather than once per lexeme.
    plain = "case when pg_column_size(m.words) > 1000 then m.words || ''::tsvector else m.words end as plain"
    plain += ", coalesce(m.word_count, length(m.words)) as length"
    words, rates = (", ".join(f"{name}{i}" for i in ids) for name in "qr")
    found = "table chosen union all table paired" + (" union all table quoted" if quoted else "")
    factor = f"(case when f{{i}} then {SPELT * (K1 + 1)} else {K1 + 1} end)" if spelt else f"{K1 + 1}"
    guesses = ", ".join(f"bool_or(lexeme = any(:spelt)) filter (where slot = {i}) as f{i}" for i in ids)
    guessed = f", {guesses}" if spelt else ""
    held = ""
    carried = ", plain" if quoted else ""
    phrases = ""
    if quoted:
        phrases = f""", phrase as materialized (
  select lexical_phrase(form::regconfig, said) as query, array(
           select hashtextextended(w.lexeme, seed) from unnest(lexical_words(form::regconfig, said)) w
           where w.positions is not null) as keys, seed
  from (select language as form from lexicon offset 0) x, unnest(:phrases) said, unnest({shape.seeds}) seed
), quoted as materialized (
  select distinct on (m.id) m.id, m.plain, m.length, m.namespace, m.thread_id
  from (select * from phrase where query is not null offset 0) p cross join lateral (
    select m.*, {plain} from {shape.rows} where m.state = 'active' and {keys} @> p.keys offset 0) m
  where {shape.filters} and m.plain @@ p.query
    and m.id <> all(array(select id from (table chosen union all table paired) found))
)"""  # noqa: S608 - as below
        held = (
            """ + (select count(*) * (select sum(weight) from weighed) from phrase where pool.plain @@ phrase.query)"""
        )
    idf = "ln(1 + (greatest(scope.documents - greatest(d{i}, n{i}), 0.0) + 0.5) / (greatest(d{i}, n{i}) + 0.5))"
    tf = "round(1.0::float8 / greatest(1.6449340668 - 16.449340668 * r{i}, 1e-4) - 0.5)"
    holding, choosing = ("m.words @@", "every") if shape.listed else (f"{keys} &&", "rare")
    gain = f"case when r{{i}} > 0 then w{{i}} * (1.0::float8 - k / (k + {tf})) else 0 end"
    said = ", ".join(f"count(*) filter (where r{i} > 0)::float8 as t{i}" for i in ids)
    together = " + ".join(f"coalesce(w{i}, 0) * t{i} / ({K1}::float8 + t{i})" for i in ids)
    return f"""
with {shape.sets}scope as materialized (
  select coalesce(known.documents, (select count(*)::float8 from (
           select from memories m where {shape.counted} and m.state = 'active' limit 5000) m)) as documents,
         coalesce(known.words / known.documents, (select avg(length)::float8 from (
           select coalesce(m.word_count, length(m.words)) as length from memories m
           where {shape.counted} and m.state = 'active' order by m.created_at desc limit 200) m), 1.0::float8) as length
  from (select sum(s.documents)::float8 as documents, sum(s.words)::float8 as words from lexical_statistics s
        where s.user_id = :in_user and s.namespace = any({shape.scopes}) and s.term = '' offset 0) known
), spoken as materialized (
  select {words_of(":query")} as words, newest from {FORMS}
), lexeme as materialized (
  select l.lexeme, array(select hashtextextended(l.lexeme, seed) from unnest({shape.seeds}) seed) as keys,
         (select coalesce(sum(s.documents), 0)::float8 from lexical_statistics s
          where s.user_id = :in_user and s.namespace = any({shape.scopes}) and s.term = l.lexeme) as documents
  from (select w.lexeme from spoken, unnest(words) w{" union all select unnest(:spelt)" if spelt else ""}) l
  group by l.lexeme
), term as materialized (
  select t.*, ('''' || replace(replace(lexeme, '\\', '\\\\'), '''', '''''') || '''')::tsquery as word,
         row_number() over up as slot,
         sum(documents) over up > {POOL} as common,
         sum(documents) over (up rows between unbounded preceding and 1 preceding) as before,
         sum(documents) over (up rows between 1 following and unbounded following) as after
  from (select * from lexeme order by documents, length(lexeme) desc, lexeme limit {slots}) t
  window up as (order by documents, lexeme)
), choice as materialized (
  select array_agg(keys) filter (where not common) as rare,
         array_agg(keys) filter (where pair = 1) as first, array_agg(keys) filter (where pair > 1) as with_first,
         array_agg(keys) filter (where pair = 2 and fits) as second,
         array_agg(keys) filter (where pair > 2) as with_second,
         string_agg(word::text, ' | ')::tsquery as every, bool_or(common) as some_common,
         string_agg(word::text, ' | ') filter (where not common)::tsquery as choosing,
         {", ".join(f"max(word::text) filter (where slot = {i})::tsquery as q{i}" for i in ids)},
         {", ".join(f"max(documents) filter (where slot = {i}) as d{i}" for i in ids)}{guessed}
  from (select t.*, slot - (select count(*) from term where not common) as pair,
               coalesce(t.before, 0) + t.documents * least(1.0, t.after / scope.documents) <= {2 * POOL} as fits
        from term t, scope) t
), chosen as materialized (
  select m.id, m.plain, m.length, m.namespace, m.thread_id
  from (select m.*, {plain} from {shape.rows}
        where m.state = 'active' and {holding} (select {choosing} from choice) offset 0) m
  where {shape.filters}
), paired as materialized (
  select m.id, m.plain, m.length, m.namespace, m.thread_id
  from (select choosing from choice where some_common{shape.elsewhere} offset 0) q, (
    select m.*, {plain} from memories m
    where m.state = 'active'
      and (({keys} && (select first from choice) and {keys} && (select with_first from choice))
           or ({keys} && (select second from choice) and {keys} && (select with_second from choice)))
    offset 0) m
  where {shape.filters} and (m.plain @@ q.choosing) is not true
  limit {2 * POOL}
){phrases}, newest as materialized (
  select m.id, m.plain, m.length, m.namespace, m.thread_id
  from (select every from choice where some_common{shape.elsewhere}
          and (select count(*) from (select from ({found}) found limit :limit) enough) < :limit offset 0) q
  cross join lateral (
    select m.*, {plain} from {shape.newest} limit {NEWEST} offset 0) m
  where m.plain @@ q.every and m.id <> all(array(select id from ({found}) found))
), pool as materialized (
  select id, namespace, thread_id{carried}, {frequencies},
         {K1}::float8 * ({1 - B}::float8 + {B}::float8 * m.length / scope.mean) as k
  from (select {words}, scope.length as mean from choice, scope offset 0) scope, ({found} union all table newest) m
), weight as materialized (
  select {", ".join(f"{idf.format(i=i)} * {factor.format(i=i)}::float8 as w{i}, n{i}" for i in ids)}
  from scope, choice, (select {", ".join(f"count(*) filter (where r{i} > 0) as n{i}" for i in ids)} from pool) found
), weighed as materialized (
  select t.slot, t.lexeme, t.word, t.documents = 0 and w.found = 0 as missing, w.weight
  from weight, unnest(array[{", ".join(f"w{i}" for i in ids)}], array[{", ".join(f"n{i}" for i in ids)}])
       with ordinality w(weight, found, slot) join term t using (slot)
), near as materialized (
  select concat(a.word, '<', gap, '>', b.word)::tsquery as pair, {NEAR}::float8 * least(a.weight, b.weight) as gain,
         a.slot as first, b.slot as second
  from (
    select distinct lexeme, next, gap from (
      select w.lexeme, lead(w.lexeme) over along as next, lead(place) over along - place as gap
      from spoken, unnest(words) w, unnest(w.positions) place where newest window along as (order by place)) following
    where gap <= {GAP} limit {2 * slots}) pair
    join weighed a using (lexeme) join weighed b on b.lexeme = pair.next
), scored as {"" if every else "not "}materialized (
  select id, namespace, thread_id{carried}, {rates}, {" + ".join(gain.format(i=i) for i in ids)} as score
  from weight, pool
), best as materialized (
  select id, namespace, thread_id, score, array[{rates}] as rates
  from (select * from scored order by score desc, id limit greatest({READ}, :limit)) s
), raised as materialized (
  select m.id, sum(near.gain order by near.gain) as gain
  from (select m.id, best.rates, {plain} from best join memories m using (id) where exists (
          select from near where best.rates[near.first] > 0 and best.rates[near.second] > 0) offset 0) m
  join near on case when m.rates[near.first] > 0 and m.rates[near.second] > 0 then m.plain @@ near.pair end
  group by m.id
)
select pool.id, pool.score + coalesce(raised.gain, 0){held} as score,
       (select array_agg(lexeme) from lexeme) as terms, thread.namespace, thread.thread_id, thread.together,
       (select array_agg(lexeme) from weighed where missing) as missing
from {"scored" if every else "best"} pool left join raised using (id) left join (
  select namespace, thread_id, {together} as together
  from weight, (select namespace, thread_id, {said} from pool where thread_id is not null group by 1, 2) of_thread
) thread using (namespace, thread_id)
order by score desc, id
"""  # noqa: S608 - only names and constants of this module are put in


@lru_cache(maxsize=256)
def alike(shape: FilterSet) -> str:
    """Lexemes that are spelt similarly to a query word that no memory contains.

    Returns the word, its lexeme, the similar lexeme, and how many of the scanned memories contain that. Binds needles,
    missing (null: all are) and the filters. A word with two swapped letters shares fewer trigrams with the right word
    than many other words do. So its variants with two letters swapped are looked up first, and trigrams only if none
    exists.
    """
    holding = "m.words @@ n.words" if shape.listed else "lexical_keys(m.user_id, m.namespace, m.words) && n.keys"
    return f"""
with {shape.sets}needle as materialized (
  select needle, w.lexeme as said, form::regconfig as form
  from (select language as form from lexicon offset 0) x, unnest(:needles) needle,
       unnest(lexical_words(form::regconfig, needle)) w
  where :missing is null or w.lexeme = any(:missing)
  order by length(needle) desc, needle limit {MISSPELT}
), swapped as materialized (
  select needle, said,
         string_agg('''' || lexeme || '''', ' | ')::tsquery as words,
         array_agg(hashtextextended(lexeme, seed)) as keys
  from needle, generate_series(1, length(needle) - 1) i,
       unnest(to_tsvector(form, overlay(needle placing reverse(substr(needle, i, 2)) from i))),
       unnest({shape.seeds}) seed
  group by 1, 2
), near as materialized (
  select n.needle, n.said, m.words
  from swapped n cross join lateral (
    select m.words from {shape.rows}
    where {holding} and {shape.filters} and m.state = 'active' limit {ALIKE} offset 0) m
), alike as materialized (
  select n.needle, n.said, m.words
  from (select * from needle where needle not in (select needle from near) offset 0) n cross join lateral (
    select m.words from {shape.rows}
    where n.needle <% m.content and {shape.filters} and m.state = 'active' limit {ALIKE} offset 0) m
)
select n.needle, n.said, w.lexeme, count(*)
from (table near union all table alike) n, unnest(n.words) w
where w.lexeme <> n.said and abs(length(w.lexeme) - length(n.said)) <= 2 and left(w.lexeme, 1) = left(n.said, 1)
group by 1, 2, 3
"""  # noqa: S608 - only names and constants of this module are put in


@lru_cache(maxsize=256)
def partial(shape: FilterSet) -> str:
    """Memories that contain a part of a word or a similarly spelt word. Binds needles, found and the filters."""
    return f"""
with {shape.sets}said as materialized (
  select array_agg(distinct w.lexeme) as words from memories m, unnest(m.words) w where m.id = any(:found)
), needle as materialized (
  select needle, '%' || replace(replace(replace(needle, '\\', '\\\\'), '%', '\\%'), '_', '\\_') || '%' as pattern
  from (select needle, {words_of("needle")} as words
        from unnest(:needles) needle, (select language as form from lexicon offset 0) x) n
  where not tsvector_to_array(words) && coalesce((select words from said), array[]::text[])
    and (length(words) > 0 or needle = lower(btrim(:query)))
  order by length(needle) desc, needle limit 4
), part as materialized (
  select n.needle, m.id, 1.0::float8 as similarity
  from (select * from needle where length(needle) > 2 offset 0) n cross join lateral (
    select m.id from {shape.rows} where m.content ilike n.pattern and {shape.filters} and m.state = 'active'
      and m.id <> all(:found) limit 200 offset 0) m
  union all
  select n.needle, m.id, 1.0::float8
  from (select * from needle where length(needle) <= 2 offset 0) n cross join lateral (
    select m.id, m.content from {shape.newest} limit {NEWEST} offset 0) m
  where m.id <> all(:found) and m.content ilike n.pattern
), alike as materialized (
  select n.needle, m.id, m.similarity
  from (select needle from needle n where length(needle) > 4 and needle !~ '\\s'
          and not exists (select from part where part.needle = n.needle) offset 0) n
  cross join lateral (
    select m.id, word_similarity(n.needle, m.content)::float8 as similarity from {shape.rows}
    where n.needle <% m.content and {shape.filters} and m.state = 'active' and m.id <> all(:found)
    limit 200 offset 0) m
), pool as (table part union all table alike)
select id, sum(similarity * ln(1 + 1000.0::float8 / (0.5 + documents))) as score,
       array_agg(needle order by needle) as terms,
       null::text as namespace, null::text as thread_id, null::float8 as together, null::text[] as missing
from (select *, count(*) over (partition by needle) as documents from pool) pool
group by id
order by score desc, id
"""  # noqa: S608 - only names and constants of this module are put in
