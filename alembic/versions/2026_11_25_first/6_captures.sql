-- Captures.

CREATE TABLE captures (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    user_id uuid NOT NULL,
    app_id uuid NOT NULL,
    namespace varchar NOT NULL,
    status varchar NOT NULL DEFAULT 'pending',
    input jsonb NOT NULL,
    options jsonb NOT NULL DEFAULT '{}',
    principal jsonb NOT NULL DEFAULT '{}',
    hash varchar NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    bad_answers integer NOT NULL DEFAULT 0,
    due_at timestamptz NOT NULL DEFAULT now(),
    holder uuid,
    error varchar,
    operations jsonb NOT NULL DEFAULT '[]',
    refused jsonb NOT NULL DEFAULT '[]',
    memory_ids uuid[] NOT NULL DEFAULT '{}',
    model varchar,
    calls integer NOT NULL DEFAULT 0,
    prompt_tokens integer NOT NULL DEFAULT 0,
    completion_tokens integer NOT NULL DEFAULT 0,
    seconds double precision NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz,
    CONSTRAINT pk_captures PRIMARY KEY (id),
    CONSTRAINT fk_captures_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT fk_captures_app_id_apps FOREIGN KEY (app_id) REFERENCES apps (id) ON DELETE CASCADE,
    CONSTRAINT ck_captures_status CHECK (status IN ('pending', 'working', 'done', 'failed', 'undone'))
);
CREATE INDEX idx_capture_user_created ON captures (user_id, created_at, id);
CREATE INDEX idx_capture_hash ON captures (app_id, hash, created_at);
CREATE INDEX idx_capture_due ON captures (due_at, created_at) WHERE status IN ('pending', 'working');
CREATE INDEX idx_capture_working ON captures (user_id, namespace) WHERE status = 'working';
CREATE INDEX idx_capture_finished ON captures (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX idx_capture_memories ON captures USING gin (memory_ids);

CREATE TABLE capture_usage (
    app_id uuid NOT NULL,
    day date NOT NULL,
    namespace varchar NOT NULL,
    user_id uuid NOT NULL,
    calls bigint NOT NULL DEFAULT 0,
    prompt_tokens bigint NOT NULL DEFAULT 0,
    completion_tokens bigint NOT NULL DEFAULT 0,
    seconds double precision NOT NULL DEFAULT 0,
    done bigint NOT NULL DEFAULT 0,
    failed bigint NOT NULL DEFAULT 0,
    undone bigint NOT NULL DEFAULT 0,
    CONSTRAINT pk_capture_usage PRIMARY KEY (app_id, day, namespace),
    CONSTRAINT fk_capture_usage_app_id_apps FOREIGN KEY (app_id) REFERENCES apps (id) ON DELETE CASCADE,
    CONSTRAINT fk_capture_usage_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE
);
CREATE INDEX idx_capture_usage_user_day ON capture_usage (user_id, day);

CREATE TABLE idempotency_keys (
    app_id uuid NOT NULL,
    principal varchar NOT NULL,
    key varchar NOT NULL,
    fingerprint varchar NOT NULL,
    memory_id uuid,
    capture_id uuid,
    answer jsonb NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_idempotency_keys PRIMARY KEY (app_id, principal, key),
    CONSTRAINT fk_idempotency_keys_app_id_apps FOREIGN KEY (app_id) REFERENCES apps (id) ON DELETE CASCADE,
    CONSTRAINT fk_idempotency_keys_memory_id_memories FOREIGN KEY (memory_id) REFERENCES memories (id)
        ON DELETE CASCADE,
    CONSTRAINT fk_idempotency_keys_capture_id_captures FOREIGN KEY (capture_id) REFERENCES captures (id)
        ON DELETE CASCADE
);
CREATE INDEX idx_idempotency_keys_memory_id ON idempotency_keys (memory_id) WHERE memory_id IS NOT NULL;
CREATE INDEX idx_idempotency_keys_capture_id ON idempotency_keys (capture_id) WHERE capture_id IS NOT NULL;
CREATE INDEX idx_idempotency_keys_created ON idempotency_keys (created_at);
