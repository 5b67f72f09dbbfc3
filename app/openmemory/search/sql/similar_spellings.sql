-- similar_spellings: lexemes that are spelt similarly to a query word that no memory contains.
-- Parameters: needles (the words), missing (null: all are), and those of the filters.
with ${sets}needle as materialized (
  select needle, w.lexeme as said, form::regconfig as form
  from (select language as form from lexicon offset 0) x, unnest(:needles) needle,
       unnest(lexical_words(form::regconfig, needle)) w
  where :missing is null or w.lexeme = any(:missing)
  order by length(needle) desc, needle limit ${misspelt}
-- Each word with two neighbouring letters swapped.
), swapped as materialized (
  select needle, said,
         string_agg('''' || lexeme || '''', ' | ')::tsquery as words,
         array_agg(hashtextextended(lexeme, seed)) as keys
  from needle, generate_series(1, length(needle) - 1) i,
       unnest(to_tsvector(form, overlay(needle placing reverse(substr(needle, i, 2)) from i))),
       unnest(${seeds}) seed
  group by 1, 2
-- The memories that contain such a word.
), near as materialized (
  select n.needle, n.said, m.words
  from swapped n cross join lateral (
    select m.words from ${rows}
    where ${holding} and ${filters} and m.state = 'active' limit ${alike_read} offset 0) m
-- The memories with words that share trigrams, for words without such memories.
), alike as materialized (
  select n.needle, n.said, m.words
  from (select * from needle where needle not in (select needle from near) offset 0) n cross join lateral (
    select m.words from ${rows}
    where n.needle <% m.content and ${filters} and m.state = 'active' limit ${alike_read} offset 0) m
)
-- The lexemes of these memories that may be meant.
select n.needle, n.said, w.lexeme, count(*)
from (table near union all table alike) n, unnest(n.words) w
where w.lexeme <> n.said and abs(length(w.lexeme) - length(n.said)) <= 2 and left(w.lexeme, 1) = left(n.said, 1)
group by 1, 2, 3
