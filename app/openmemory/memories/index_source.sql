-- name: points
-- Returns what the index holds of the active memories among these ids.
-- There is one row, in which each column is aggregated into one value. Reading thousands of rows costs several times as
-- much as finding them. All aggregates see the rows in the same order.
SELECT array_agg(wanted.place),
    string_agg(CAST(m.user_id AS text), ','), string_agg(CAST(m.app_id AS text), ','),
    string_agg(concat_ws(' ', m.text_app_id, m.metadata_app_id), ','),
    array_agg(m.namespace), array_agg(m.kind), array_agg(m.revision), string_agg(m.hash, ','),
    string_agg(array_to_string(ARRAY(
        SELECT c.category_id FROM memory_categories AS c WHERE c.memory_id = m.id), ' '), ','),
    array_agg(${lexemes}), array_agg(m.word_count)
FROM unnest(CAST(:ids AS uuid[])) WITH ORDINALITY AS wanted(id, place)
JOIN memories AS m ON m.id = wanted.id AND m.state = 'active' AND m.kind <> 'state'
