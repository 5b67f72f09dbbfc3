-- phrases: a part of bm25. Memories that contain a phrase in quotes, and how many of them.
-- Parameters: phrases, in_user, and those of the filters.
phrase as materialized (
  select lexical_phrase(form::regconfig, said) as query, array(
           select hashtextextended(w.lexeme, seed) from unnest(lexical_words(form::regconfig, said)) w
           where w.positions is not null) as keys
  from (select language as form from lexicon offset 0) x, unnest(:phrases) said, unnest(${seeds}) seed
), chosen as materialized (
  select m.id, m.words, m.length, count(*) as phrases
  from (select * from phrase where query is not null offset 0) p cross join lateral (
    select m.*, m.word_count as length from ${rows} where m.state = 'active' and ${keys} @> p.keys offset 0) m
  where ${filters} and m.words @@ p.query
  group by m.id, m.words, m.length
)
