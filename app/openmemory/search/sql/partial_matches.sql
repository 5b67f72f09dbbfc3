-- partial_matches: memories that contain a part of a word of the query.
-- Parameters: query, needles (the words), found (memories that contain whole words), and those of the filters.
with ${sets}said as materialized (
  select array_agg(distinct w.lexeme) as words from memories m, unnest(m.words) w where m.id = any(:found)
-- The words that no found memory contains, as patterns.
), needle as materialized (
  select needle, '%' || replace(replace(replace(needle, '\', '\\'), '%', '\%'), '_', '\_') || '%' as pattern
  from (select needle, ${needle_words} as words
        from unnest(:needles) needle, (select language as form from lexicon offset 0) x) n
  where not tsvector_to_array(words) && coalesce((select words from said), array[]::text[])
    and (length(words) > 0 or needle = lower(btrim(:query)))
  order by length(needle) desc, needle limit 4
-- Memories that contain the word inside another one. Short words are looked for among the newest only.
), part as materialized (
  select n.needle, m.id
  from (select * from needle where length(needle) > 2 offset 0) n cross join lateral (
    select m.id from ${rows} where m.content ilike n.pattern and ${filters} and m.state = 'active'
      and m.id <> all(:found) limit 200 offset 0) m
  union all
  select n.needle, m.id
  from (select * from needle where length(needle) <= 2 offset 0) n cross join lateral (
    select m.id, m.content from ${newest} limit ${newest_read} offset 0) m
  where m.id <> all(:found) and m.content ilike n.pattern
)
-- Words in few memories weigh most.
select id, sum(ln(1 + 1000.0::float8 / (0.5 + documents))) as score
from (select *, count(*) over (partition by needle) as documents from part) part
group by id
order by score desc, id
