-- name: stored_vectors
-- Returns the stored vectors of items, up to a number of bytes, and the place of the first that did not fit.
-- One row with all vectors in one value: the server would send thousands in pieces of 8 kB, each of which wakes the
-- process. The aggregates see the rows in the same, arbitrary order; but those within the limit are the first.
SELECT array_agg(f.place) FILTER (WHERE f.held <= :most),
    string_agg(f.text_hash, ',') FILTER (WHERE f.held <= :most),
    array_agg(f.length) FILTER (WHERE f.held <= :most), string_agg(f.vector, '') FILTER (WHERE f.held <= :most),
    min(f.place) FILTER (WHERE f.held > :most)
FROM (
    SELECT wanted.place, e.text_hash, e.vector, length(e.vector) AS length,
        sum(length(e.vector)) OVER (ORDER BY wanted.place) AS held
    FROM unnest(CAST(:ids AS uuid[])) WITH ORDINALITY AS wanted(id, place)
    JOIN embeddings AS e ON e.kind = :kind AND e.id = wanted.id AND e.model = :model
    WHERE length(e.vector) % :size = 0 AND e.chunking LIKE :chunking
) AS f
