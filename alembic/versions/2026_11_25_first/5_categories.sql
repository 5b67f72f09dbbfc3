-- Categories.

CREATE TABLE categories (
    id uuid NOT NULL DEFAULT gen_random_uuid(),
    name varchar NOT NULL,
    description varchar,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_categories PRIMARY KEY (id),
    CONSTRAINT uq_categories_name UNIQUE (name)
);
CREATE INDEX idx_categories_described ON categories (name) WHERE description IS NOT NULL;

CREATE TABLE category_descriptions (
    user_id uuid NOT NULL,
    category_id uuid NOT NULL,
    description varchar NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_category_descriptions PRIMARY KEY (user_id, category_id),
    CONSTRAINT fk_category_descriptions_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE,
    CONSTRAINT fk_category_descriptions_category_id_categories FOREIGN KEY (category_id) REFERENCES categories (id)
        ON DELETE CASCADE
);
CREATE INDEX idx_category_descriptions_category ON category_descriptions (category_id);

-- `user_id` and `app_id` are those of the memory, so that counts need not read memories.
CREATE TABLE memory_categories (
    memory_id uuid NOT NULL,
    category_id uuid NOT NULL,
    user_id uuid NOT NULL,
    app_id uuid NOT NULL,
    automatic boolean NOT NULL DEFAULT false,
    CONSTRAINT pk_memory_categories PRIMARY KEY (memory_id, category_id),
    CONSTRAINT fk_memory_categories_memory_id_memories FOREIGN KEY (memory_id) REFERENCES memories (id)
        ON DELETE CASCADE,
    CONSTRAINT fk_memory_categories_category_id_categories FOREIGN KEY (category_id) REFERENCES categories (id)
        ON DELETE CASCADE
);
CREATE INDEX idx_memory_category ON memory_categories (user_id, category_id, memory_id) INCLUDE (app_id);

CREATE FUNCTION memory_categories_set_owner() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT user_id, app_id INTO NEW.user_id, NEW.app_id FROM memories WHERE id = NEW.memory_id;
    RETURN NEW;
END
$$;

CREATE TRIGGER set_owner BEFORE INSERT ON memory_categories
    FOR EACH ROW WHEN (NEW.user_id IS NULL OR NEW.app_id IS NULL) EXECUTE FUNCTION memory_categories_set_owner();

-- The memories that wait for the category assignment job.
CREATE TABLE pending_categorizations (
    memory_id uuid NOT NULL,
    due_at timestamptz NOT NULL DEFAULT now(),
    attempts integer NOT NULL DEFAULT 0,
    last_error varchar,
    CONSTRAINT pk_pending_categorizations PRIMARY KEY (memory_id),
    CONSTRAINT fk_pending_categorizations_memory_id_memories FOREIGN KEY (memory_id) REFERENCES memories (id)
        ON DELETE CASCADE
);
CREATE INDEX idx_pending_categorizations_due ON pending_categorizations (due_at, memory_id);

-- The users whose memories need category assignment again.
CREATE TABLE reclassification_requests (
    user_id uuid NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_reclassification_requests PRIMARY KEY (user_id),
    CONSTRAINT fk_reclassification_requests_user_id_users FOREIGN KEY (user_id) REFERENCES users (id) ON DELETE CASCADE
);
