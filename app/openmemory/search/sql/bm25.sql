-- bm25: candidates with their BM25 score, best first. `search/bm25.py` fills in the names and explains the method.
-- Parameters: in_user, query, limit, and those of the filters (in_...) and of the phrases.
-- The number of memories in the searched scope, and their mean length.
with ${sets}scope as materialized (
  select coalesce(known.documents, (select count(*)::float8 from (
           select from memories m where ${counted} and m.state = 'active' limit 5000) m)) as documents,
         coalesce(known.words / known.documents, (select avg(length)::float8 from (
           select m.word_count as length from memories m
           where ${counted} and m.state = 'active' order by m.created_at desc limit 200) m), 1.0::float8) as length
  from (select sum(s.documents)::float8 as documents, sum(s.words)::float8 as words from lexical_statistics s
        where s.user_id = :in_user and s.namespace = any(${scopes}) and s.term = '' offset 0) known
-- The words of the query in each form that the memories may have.
), spoken as materialized (
  select ${query_words} as words from ${forms}
-- Each lexeme of the query, the hashes to look it up, and how many memories contain it.
), lexeme as materialized (
  select l.lexeme, array(select hashtextextended(l.lexeme, seed) from unnest(${seeds}) seed) as keys,
         (select coalesce(sum(s.documents), 0)::float8 from lexical_statistics s
          where s.user_id = :in_user and s.namespace = any(${scopes}) and s.term = l.lexeme) as documents
  from (select w.lexeme from spoken, unnest(words) w) l
  group by l.lexeme
-- The rarest lexemes, numbered by frequency, and which of them are too common to select candidates.
), term as materialized (
  select t.*, ('''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''')::tsquery as word,
         row_number() over up as slot,
         sum(documents) over up > ${pool} as common,
         sum(documents) over (up rows between unbounded preceding and 1 preceding) as before,
         sum(documents) over (up rows between 1 following and unbounded following) as after
  from (select * from lexeme order by documents, length(lexeme) desc, lexeme limit ${slots}) t
  window up as (order by documents, lexeme)
-- One row: what to look up in the index, and the lexeme of each slot.
), choice as materialized (
  select array_agg(keys) filter (where not common) as rare,
         array_agg(keys) filter (where pair = 1) as first, array_agg(keys) filter (where pair > 1) as with_first,
         array_agg(keys) filter (where pair = 2 and fits) as second,
         array_agg(keys) filter (where pair > 2) as with_second,
         string_agg(word::text, ' | ')::tsquery as every, bool_or(common) as some_common,
         string_agg(word::text, ' | ') filter (where not common)::tsquery as choosing,
         ${slot_words},
         ${slot_documents}
  from (select t.*, slot - (select count(*) from term where not common) as pair,
               coalesce(t.before, 0) + t.documents * least(1.0, t.after / scope.documents) <= ${twice_pool} as fits
        from term t, scope) t
-- Candidates that contain a rare lexeme.
), chosen as materialized (
  select m.id, m.plain, m.length, m.namespace, m.thread_id
  from (select m.*, ${plain} from ${rows}
        where m.state = 'active' and ${holding} (select ${choosing} from choice) offset 0) m
  where ${filters}
-- Candidates that contain two common lexemes.
), paired as materialized (
  select m.id, m.plain, m.length, m.namespace, m.thread_id
  from (select choosing from choice where some_common${elsewhere} offset 0) q, (
    select m.*, ${plain} from memories m
    where m.state = 'active'
      and ((${keys} && (select first from choice) and ${keys} && (select with_first from choice))
           or (${keys} && (select second from choice) and ${keys} && (select with_second from choice)))
    offset 0) m
  where ${filters} and (m.plain @@ q.choosing) is not true
  limit ${twice_pool}
-- The newest memories, if too few candidates were found because every lexeme is common.
)${phrases}, newest as materialized (
  select m.id, m.plain, m.length, m.namespace, m.thread_id
  from (select every from choice where some_common${elsewhere}
          and (select count(*) from (select from (${found}) found limit :limit) enough) < :limit offset 0) q
  cross join lateral (
    select m.*, ${plain} from ${newest} limit ${newest_read} offset 0) m
  where m.plain @@ q.every and m.id <> all(array(select id from (${found}) found))
-- All candidates, with the rank of each lexeme in them.
), pool as materialized (
  select id, namespace, thread_id${carried}, ${frequencies},
         ${k1}::float8 * (${rest_of_b}::float8 + ${b}::float8 * m.length / scope.mean) as k
  from (select ${slot_queries}, scope.length as mean from choice, scope offset 0) scope, (${found} union all table newest) m
-- The weight of each slot.
), weight as materialized (
  select ${slot_weights}
  from scope, choice, (select ${holding_counts} from pool) found
-- The weight of all lexemes together.
), total as materialized (
  select sum(w.weight) as weight
  from weight, unnest(array[${weights}]) with ordinality w(weight, slot) join term using (slot)
-- The BM25 score of each candidate.
), scored as ${not_every}materialized (
  select id, namespace, thread_id${carried}, ${gains} as score
  from weight, pool
-- The best of them.
), best as materialized (
  select * from scored order by score desc, id limit greatest(${read}, :limit)
)
-- The answer, with the score of each thread as if it were one memory.
select pool.id, pool.score${held} as score,
       (select array_agg(lexeme) from lexeme) as terms, thread.namespace, thread.thread_id, thread.together,
       (select weight from total) as total
from ${answered} pool left join (
  select namespace, thread_id, ${together} as together
  from weight, (select namespace, thread_id, ${thread_counts} from pool where thread_id is not null group by 1, 2) of_thread
) thread using (namespace, thread_id)
order by score desc, id
