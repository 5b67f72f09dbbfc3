-- name: analysis
-- Tells what is common in a query, which lexemes it has, how many memories hold them, and what the index lacks.
with sample as materialized (
  select m.words from ${table} m where ${mine} and m.state = 'active'
  order by m.created_at desc limit ${sample}
), enough as materialized (
  select count(*) * least(
    ${common_share}::float8, 1 - power(1 - ${rate}::float8, avg(length(words))::float8)) as least
  from sample having count(*) >= ${min_memories}
), said as materialized (
  select w.place, lexical_phrase(x.language::regconfig, w.word) as word
  from enough, lexicon x, unnest(:words) with ordinality as w(word, place)
), told as materialized (
  select s.place, (select count(*) from sample where sample.words @@ s.word) > enough.least as common
  from said s, enough where numnode(s.word) > 0
), scope as materialized (
  select coalesce(${known} ''), (select count(*)::float8 from (
    select from ${table} m where ${mine} and m.state = 'active' limit ${max_counted}) m)) as documents
), spoken as materialized (
  select l.lexeme, ${known} l.lexeme) as documents
  from (select distinct w.lexeme from ${forms}, unnest(${query_words}) w) l
  order by documents nulls first, length(l.lexeme) desc, l.lexeme limit ${max_lexemes}
), lexeme as materialized (
  select l.lexeme, ${hash} as hash, coalesce(l.documents, held.documents) as documents
  from (select s.*, array(select hashtextextended(s.lexeme, seed) from unnest(${seeds}) seed) as keys
        from spoken s) l cross join lateral (
    select count(*)::float8 as documents from (
      select from ${table} m where l.documents is null and ${keys} && l.keys and m.state = 'active'
        and ${allowed} limit ${max_counted}) m) held
)
select rules.revision, outbox.waiting, outbox.pending, outbox.late, (select array_agg(place) from told),
       (select array_agg(place) from told where common), (select documents from scope), l.*
from (${revision}) rules, ${pending} outbox, (
  select array_agg(lexeme order by documents, lexeme), array_agg(hash order by documents, lexeme),
         array_agg(documents order by documents, lexeme) from lexeme) l
