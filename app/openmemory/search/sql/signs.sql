-- signs: memories that contain a query of signs, newest first.
-- Parameters: query, and those of the filters.
with ${sets}recent as materialized (
  select m.id, m.content, m.created_at from ${newest} limit ${signs_read}
)
-- No text says it better than another, so newer ones come first.
select id, 1 / (1 + 0.001::float8 * row_number() over (order by created_at desc, id desc)) as score
from recent where strpos(content, :query) > 0
