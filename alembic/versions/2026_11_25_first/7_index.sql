-- Vector index.

-- The outbox: items whose vectors in the index are out of date.
CREATE TABLE index_outbox (
    kind varchar NOT NULL,
    id uuid NOT NULL,
    user_id uuid,
    revision integer NOT NULL DEFAULT 1,
    attempts integer NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL DEFAULT now(),
    holder uuid,
    last_error varchar,
    written_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_index_outbox PRIMARY KEY (kind, id)
);
CREATE INDEX ix_index_outbox_due ON index_outbox (kind, due_at, written_at);
CREATE INDEX ix_index_outbox_user ON index_outbox (user_id, kind);

CREATE TABLE embeddings (
    kind varchar NOT NULL,
    id uuid NOT NULL,
    model varchar NOT NULL,
    text_hash varchar NOT NULL,
    vector bytea NOT NULL,
    chunking varchar NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_embeddings PRIMARY KEY (kind, id, model)
);
CREATE INDEX ix_embeddings_chunking ON embeddings (model, chunking);

-- The vectors of single tokens.
CREATE TABLE embedding_tokens (
    kind varchar NOT NULL,
    id uuid NOT NULL,
    model varchar NOT NULL,
    text_hash varchar NOT NULL,
    tokens bytea NOT NULL,
    CONSTRAINT pk_embedding_tokens PRIMARY KEY (kind, id, model),
    CONSTRAINT fk_embedding_tokens_kind_embeddings FOREIGN KEY (kind, id, model)
        REFERENCES embeddings (kind, id, model) ON DELETE CASCADE
);
-- Nearly random bytes do not compress.
ALTER TABLE embedding_tokens ALTER COLUMN tokens SET STORAGE EXTERNAL;

-- A memory whose text has its first vector waits for category assignment. A vector of another model changes nothing.
-- `infinity`: a client has set the categories.
CREATE FUNCTION embeddings_queue_categorization() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM embeddings AS e
        WHERE e.kind = NEW.kind AND e.id = NEW.id AND e.text_hash = NEW.text_hash AND e.model <> NEW.model
    ) THEN
        INSERT INTO pending_categorizations (memory_id) SELECT m.id FROM memories AS m WHERE m.id = NEW.id
        ON CONFLICT (memory_id) DO UPDATE SET due_at = now(), attempts = 0, last_error = NULL
            WHERE pending_categorizations.due_at < 'infinity';
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER queue_categorization AFTER INSERT OR UPDATE OF text_hash ON embeddings
    FOR EACH ROW WHEN (NEW.kind = 'memory') EXECUTE FUNCTION embeddings_queue_categorization();

-- The vectors of another text replace these, so the tokens of the former text go.
CREATE FUNCTION embeddings_delete_old_tokens() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM embedding_tokens AS t
    WHERE t.kind = NEW.kind AND t.id = NEW.id AND t.model = NEW.model AND t.text_hash <> NEW.text_hash;
    RETURN NULL;
END
$$;

CREATE TRIGGER delete_old_tokens AFTER UPDATE OF text_hash ON embeddings
    FOR EACH ROW WHEN (NEW.text_hash <> OLD.text_hash) EXECUTE FUNCTION embeddings_delete_old_tokens();

CREATE TABLE index_generations (
    collection varchar NOT NULL,
    model varchar NOT NULL,
    dimension integer NOT NULL,
    embedder jsonb NOT NULL DEFAULT '{}',
    state varchar NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    activated_at timestamptz,
    retired_at timestamptz,
    epoch uuid NOT NULL DEFAULT gen_random_uuid(),
    watermark bigint NOT NULL DEFAULT 0,
    CONSTRAINT pk_index_generations PRIMARY KEY (collection),
    CONSTRAINT ck_index_generations_state CHECK (state IN ('building', 'active', 'retired')),
    CONSTRAINT ck_index_generations_dimension CHECK (dimension > 0)
);
CREATE UNIQUE INDEX uq_index_generations_active ON index_generations (state) WHERE state = 'active';

-- One row: the service whose index takes outbox entries.
CREATE TABLE index_lease (
    id boolean NOT NULL DEFAULT true,
    holder varchar NOT NULL,
    taken_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_index_lease PRIMARY KEY (id),
    CONSTRAINT ck_index_lease_one_row CHECK (id)
);

CREATE TABLE sync_runs (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    trigger varchar NOT NULL,
    collection varchar,
    expected integer,
    started_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    statistics jsonb,
    error varchar,
    CONSTRAINT pk_sync_runs PRIMARY KEY (id)
);
CREATE INDEX ix_sync_runs_started_at ON sync_runs (started_at);

-- Term frequencies of users and namespaces with many memories.
CREATE TABLE lexical_statistics (
    user_id uuid NOT NULL,
    namespace varchar NOT NULL,
    term varchar NOT NULL,
    documents integer NOT NULL,
    words bigint NOT NULL DEFAULT 0,
    CONSTRAINT pk_lexical_statistics PRIMARY KEY (user_id, namespace, term),
    CONSTRAINT fk_lexical_statistics_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE
);
