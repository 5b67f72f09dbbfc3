-- Projects: a namespace with a name, and the repository that it comes from. Rights are decided as for memories.

CREATE TABLE projects (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    user_id uuid NOT NULL,
    app_id uuid NOT NULL,
    namespace varchar NOT NULL,
    name varchar NOT NULL,
    root varchar,
    repo varchar,
    head varchar,
    branch varchar,
    metadata jsonb NOT NULL DEFAULT '{}',
    state memory_state NOT NULL DEFAULT 'active',
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz,
    valid_until timestamptz,
    CONSTRAINT pk_projects PRIMARY KEY (id),
    CONSTRAINT uq_projects_user_id_namespace UNIQUE (user_id, namespace),
    CONSTRAINT fk_projects_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT fk_projects_app_id_apps FOREIGN KEY (app_id) REFERENCES apps (id) ON DELETE CASCADE
);
CREATE INDEX ix_projects_app_id ON projects (app_id);

-- Links between memories: `from_id` is `rel` of `to_id`.

CREATE TABLE memory_links (
    from_id uuid NOT NULL,
    rel varchar NOT NULL,
    to_id uuid NOT NULL,
    user_id uuid NOT NULL,
    app_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_memory_links PRIMARY KEY (from_id, rel, to_id),
    CONSTRAINT ck_memory_links_ends CHECK (from_id <> to_id),
    CONSTRAINT fk_memory_links_from_id_memories FOREIGN KEY (from_id) REFERENCES memories (id) ON DELETE CASCADE,
    CONSTRAINT fk_memory_links_to_id_memories FOREIGN KEY (to_id) REFERENCES memories (id) ON DELETE CASCADE,
    CONSTRAINT fk_memory_links_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT fk_memory_links_app_id_apps FOREIGN KEY (app_id) REFERENCES apps (id) ON DELETE CASCADE
);
CREATE INDEX ix_memory_links_to_id ON memory_links (to_id);
CREATE INDEX ix_memory_links_user_id ON memory_links (user_id);
CREATE INDEX ix_memory_links_app_id ON memory_links (app_id);

-- Commits that memories belong to, compared with the commit of a checkout.

CREATE TABLE anchors (
    user_id uuid NOT NULL,
    namespace varchar NOT NULL,
    head varchar NOT NULL,
    commit varchar NOT NULL,
    reachable boolean NOT NULL,
    checked_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_anchors PRIMARY KEY (user_id, namespace, head, commit),
    CONSTRAINT fk_anchors_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE
);

-- The tokens that context packs gave to each app, by day, project and kind of request. No query is kept.
CREATE TABLE read_usage (
    app_id uuid NOT NULL,
    day date NOT NULL,
    namespace varchar NOT NULL,
    tool varchar NOT NULL,
    user_id uuid NOT NULL,
    calls bigint NOT NULL,
    items bigint NOT NULL,
    candidates bigint NOT NULL,
    used bigint NOT NULL,
    saved bigint NOT NULL,
    truncated bigint NOT NULL,
    dropped bigint NOT NULL,
    CONSTRAINT pk_read_usage PRIMARY KEY (app_id, day, namespace, tool),
    CONSTRAINT fk_read_usage_app_id_apps FOREIGN KEY (app_id) REFERENCES apps (id) ON DELETE CASCADE,
    CONSTRAINT fk_read_usage_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE
);
CREATE INDEX idx_read_usage_user ON read_usage (user_id, day);
