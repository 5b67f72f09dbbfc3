"""Makes a store for the tests of upgrades: a dump of a database in which every table has a row.

Run it in a checkout of the version that the store is to be of:

    python -m tests.migrations.making tests/migrations/stores/NAME.sql.gz

Stores are kept for ever, so make one when a month ends, not when a test changes.
"""

from __future__ import annotations

import asyncio
import gzip
import shutil
import subprocess
import sys
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.engine import make_url

from openmemory.config.settings import Settings
from openmemory.database.engine import Tx
from openmemory.embedded.binaries import installed
from openmemory.services import Services, open_services
from tests.backup.test_round_trip import populate
from tests.folders import new_folder

USER = "ada"

_REST = """
INSERT INTO api_keys (user_id, prefix, hash, name, scopes, created_by)
    SELECT id, 'made-' || id, sha256(CAST(user_id AS bytea)), 'of a store', '{read}', 'local' FROM users;
INSERT INTO browser_sessions (hash, key_id, credential, expires_at) SELECT hash, id, hash, now() FROM api_keys;
INSERT INTO rate_limits VALUES ('made', 1, 1, 0);
INSERT INTO memory_undo (action, memory_id, state, revision) SELECT gen_random_uuid(), id, state, 1 FROM memories;
INSERT INTO kept_pairs (first, second)
    SELECT a.id, b.id FROM memories AS a JOIN memories AS b ON a.id < b.id AND a.user_id = b.user_id;
INSERT INTO anchors (user_id, namespace, head, commit, reachable) SELECT id, 'webshop', 'a', 'b', true FROM users;
INSERT INTO projects (user_id, app_id, namespace, name)
    SELECT owner_id, id, 'webshop', 'The shop' FROM apps;
INSERT INTO read_usage SELECT id, current_date, 'webshop', 'mem_search', owner_id, 1, 1, 1, 1, 1, 1, 1 FROM apps;
INSERT INTO capture_usage (app_id, day, namespace, user_id) SELECT id, current_date, 'webshop', owner_id FROM apps;
INSERT INTO idempotency_keys (app_id, principal, key, fingerprint, memory_id)
    SELECT app_id, 'local', 'made', 'made', id FROM memories;
INSERT INTO configs (key, value) VALUES ('made', '{"made": true}');
INSERT INTO pending_categorizations (memory_id) SELECT id FROM memories;
INSERT INTO pending_comparisons (memory_id) SELECT id FROM memories;
INSERT INTO near_memories (newer, older, user_id, newer_hash, older_hash, probability, said_at)
    SELECT a.id, b.id, a.user_id, a.hash, b.hash, 0.5, a.created_at
    FROM memories AS a JOIN memories AS b ON a.id < b.id AND a.user_id = b.user_id;
INSERT INTO reclassification_requests (user_id) SELECT id FROM users;
INSERT INTO object_deletions (object_key) VALUES ('made');
INSERT INTO index_outbox (kind, id, user_id) SELECT 'memory', id, user_id FROM memories;
INSERT INTO index_beats (writer, beat) VALUES (gen_random_uuid(), 1);
INSERT INTO index_lease (holder) VALUES ('made');
INSERT INTO sync_runs (trigger, finished_at) VALUES ('manual', now());
INSERT INTO mcp_sessions (id, holder) VALUES (gen_random_uuid(), 1);
INSERT INTO mcp_messages (session_id, sender, ticket, body) SELECT id, 1, 1, 'made' FROM mcp_sessions;
INSERT INTO lexical_statistics SELECT id, 'webshop', 'made', 1, 1 FROM users;
INSERT INTO passage_statistics SELECT id, 'webshop', 'made', 1, 1 FROM users;
"""

_TABLES = text("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace")


async def make() -> bytes:
    """Returns the dump of a database with rows in every table."""
    parent = new_folder()
    parent.chmod(0o755)
    try:
        settings = Settings(data_dir=str(parent / "data"), port=0)
        async with open_services(settings) as services:
            await populate(services, USER)
            await services.outbox_delivery.stop()
            return await _dump(services)
    finally:
        shutil.rmtree(parent)


async def add_rest(tx: Tx) -> None:
    """Adds rows to the tables that a user fills with time, or that jobs fill."""
    for statement in _REST.strip().split(";\n"):
        await tx.execute(text(f"{statement.rstrip(';')} ON CONFLICT DO NOTHING"))


async def _dump(services: Services) -> bytes:
    async with services.database.transaction() as tx:
        await add_rest(tx)
    async with services.database.transaction() as tx:
        for table in (await tx.scalars(_TABLES)).all():
            if not await tx.scalar(text(f"SELECT EXISTS (SELECT FROM {table})")):
                raise SystemExit(f"{table} has no row: add one to _REST or to `populate`")
    url = make_url(services.database.url).set(drivername="postgresql").render_as_string(hide_password=False)
    command = [installed().program("pg_dump"), "--no-owner", "--no-privileges", "--dbname", url]
    return (await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.PIPE)).stdout


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(gzip.compress(asyncio.run(make()), mtime=0))
