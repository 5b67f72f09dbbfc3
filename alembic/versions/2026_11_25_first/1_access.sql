-- Extensions, and users, apps, credentials and rules.
--
-- The models in `openmemory.schema.tables` describe the tables of these files. What only PostgreSQL knows stands here
-- alone: functions, triggers, statistics and storage.

CREATE EXTENSION IF NOT EXISTS btree_gin;
CREATE EXTENSION IF NOT EXISTS pg_trgm;

CREATE TABLE users (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    user_id varchar NOT NULL,
    name varchar,
    email varchar,
    metadata jsonb NOT NULL DEFAULT '{}',
    rules_revision bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_users PRIMARY KEY (id),
    CONSTRAINT uq_users_user_id UNIQUE (user_id),
    CONSTRAINT uq_users_email UNIQUE (email)
);

CREATE TABLE apps (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    owner_id uuid NOT NULL,
    name varchar NOT NULL,
    description varchar,
    metadata jsonb NOT NULL DEFAULT '{}',
    is_active boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_apps PRIMARY KEY (id),
    CONSTRAINT uq_apps_owner_id_name UNIQUE (owner_id, name),
    CONSTRAINT fk_apps_owner_id_users FOREIGN KEY (owner_id) REFERENCES users (id) ON DELETE CASCADE
);

CREATE TABLE access_controls (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    user_id uuid NOT NULL,
    subject_type varchar NOT NULL DEFAULT 'app',
    subject_id uuid,
    object_type varchar NOT NULL,
    object_id uuid,
    object_name varchar,
    object_key varchar NOT NULL GENERATED ALWAYS AS (
        CASE WHEN object_type = 'all' THEN 'all' ELSE object_type || ':' || coalesce(object_name, object_id::text) END
    ) STORED,
    effect varchar NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_access_controls PRIMARY KEY (id),
    CONSTRAINT fk_access_controls_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT fk_access_controls_subject_id_apps FOREIGN KEY (subject_id) REFERENCES apps (id) ON DELETE CASCADE,
    CONSTRAINT ck_access_controls_effect CHECK (effect IN ('allow', 'deny')),
    CONSTRAINT ck_access_controls_subject_type CHECK (subject_type = 'app'),
    CONSTRAINT ck_access_controls_object CHECK (
        (object_type = 'all' AND object_id IS NULL AND object_name IS NULL)
        OR (object_type = 'namespace' AND object_id IS NULL AND object_name IS NOT NULL)
        OR (object_type IN ('memory', 'app', 'category') AND object_id IS NOT NULL AND object_name IS NULL)
    )
);
CREATE INDEX idx_access_subject ON access_controls (subject_type, subject_id);
CREATE INDEX idx_access_object ON access_controls (object_type, object_id);
CREATE UNIQUE INDEX idx_access_rule ON access_controls (user_id, object_key, subject_id, effect);
CREATE UNIQUE INDEX idx_access_rule_every_app ON access_controls (user_id, object_key, effect)
    WHERE subject_id IS NULL;
CREATE INDEX idx_access_subject_effect ON access_controls (subject_id, effect, object_key);

CREATE TABLE api_keys (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    prefix varchar NOT NULL,
    hash bytea NOT NULL,
    name varchar NOT NULL,
    user_id uuid,
    app varchar,
    namespaces text[],
    scopes text[] NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by varchar NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz,
    CONSTRAINT pk_api_keys PRIMARY KEY (id),
    CONSTRAINT uq_api_keys_prefix UNIQUE (prefix),
    CONSTRAINT fk_api_keys_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT ck_api_keys_scopes CHECK (scopes <@ ARRAY['read', 'write', 'admin']),
    CONSTRAINT ck_api_keys_hash CHECK (octet_length(hash) = 32)
);
CREATE INDEX ix_api_keys_user_id ON api_keys (user_id);

CREATE UNLOGGED TABLE rate_limits (
    bucket varchar NOT NULL,
    period bigint NOT NULL,
    used integer NOT NULL,
    before integer NOT NULL,
    CONSTRAINT pk_rate_limits PRIMARY KEY (bucket)
);
