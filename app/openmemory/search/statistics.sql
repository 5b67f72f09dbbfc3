-- name: due
-- Lists the users whose statistics are missing, out of date, or about nothing any more.
select m.user_id from (
  select user_id, count(*) as documents from ${rows} where state = 'active' group by user_id) m
left join ${statistics} s on s.user_id = m.user_id and s.namespace = '' and s.term = ''
where case when s.documents is null then m.documents >= ${large}
           else m.documents < ${large} or abs(m.documents - s.documents) > ${drift} * s.documents end
union
select s.user_id from ${statistics} s
where s.namespace = '' and s.term = '' and not exists (
  select from ${rows} m where m.user_id = s.user_id and m.state = 'active')

-- name: refresh
-- Computes the statistics of a user anew, and changes the rows that differ.
with total as materialized (
  select case when grouping(namespace) = 1 then '' else namespace end as namespace,
         count(*) as documents, sum(word_count) as words
  from ${rows} where user_id = :user and state = 'active'
  group by grouping sets ((namespace), ())
  having count(*) >= ${large}
), used as materialized (
  select m.namespace, w.lexeme as term, count(*) as documents
  from ${rows} m, unnest(m.words) w
  where m.user_id = :user and m.state = 'active' and exists (select from total)
  group by 1, 2
), fresh as materialized (
  select namespace, '' as term, documents, words from total
  union all
  select namespace, u.term, u.documents, 0
  from (select namespace, term, documents from used
        union all select '', term, sum(documents) from used group by term) u
  join total t using (namespace)
  where u.documents >= greatest(10, ${rare} * t.documents)
), gone as (
  delete from ${statistics} s
  where s.user_id = :user
    and not exists (select from fresh f where f.namespace = s.namespace and f.term = s.term)
)
insert into ${statistics} as s (user_id, namespace, term, documents, words)
select :user, namespace, term, documents, words from fresh
on conflict (user_id, namespace, term) do update set documents = excluded.documents, words = excluded.words
where (s.documents, s.words) is distinct from (excluded.documents, excluded.words)
