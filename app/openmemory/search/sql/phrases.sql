-- phrases: a part of bm25. Candidates that contain a phrase in quotes.
-- Parameters: phrases, in_user, and those of the filters.
, phrase as materialized (
  select lexical_phrase(form::regconfig, said) as query, array(
           select hashtextextended(w.lexeme, seed) from unnest(lexical_words(form::regconfig, said)) w
           where w.positions is not null) as keys, seed
  from (select language as form from lexicon offset 0) x, unnest(:phrases) said, unnest(${seeds}) seed
), quoted as materialized (
  select distinct on (m.id) m.id, m.plain, m.length, m.namespace, m.thread_id
  from (select * from phrase where query is not null offset 0) p cross join lateral (
    select m.*, ${plain} from ${rows} where m.state = 'active' and ${keys} @> p.keys offset 0) m
  where ${filters} and m.plain @@ p.query
    and m.id <> all(array(select id from (table chosen union all table paired) found))
)
