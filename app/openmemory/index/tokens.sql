-- name: page
-- Lists a page of the stored vectors, and tells which of them lack tokens of a model.
-- A scan along both primary keys, which contain all requested columns.
SELECT e.kind, e.id, e.model, e.model = :model AND t.there IS NULL AS lacking
FROM (
    SELECT kind, id, model FROM embeddings
    WHERE (kind, id, model) > (:after_kind, :after_id, :after_model) ORDER BY kind, id, model LIMIT ${page}
) AS e
LEFT JOIN LATERAL (
    SELECT true AS there FROM embedding_tokens AS t
    WHERE t.kind = e.kind AND t.id = e.id AND t.model = e.model OFFSET 0) AS t ON true
ORDER BY e.kind, e.id, e.model
