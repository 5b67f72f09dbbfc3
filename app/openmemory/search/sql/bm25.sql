-- bm25: memories that contain words of the query, with their BM25 score (see `index/bm25.py`).
-- Parameters: in_user, lexemes, weights, and those of the candidates and of the filters (in_...).
with ${sets}term as materialized (
  select * from unnest(cast(:lexemes as text[]), cast(:weights as float8[])) t(lexeme, weight)
), ${candidates}
select c.id, max(c.phrases) * (select sum(weight) * ${k1_and_1} from term) + sum(
         t.weight * w.times * ${k1_and_1} / (w.times + ${k1} * (${rest_of_b} + ${b} * c.length / ${mean_length}))) as score
from chosen c cross join lateral (
  select lexeme, greatest(cardinality(positions), 1) as times from unnest(c.words) offset 0) w join term t using (lexeme)
group by c.id
