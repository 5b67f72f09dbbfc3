-- name: forget_vectors
-- Removes a page of the vectors that only a retired generation used, and returns the end of the page.
-- A scan along the primary key: by model alone, every page would be searched for from the start of the table.
WITH page AS (
    SELECT kind, id, model FROM embeddings WHERE (kind, id, model) > (:kind, :id, :of)
    ORDER BY kind, id, model LIMIT :limit
), gone AS (
    DELETE FROM embeddings AS e USING page
    WHERE page.model = :model AND (e.kind, e.id, e.model) = (page.kind, page.id, page.model)
        AND NOT EXISTS (
            SELECT FROM index_generations AS g
            WHERE g.model = :model AND (g.collection <> :collection OR g.state <> 'retired')
        )
)
SELECT kind, id, model FROM page ORDER BY kind DESC, id DESC, model DESC LIMIT 1
