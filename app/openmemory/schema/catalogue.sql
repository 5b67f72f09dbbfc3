-- name: catalogue
-- Lists everything that migrations make in the current schema, one line each.
-- Nothing is printed from PostgreSQL's own form of an expression, which differs between its versions: of checks,
-- defaults and conditions the lines say that they are there.
WITH tables AS (
    SELECT c.oid, c.relname FROM pg_class AS c
    WHERE c.relnamespace = to_regnamespace(current_schema()::text) AND c.relkind IN ('r', 'p')
        AND c.relname <> 'alembic_version'
)
SELECT 'table ' || relname AS line FROM tables
UNION ALL
SELECT format('column %s.%s %s', t.relname, a.attname, format_type(a.atttypid, a.atttypmod))
    || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
    || CASE WHEN a.attidentity <> '' THEN ' identity' WHEN a.attgenerated <> '' THEN ' generated'
        WHEN a.atthasdef THEN ' default' ELSE '' END
FROM tables AS t JOIN pg_attribute AS a ON a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT format(
        '%s %s.%s %s (%s)', CASE WHEN i.indisunique THEN 'unique index' ELSE 'index' END, t.relname, c.relname,
        m.amname,
        (SELECT string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_attribute AS a WHERE a.attrelid = i.indexrelid)
    ) || CASE WHEN i.indpred IS NOT NULL THEN ' partial' ELSE '' END
FROM tables AS t JOIN pg_index AS i ON i.indrelid = t.oid AND i.indisvalid
JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS m ON m.oid = c.relam
UNION ALL
SELECT CASE n.contype
        WHEN 'f' THEN format('foreign key %s.%s to %s %s', t.relname, n.conname, n.confrelid::regclass, n.confdeltype)
        ELSE format('check %s.%s', t.relname, n.conname) END
FROM tables AS t JOIN pg_constraint AS n ON n.conrelid = t.oid AND n.contype IN ('c', 'f')
UNION ALL
SELECT format('trigger %s.%s %s %s %s', t.relname, g.tgname, g.tgfoid::regproc, g.tgtype, g.tgenabled)
FROM tables AS t JOIN pg_trigger AS g ON g.tgrelid = t.oid AND NOT g.tgisinternal
UNION ALL
SELECT format('function %s(%s) %s', p.proname, pg_get_function_identity_arguments(p.oid), md5(p.prosrc))
FROM pg_proc AS p
WHERE p.pronamespace = to_regnamespace(current_schema()::text) AND NOT EXISTS (
    SELECT FROM pg_depend AS d WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
)
UNION ALL
SELECT format('type %s (%s)', y.typname, string_agg(e.enumlabel, ', ' ORDER BY e.enumsortorder))
FROM pg_type AS y JOIN pg_enum AS e ON e.enumtypid = y.oid
WHERE y.typnamespace = to_regnamespace(current_schema()::text)
GROUP BY y.typname
