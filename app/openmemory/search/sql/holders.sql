-- holders: a part of bm25. The newest memories that contain one of the rarest words.
-- Parameters: rare, in_user, and those of the filters.
chosen as materialized (
  select m.id, m.words, m.word_count as length, 0 as phrases
  from (select m.* from ${rows} where m.state = 'active' and ${holding} offset 0) m
  where ${filters}
  order by m.created_at desc limit ${most}
)
