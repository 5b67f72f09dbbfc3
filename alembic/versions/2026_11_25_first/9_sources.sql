-- Sources: what was said and read. Passages: their pieces, verbatim.

CREATE TABLE sources (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    user_id uuid NOT NULL,
    app_id uuid NOT NULL,
    namespace varchar NOT NULL DEFAULT 'default',
    kind varchar NOT NULL,
    locator varchar NOT NULL,
    language varchar,
    media_type varchar,
    hash varchar,
    bytes bigint,
    object_key varchar,
    title varchar,
    summary varchar,
    metadata jsonb NOT NULL DEFAULT '{}',
    state memory_state NOT NULL DEFAULT 'active',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    closed_at timestamptz,
    deleted_at timestamptz,
    expires_at timestamptz,
    valid_until timestamptz,
    length integer NOT NULL DEFAULT 0,
    infer boolean NOT NULL DEFAULT true,
    captured integer NOT NULL DEFAULT 0,
    CONSTRAINT pk_sources PRIMARY KEY (id),
    CONSTRAINT fk_sources_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT fk_sources_app_id_apps FOREIGN KEY (app_id) REFERENCES apps (id) ON DELETE CASCADE,
    CONSTRAINT ck_sources_kind CHECK (kind IN ('conversation', 'file', 'document')),
    -- Each app has its own sources, so that a name in use reveals nothing to another app.
    CONSTRAINT uq_sources_app_id_namespace_kind_locator UNIQUE (app_id, namespace, kind, locator)
);
CREATE INDEX idx_source_user_updated ON sources (user_id, updated_at, id);
CREATE INDEX idx_source_uncaptured ON sources (updated_at)
    WHERE state = 'active' AND kind = 'conversation' AND infer AND length > captured;
CREATE INDEX idx_source_user_locator ON sources (user_id, kind, locator);
CREATE INDEX idx_source_object ON sources (object_key) WHERE object_key IS NOT NULL;

-- Originals of documents are encrypted with a key of their user, which goes with the user.
CREATE TABLE object_keys (
    user_id uuid NOT NULL,
    wrapped bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_object_keys PRIMARY KEY (user_id),
    CONSTRAINT fk_object_keys_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE
);

-- Objects that nothing refers to any more, or not yet.
CREATE TABLE object_deletions (
    object_key varchar NOT NULL,
    due_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_object_deletions PRIMARY KEY (object_key)
);
CREATE INDEX ix_object_deletions_due_at ON object_deletions (due_at);

-- A trigger, because documents also go with their user and their app.
CREATE FUNCTION sources_delete_object() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO object_deletions (object_key) VALUES (OLD.object_key)
    ON CONFLICT (object_key) DO UPDATE SET due_at = now();
    RETURN NULL;
END
$$;

CREATE TRIGGER delete_object AFTER DELETE ON sources
    FOR EACH ROW WHEN (OLD.object_key IS NOT NULL) EXECUTE FUNCTION sources_delete_object();
CREATE TRIGGER replace_object AFTER UPDATE OF object_key ON sources
    FOR EACH ROW WHEN (OLD.object_key IS NOT NULL AND OLD.object_key IS DISTINCT FROM NEW.object_key)
    EXECUTE FUNCTION sources_delete_object();

-- A passage as it is searched, after its heading or its speaker. The role of an assistant or a user says nothing.
CREATE FUNCTION passage_text(heading text, speaker text, content text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN heading IS NOT NULL THEN heading || ': ' || content
        WHEN lower(speaker) IN ('user', 'assistant', 'system', 'tool', 'human', 'ai') OR speaker IS NULL THEN content
        ELSE speaker || ': ' || content END
$$;

-- The columns that rights and searches need are those of the source. A change of the source changes them too.
CREATE TABLE passages (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    source_id uuid NOT NULL,
    user_id uuid NOT NULL,
    app_id uuid NOT NULL,
    namespace varchar NOT NULL,
    thread_id varchar,
    kind varchar NOT NULL,
    position integer NOT NULL,
    external_id varchar,
    speaker varchar,
    heading varchar,
    first_line integer,
    last_line integer,
    content varchar NOT NULL,
    hash varchar NOT NULL GENERATED ALWAYS AS (md5(passage_text(heading, speaker, content))) STORED,
    metadata jsonb NOT NULL DEFAULT '{}',
    state memory_state NOT NULL DEFAULT 'active',
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    valid_until timestamptz,
    revision integer NOT NULL DEFAULT 1,
    words tsvector NOT NULL,
    word_count integer NOT NULL,
    labels text[] NOT NULL DEFAULT '{}',
    symbols text[] NOT NULL DEFAULT '{}',
    CONSTRAINT pk_passages PRIMARY KEY (id),
    CONSTRAINT fk_passages_source_id_sources FOREIGN KEY (source_id) REFERENCES sources (id) ON DELETE CASCADE,
    CONSTRAINT ck_passages_kind CHECK (kind IN ('turn', 'session', 'text', 'code', 'document')),
    CONSTRAINT uq_passages_source_id_position UNIQUE (source_id, position)
);
-- A client's own id of a message, with which a repeated message is known.
CREATE UNIQUE INDEX uq_passages_external_id ON passages (source_id, external_id) WHERE external_id IS NOT NULL;
CREATE INDEX idx_passage_user_created ON passages (user_id, created_at, id);
CREATE INDEX idx_passage_thread_created ON passages (user_id, thread_id, created_at, id);
CREATE INDEX idx_passage_expiring ON passages (expires_at) WHERE state = 'active' AND expires_at IS NOT NULL;
CREATE INDEX idx_passage_anchored ON passages (user_id, namespace, (metadata ->> 'commit'))
    WHERE state = 'active' AND metadata ->> 'commit' IS NOT NULL;
CREATE INDEX idx_passage_symbols ON passages USING gin (symbols) WHERE symbols <> '{}';
CREATE INDEX idx_passage_lexical ON passages USING gin (lexical_keys(user_id, namespace, words))
    WITH (fastupdate = off) WHERE state = 'active';
ALTER INDEX idx_passage_lexical ALTER COLUMN 1 SET STATISTICS 0;

-- Term frequencies of users and namespaces with many passages.
CREATE TABLE passage_statistics (
    user_id uuid NOT NULL,
    namespace varchar NOT NULL,
    term varchar NOT NULL,
    documents integer NOT NULL,
    words bigint NOT NULL DEFAULT 0,
    CONSTRAINT pk_passage_statistics PRIMARY KEY (user_id, namespace, term),
    CONSTRAINT fk_passage_statistics_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE
);

CREATE FUNCTION passages_derive_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.words := lexical_words((SELECT language FROM lexicon)::regconfig, passage_text(NEW.heading, NEW.speaker, NEW.content));
    NEW.word_count := length(ts_filter(NEW.words, '{a,b,c,d}'));
    RETURN NEW;
END
$$;

CREATE TRIGGER derive_words BEFORE INSERT OR UPDATE OF content, speaker, heading ON passages
    FOR EACH ROW EXECUTE FUNCTION passages_derive_words();
