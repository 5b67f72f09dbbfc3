-- Audit log.

CREATE TABLE audit_events (
    id bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    event varchar NOT NULL,
    result varchar NOT NULL DEFAULT 'ok',
    principal varchar NOT NULL,
    principal_name varchar NOT NULL,
    door varchar NOT NULL,
    address varchar,
    request varchar,
    user_id uuid,
    app_id uuid,
    objects uuid[],
    count integer NOT NULL DEFAULT 0,
    detail jsonb,
    CONSTRAINT pk_audit_events PRIMARY KEY (id)
);
CREATE INDEX ix_audit_events_user_id ON audit_events (user_id, id);
CREATE INDEX ix_audit_events_event ON audit_events (event, id);
CREATE INDEX ix_audit_events_refused ON audit_events (id) WHERE result <> 'ok';

-- Events can be removed after 30 days and never changed.
CREATE FUNCTION audit_events_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.at < now() - interval '30 days' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'audit_events is append-only: % is refused', TG_OP USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit_events
    FOR EACH ROW EXECUTE FUNCTION audit_events_append_only();
CREATE TRIGGER append_only_truncate BEFORE TRUNCATE ON audit_events
    FOR EACH STATEMENT EXECUTE FUNCTION audit_events_append_only();
-- Sessions that apply another server's changes fire these, too. The other triggers derive values that such a session
-- already has from the other server.
ALTER TABLE audit_events ENABLE ALWAYS TRIGGER append_only;
ALTER TABLE audit_events ENABLE ALWAYS TRIGGER append_only_truncate;
