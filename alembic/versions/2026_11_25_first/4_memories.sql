-- Memories, their history, and the access log.

CREATE TYPE memory_state AS ENUM ('active', 'paused', 'archived', 'deleted');

-- The keys of a text of key-value facts (`key=value | key=value`), in lower case. A plain expression, so that the
-- planner inlines it.
CREATE FUNCTION key_value_keys(content text) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 1000 AS $$
    SELECT string_to_array(
        lower(btrim(regexp_replace(content, '\s*=[^|]*(\|\s*)?', '|', 'g'), E' \t\r\n|')), '|'
    )
$$;

CREATE TABLE memories (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    user_id uuid NOT NULL,
    app_id uuid NOT NULL,
    content varchar NOT NULL,
    metadata jsonb NOT NULL DEFAULT '{}',
    state memory_state NOT NULL DEFAULT 'active',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    archived_at timestamptz,
    deleted_at timestamptz,
    namespace varchar NOT NULL DEFAULT 'default',
    thread_id varchar,
    kind varchar NOT NULL DEFAULT 'memory',
    key varchar,
    importance double precision,
    hash varchar NOT NULL,
    expires_at timestamptz,
    valid_from timestamptz,
    valid_until timestamptz,
    superseded_by uuid,
    revision integer NOT NULL DEFAULT 1,
    words tsvector NOT NULL,
    word_count integer NOT NULL,
    folded varchar GENERATED ALWAYS AS (lower(content)) STORED,
    labels text[] NOT NULL DEFAULT '{}',
    CONSTRAINT pk_memories PRIMARY KEY (id),
    CONSTRAINT fk_memories_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT fk_memories_app_id_apps FOREIGN KEY (app_id) REFERENCES apps (id) ON DELETE CASCADE,
    CONSTRAINT fk_memories_superseded_by_memories FOREIGN KEY (superseded_by) REFERENCES memories (id)
        ON DELETE SET NULL,
    CONSTRAINT ck_memories_revision CHECK (revision >= 1)
);

-- No exact duplicates: no two identical active texts of the same user, namespace and app.
CREATE UNIQUE INDEX uq_memories_active_text ON memories (user_id, namespace, app_id, hash) WHERE state = 'active';
CREATE INDEX ix_memories_superseded_by ON memories (superseded_by);

-- Lists are counted and paged with these indexes only.
CREATE INDEX idx_memory_user_created ON memories (user_id, created_at, id)
    INCLUDE (state, app_id, expires_at, valid_until, updated_at, importance, archived_at, deleted_at, namespace, kind);
CREATE INDEX idx_memory_app_created ON memories (app_id, created_at, id)
    INCLUDE (user_id, state, expires_at, valid_until, namespace);
CREATE INDEX idx_memory_thread_created ON memories (user_id, thread_id, created_at, id)
    INCLUDE (state, expires_at, valid_until, namespace)
    WHERE thread_id IS NOT NULL;
CREATE INDEX idx_memory_maybe_hidden ON memories (user_id, id)
    INCLUDE (state, expires_at, valid_until, namespace)
    WHERE state <> 'active' OR expires_at IS NOT NULL OR valid_until IS NOT NULL;

-- Texts in the order of their bytes: those that fit into an index, and the beginnings of the longer ones.
CREATE INDEX idx_memory_text ON memories (user_id, content text_pattern_ops, id)
    INCLUDE (state, app_id, created_at, expires_at, valid_until, namespace, folded)
    WHERE octet_length(content) <= 400;
CREATE INDEX idx_memory_long_text ON memories (user_id, left(content, 100) text_pattern_ops, id)
    WHERE octet_length(content) > 400;
-- Tells the planner how many texts are short.
CREATE STATISTICS memory_text_length ON (octet_length(content)) FROM memories;

-- Text search: by lexeme, and by any part of a text.
CREATE INDEX idx_memory_lexical ON memories USING gin (lexical_keys(user_id, namespace, words))
    WITH (fastupdate = off) WHERE state = 'active';
-- Its values are hashes, of no use for a plan.
ALTER INDEX idx_memory_lexical ALTER COLUMN 1 SET STATISTICS 0;
CREATE INDEX idx_memory_content_trigram ON memories USING gin (user_id, content gin_trgm_ops)
    WITH (fastupdate = off) WHERE state = 'active';
-- With a pending list (fastupdate), so that pausing many memories stays fast.
CREATE INDEX idx_memory_inactive_trigram ON memories USING gin (user_id, content gin_trgm_ops)
    WHERE state IN ('paused', 'archived');

-- Filters and jobs.
CREATE INDEX idx_memory_metadata ON memories USING gin (user_id, metadata jsonb_path_ops)
    WITH (fastupdate = off) WHERE state = 'active' AND metadata <> '{}'::jsonb;
CREATE INDEX idx_memory_key_values ON memories USING gin (app_id, key_value_keys(content))
    WITH (fastupdate = off)
    WHERE state = 'active' AND length(content) <= 4096
        AND content ~ '^\s*[^\s=|]+\s*=[^|]*(\|\s*[^\s=|]+\s*=[^|]*)*$';
CREATE INDEX idx_memory_idle ON memories (user_id, updated_at) WHERE state = 'active';
CREATE INDEX idx_memory_expiring ON memories (user_id, expires_at, id)
    WHERE state = 'active' AND expires_at IS NOT NULL;
CREATE INDEX idx_memory_flagged ON memories (user_id, created_at, id) WHERE labels <> '{}'::text[];

-- The state of a namespace, and its values by key.
CREATE INDEX idx_memory_project ON memories (user_id, namespace, kind, key)
    WHERE state = 'active' AND kind IN ('state', 'keyed');
-- Memories that belong to a commit.
CREATE INDEX idx_memory_anchored ON memories (user_id, namespace, (metadata ->> 'commit'))
    WHERE state = 'active' AND metadata ->> 'commit' IS NOT NULL;

-- No search finds the state of a project.
CREATE FUNCTION memories_derive_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.words := CASE WHEN NEW.kind = 'state' THEN ''
        ELSE lexical_words((SELECT language FROM lexicon)::regconfig, NEW.content) END;
    NEW.word_count := length(ts_filter(NEW.words, '{a,b,c,d}'));
    RETURN NEW;
END
$$;

CREATE TRIGGER derive_words BEFORE INSERT OR UPDATE OF content ON memories
    FOR EACH ROW EXECUTE FUNCTION memories_derive_words();

CREATE TABLE memory_revisions (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    memory_id uuid NOT NULL,
    revision integer NOT NULL,
    old_text varchar,
    new_text varchar NOT NULL,
    metadata jsonb NOT NULL DEFAULT '{}',
    changed_by uuid NOT NULL,
    app_id uuid,
    changed_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_memory_revisions PRIMARY KEY (id),
    CONSTRAINT uq_memory_revisions_memory_id_revision UNIQUE (memory_id, revision),
    CONSTRAINT fk_memory_revisions_memory_id_memories FOREIGN KEY (memory_id) REFERENCES memories (id)
        ON DELETE CASCADE
);
CREATE INDEX idx_revision_user_time ON memory_revisions (changed_by, changed_at) WHERE revision > 1;

CREATE TABLE memory_status_history (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    memory_id uuid NOT NULL,
    changed_by uuid NOT NULL,
    app_id uuid,
    old_state memory_state,
    new_state memory_state NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    reason varchar,
    CONSTRAINT pk_memory_status_history PRIMARY KEY (id),
    CONSTRAINT fk_memory_status_history_memory_id_memories FOREIGN KEY (memory_id) REFERENCES memories (id)
        ON DELETE CASCADE,
    CONSTRAINT fk_memory_status_history_changed_by_users FOREIGN KEY (changed_by) REFERENCES users (id)
        ON DELETE CASCADE
);
CREATE INDEX idx_history_memory_state ON memory_status_history (memory_id, new_state);
CREATE INDEX idx_history_user_time ON memory_status_history (changed_by, changed_at);

-- What a change replaced, for a short time, so that it can be undone.
CREATE TABLE memory_undo (
    action uuid NOT NULL,
    memory_id uuid NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    state memory_state NOT NULL,
    archived_at timestamptz,
    deleted_at timestamptz,
    expires_at timestamptz,
    valid_until timestamptz,
    superseded_by uuid,
    category_id uuid,
    revision integer NOT NULL,
    CONSTRAINT pk_memory_undo PRIMARY KEY (action, memory_id),
    CONSTRAINT fk_memory_undo_memory_id_memories FOREIGN KEY (memory_id) REFERENCES memories (id) ON DELETE CASCADE
);
CREATE INDEX ix_memory_undo_memory_id ON memory_undo (memory_id);
CREATE INDEX ix_memory_undo_changed_at ON memory_undo (changed_at);

-- Near duplicates that the user keeps.
CREATE TABLE kept_pairs (
    first uuid NOT NULL,
    second uuid NOT NULL,
    kept_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_kept_pairs PRIMARY KEY (first, second),
    CONSTRAINT ck_kept_pairs_order CHECK (first < second),
    CONSTRAINT fk_kept_pairs_first_memories FOREIGN KEY (first) REFERENCES memories (id) ON DELETE CASCADE,
    CONSTRAINT fk_kept_pairs_second_memories FOREIGN KEY (second) REFERENCES memories (id) ON DELETE CASCADE
);
CREATE INDEX ix_kept_pairs_second ON kept_pairs (second);

CREATE TABLE archive_policies (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    user_id uuid NOT NULL,
    criteria_type varchar NOT NULL,
    criteria_id uuid,
    criteria_name varchar,
    action varchar NOT NULL DEFAULT 'archive',
    days_to_archive integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_archive_policies PRIMARY KEY (id),
    CONSTRAINT fk_archive_policies_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT ck_archive_policies_days CHECK (days_to_archive BETWEEN 1 AND 36500),
    CONSTRAINT ck_archive_policies_action CHECK (action IN ('archive', 'expire')),
    CONSTRAINT ck_archive_policies_criteria CHECK (
        (criteria_type = 'user' AND criteria_id = user_id AND criteria_name IS NULL)
        OR (criteria_type IN ('app', 'category') AND criteria_id IS NOT NULL AND criteria_name IS NULL)
        OR (criteria_type = 'namespace' AND criteria_id IS NULL AND criteria_name IS NOT NULL)
    )
);
CREATE INDEX idx_policy_criteria ON archive_policies (criteria_type, criteria_id);
CREATE UNIQUE INDEX uq_archive_policies_criteria ON archive_policies (user_id, criteria_type, criteria_id, action)
    WHERE criteria_id IS NOT NULL;
CREATE UNIQUE INDEX uq_archive_policies_namespace ON archive_policies (user_id, criteria_name, action)
    WHERE criteria_name IS NOT NULL;

CREATE TABLE memory_access_logs (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    memory_id uuid NOT NULL,
    app_id uuid,
    app_name varchar,
    accessed_at timestamptz NOT NULL DEFAULT now(),
    imported_at timestamptz,
    access_type varchar NOT NULL,
    namespaces text[],
    metadata jsonb NOT NULL DEFAULT '{}',
    CONSTRAINT pk_memory_access_logs PRIMARY KEY (id),
    CONSTRAINT fk_memory_access_logs_memory_id_memories FOREIGN KEY (memory_id) REFERENCES memories (id)
        ON DELETE CASCADE,
    CONSTRAINT fk_memory_access_logs_app_id_apps FOREIGN KEY (app_id) REFERENCES apps (id) ON DELETE CASCADE
);
CREATE INDEX idx_access_memory_time ON memory_access_logs (memory_id, accessed_at);
CREATE INDEX idx_access_app_memory ON memory_access_logs (app_id, memory_id, accessed_at);
CREATE INDEX idx_access_time ON memory_access_logs USING brin (accessed_at) WHERE imported_at IS NULL;
CREATE INDEX idx_access_imported ON memory_access_logs USING brin (imported_at) WHERE imported_at IS NOT NULL;
