"""Several users with everything that could leak between them, and a plain model of who may see and touch what.

Every text, name and id of the world is known to it, so that whatever an answer holds can be traced to whose it is.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from sqlalchemy import text

from openmemory.access.schemas import GrantCreate, KeyCreate, KeyCreated
from openmemory.errors import Invalid
from openmemory.identity.principal import LOCAL, Scope
from openmemory.memories.schemas import MemoryCreate
from openmemory.memories.state import State
from openmemory.projects.schemas import NewCheckpoint, NewValue
from openmemory.services import Services
from openmemory.slack.schemas import ChannelPart, SlackMessage
from openmemory.sources.schemas import NewDocument, NewFile, NewMessage, NewMessages, NewSession
from tests.sources.text_extraction.documents import send_document

USERS, APPS, MEMORIES, RULES = 4, 3, 14, 7
THREADS, TURNS = 3, 2
SESSIONS = 2
VALUES = 3
LINKS = 6
CHANNELS = ("general", "secret")

TOKEN = re.compile("tk[0-9a-f]{12}|c0ffee[0-9a-f]{34}")
ID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")

READ_WRITE = frozenset({Scope.READ, Scope.WRITE})
EVERY_SCOPE = frozenset(Scope)


@dataclass(frozen=True)
class Actor:
    """A principal, as the model sees it. `key` is what it sends; an actor that is not valid may do nothing."""

    name: str
    key: str | None
    user: str | None = None
    app: str | None = None
    namespaces: tuple[str, ...] | None = None
    scopes: frozenset[Scope] = READ_WRITE
    valid: bool = True

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}

    @property
    def administers(self) -> bool:
        """Returns True if it manages what concerns every user, because nothing bounds its scope admin."""
        return Scope.ADMIN in self.scopes and (self.user, self.app, self.namespaces) == (None, None, None)

    def manages(self, other: Actor) -> bool:
        """Returns True if it may make, see, replace and end this key, which then reaches no further than its own."""
        spaces = None if other.namespaces is None else set(other.namespaces)
        return (
            Scope.ADMIN in self.scopes
            and self.user in (None, other.user)
            and self.app in (None, other.app)
            and (self.namespaces is None or (spaces is not None and spaces <= set(self.namespaces)))
        )


@dataclass(frozen=True)
class Row:
    """A memory, or a message of a conversation, as PostgreSQL has it now."""

    id: str
    user: str
    app: str
    namespace: str
    state: str
    expired: bool
    categories: frozenset[str]
    tokens: frozenset[str]
    revision: int
    marks: str
    thread: str | None = None
    """The thread of a message, or the path of a file; None: it is a memory."""
    source: str | None = None
    """The id of its conversation, file or document."""
    changers: frozenset[str] = frozenset()
    """The apps that wrote its present text or changed its state."""
    writers: frozenset[str] = frozenset()
    """The apps that added it, or wrote its present text or metadata: rules that deny one of them hide it."""
    authors: frozenset[str] = frozenset()
    """The apps whose its present text is: rules that allow one of them show it."""

    @property
    def is_registration(self) -> bool:
        """True if it is the registration of a project."""
        return self.thread is not None and self.source is None


@dataclass(frozen=True)
class Rule:
    id: str
    user: str
    app: str | None
    effect: str
    key: str


@dataclass
class World:
    """What there is. `load` reads it anew; everything else is a plain look-up."""

    services: Services
    users: list[str] = field(default_factory=list)
    actors: list[Actor] = field(default_factory=list)
    keys: dict[str, Actor] = field(default_factory=dict)
    """Id of a key that may be replaced and revoked → whose it is. Nobody asks with it."""
    rows: dict[str, Row] = field(default_factory=dict)
    rules: list[Rule] = field(default_factory=list)
    apps: dict[str, tuple[str, str, bool]] = field(default_factory=dict)
    documents: dict[str, str] = field(default_factory=dict)
    """Id of a document → user."""
    """App id → user, name, active."""
    names: dict[str, str] = field(default_factory=dict)
    """Token in the name of a user, app, namespace or category → user."""
    owner_of: dict[str, str] = field(default_factory=dict)
    """Any id or token that ever was → its user; what belongs to a memory is looked up in `memory_of` first."""
    memory_of: dict[str, str] = field(default_factory=dict)
    """Id or token of a memory that ever was → the memory's id."""
    captures: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Id of a capture, or token of what was said → user, app, namespace."""
    queries: dict[str, tuple[str, frozenset[str] | None]] = field(default_factory=dict)
    """Token of what was searched for → user, and the namespaces that were looked through; None: all."""
    namespaces: dict[str, list[str]] = field(default_factory=dict)
    categories: dict[str, list[str]] = field(default_factory=dict)

    async def load(self) -> None:
        """Read everything again: what was done may have changed it."""
        async with self.services.database.statement() as tx:
            mine = {"users": self.users}
            rows = (await tx.execute(_ROWS, mine)).all()
            rules = (await tx.execute(_RULES, mine)).all()
            apps = (await tx.execute(_APPS, mine)).all()
            documents = (await tx.execute(_DOCUMENTS, mine)).all()
        self.rows = {}
        for row in rows:
            id_ = str(row.id)
            categories = {token for name in row.categories for token in TOKEN.findall(name)}
            tokens = frozenset(TOKEN.findall(row.told)) - self.names.keys()
            self.rows[id_] = Row(
                id_, row.user, row.app, row.namespace, row.state, row.expired, frozenset(row.categories), tokens,
                row.revision, row.marks, row.thread, row.source and str(row.source),
                frozenset(row.changers), frozenset(row.writers), frozenset(row.authors),
            )  # fmt: skip
            for each in (id_, *tokens):
                self.owner_of[each] = row.user
                self.memory_of[each] = id_
            for token in categories:
                self.owner_of.setdefault(token, row.user)
        self.rules = [Rule(str(r.id), r.user, r.app, r.effect, r.key) for r in rules]
        for rule in self.rules:
            self.owner_of[rule.id] = rule.user
        self.documents = {str(d.id): d.user for d in documents}
        self.owner_of |= self.documents
        self.apps = {str(a.id): (a.user, a.name, a.is_active) for a in apps}
        for id_, (user, _, _) in self.apps.items():
            self.owner_of[id_] = user

    async def everybody(self) -> set[tuple[str, str | None]]:
        """Every user there is with each of their apps, of this world or not."""
        async with self.services.database.statement() as tx:
            return {(row.user, row.app) for row in await tx.execute(_EVERYBODY)}

    def is_active(self, user: str, app: str) -> bool:
        """Whether an app is not paused. One that the user does not have is as a new one."""
        app_id = self.app_id(user, app)
        return app_id is None or self.apps[app_id][2]

    def app_id(self, user: str, name: str) -> str | None:
        return next((id_ for id_, (owner, app, _) in self.apps.items() if (owner, app) == (user, name)), None)

    def allowed(self, user: str, app: str, row: Row) -> bool:
        """Whether the rules let an app have to do with a memory: its own rules first, deny before allow, then all."""
        if not self.is_active(user, app):
            return False
        mine = [rule for rule in self.rules if rule.user == user]
        for subject in (app, None):
            effects = {rule.effect for rule in mine if rule.app == subject and self._speaks(rule, row)}
            if effects:
                return "deny" not in effects
        return not any(rule.app == app and rule.effect == "allow" for rule in mine)

    def _speaks(self, rule: Rule, row: Row) -> bool:
        sort, _, what = rule.key.partition(":")
        apps = row.writers if rule.effect == "deny" else row.authors
        return {
            "all": True,
            "memory": what == row.id,
            "app": what in {self.app_id(row.user, app) for app in apps},
            "namespace": what == row.namespace,
            "category": what in row.categories,
        }[sort]

    def reaches(self, actor: Actor, user: str, app: str | None, row: Row) -> bool:
        """Whether an actor who speaks as `app` (None: as the user) has to do with a memory, in whatever state."""
        if row.user != user or (actor.namespaces is not None and row.namespace not in actor.namespaces):
            return False
        return app is None or self.allowed(user, app, row)

    def readable(self, actor: Actor, user: str, app: str | None) -> set[str]:
        """The ids of the memories that an actor may read, speaking for `user` as `app`."""
        return {
            row.id
            for row in self.rows.values()
            if self.reaches(actor, user, app, row) and not row.expired and (app is None or row.state == State.ACTIVE)
        }


_ROWS = text("""
SELECT m.id, u.user_id AS user, a.name AS app, m.namespace, m.state::text AS state,
       coalesce(m.expires_at <= now(), false) AS expired, m.revision,
       array(SELECT c.name FROM memory_categories mc JOIN categories c ON c.id = mc.category_id
             WHERE mc.memory_id = m.id) AS categories,
       concat_ws(' ', m.content, m.metadata, m.key, m.thread_id, m.kind) AS told,
       -- What has expired a job archives in its own time, and another one assigns categories.
       md5(concat_ws('|', m.content, m.metadata, CASE WHEN m.expires_at <= now() THEN 'over' ELSE m.state::text END,
           m.namespace, m.revision,
           array(SELECT category_id FROM memory_categories mc
                 WHERE mc.memory_id = m.id AND NOT mc.automatic ORDER BY 1))) AS marks,
       NULL AS thread, m.content, NULL AS source,
       array(SELECT b.name FROM memory_revisions r JOIN apps b ON b.id = r.app_id
             WHERE r.memory_id = m.id AND r.revision = m.revision
             UNION SELECT b.name FROM memory_status_history h JOIN apps b ON b.id = h.app_id
             WHERE h.memory_id = m.id) AS changers,
       array(SELECT b.name FROM apps b WHERE b.id IN (m.app_id, m.text_app_id, m.metadata_app_id)) AS writers,
       array(SELECT b.name FROM apps b WHERE b.id = coalesce(m.text_app_id, m.app_id)
             OR (m.text_by_user AND b.id = m.app_id)) AS authors
FROM memories m JOIN users u ON u.id = m.user_id JOIN apps a ON a.id = m.app_id WHERE u.user_id = ANY(:users)
UNION ALL
SELECT p.id, u.user_id, a.name, p.namespace, p.state::text, false, p.revision, '{}',
       concat_ws(' ', p.content, p.metadata, s.locator, p.speaker, p.external_id, s.title, p.heading),
       md5(concat_ws('|', p.content, p.metadata, p.state, p.namespace, p.revision, s.locator)), s.locator, p.content,
       s.id, '{}', ARRAY[a.name], ARRAY[a.name]
FROM passages p JOIN sources s ON s.id = p.source_id JOIN users u ON u.id = p.user_id JOIN apps a ON a.id = p.app_id
WHERE u.user_id = ANY(:users)
UNION ALL
SELECT p.id, u.user_id, a.name, p.namespace, p.state::text, false, 1, '{}', concat_ws(' ', p.name, p.root, p.repo),
       md5(concat_ws('|', p.name, p.root, p.repo, p.head, p.branch, p.namespace)), p.namespace, p.name, NULL,
       '{}', ARRAY[a.name], ARRAY[a.name]
FROM projects p JOIN users u ON u.id = p.user_id JOIN apps a ON a.id = p.app_id WHERE u.user_id = ANY(:users)
ORDER BY 2, 12, 1
""")

_RULES = text("""
SELECT r.id, u.user_id AS user, a.name AS app, r.effect,
       CASE r.object_type WHEN 'category' THEN 'category:' || c.name ELSE r.object_key END AS key
FROM access_controls r JOIN users u ON u.id = r.user_id LEFT JOIN apps a ON a.id = r.subject_id
LEFT JOIN categories c ON r.object_type = 'category' AND c.id = r.object_id WHERE u.user_id = ANY(:users)
""")

_DOCUMENTS = text("""
SELECT s.id, u.user_id AS user FROM sources s JOIN users u ON u.id = s.user_id
WHERE s.kind = 'document' AND u.user_id = ANY(:users) ORDER BY s.id
""")

_EVERYBODY = text("SELECT u.user_id AS user, a.name AS app FROM users AS u LEFT JOIN apps AS a ON a.owner_id = u.id")

_APPS = text("""
SELECT a.id, u.user_id AS user, a.name, a.is_active FROM apps a JOIN users u ON u.id = a.owner_id
WHERE u.user_id = ANY(:users)
""")


async def populate(services: Services, rng: random.Random) -> World:
    """A world of its own: users, apps, memories in every state, rules, and keys of every sort."""
    world = World(services)

    def token() -> str:
        return f"tk{rng.getrandbits(48):012x}"

    for _ in range(USERS):
        user = f"user-{token()}"
        world.users.append(user)
        apps = [f"app-{token()}" for _ in range(APPS)]
        spaces = ["default", *(f"space-{token()}" for _ in range(2))]
        filed = [f"sort-{token()}" for _ in range(3)]
        world.namespaces[user], world.categories[user] = spaces, filed
        for name in (user, *apps, *spaces, *filed):
            for each in TOKEN.findall(name):
                world.names[each] = user
                world.owner_of[each] = user
        owner = await services.directory.caller(user, None, owner=True)
        news = [_memory(rng, token, apps, spaces, filed) for _ in range(MEMORIES)]
        added = [memory.id for memory in await services.memories.add_many(owner, news)]
        for _ in range(THREADS):
            app = await services.directory.caller(user, rng.choice(apps))
            turns = [
                NewMessage(
                    f"The alpaca {token()} was here.", f"who-{token()}", token(), metadata={"commit": a_commit(rng)}
                )
                for _ in range(TURNS)
            ]
            files: list[NewFile | Invalid] = [NewFile(f"{token()}.md", f"# {token()}\n\nThe alpaca {token()}.\n")]
            await services.files.store(app, rng.choice(spaces), files)
            document = NewDocument(f"{token()}.md", rng.choice(spaces), f"About {token()}")
            await send_document(services, app, document, f"# {token()}\n\nThe alpaca {token()}.\n".encode())
            for number in range(SESSIONS):
                content = f"## {token()}\n\nThe alpaca {token()}.\n"
                session = NewSession(number, f"About {token()}", f"It {token()}.", content, rng.choice(spaces))
                await services.sessions.save(app, session)
            for number in range(VALUES):
                value = NewValue("topic", f"key{number}", f"The alpaca {token()}.", rng.choice(spaces))
                await services.values.set(app, value)
            said = NewMessages(token(), turns, rng.choice(spaces), f"About {token()}")  # type: ignore[arg-type]
            await services.conversations.add(app, said)
        for channel in CHANNELS:
            app = await services.directory.caller(user, rng.choice(apps))
            told = [
                SlackMessage(f"{number}.000100", f"The alpaca {token()}.", "5.000100", real_name=f"who-{token()}")
                for number in range(5, 5 + TURNS)
            ]
            await services.slack.channels.save(app, ChannelPart(channel, f"C0{channel.upper()}", told))
        for namespace in spaces:
            app = await services.directory.caller(user, rng.choice(apps))
            checkpoint = NewCheckpoint({token(): {"alpaca": token()}}, f"It ran at {rng.random()}.", namespace)
            await services.states.checkpoint(app, checkpoint)
        for _ in range(LINKS):
            await services.links.link(owner, *_link(rng, added))
        for state in (State.PAUSED, State.ARCHIVED, State.DELETED):
            await services.memories.change_state(owner, rng.sample(added, 2), state, strict=False)
        async with services.database.statement() as tx:
            expire = "UPDATE memories SET expires_at = now() WHERE id = ANY(:ids)"
            await tx.execute(text(expire), {"ids": rng.sample(added, 1)})
        await world.load()
        for _ in range(RULES):
            await services.grants.create(owner, rule_of(rng, world, user, apps))
        for app in apps:
            await _captured(world, rng, token, user, app)
        if len(world.users) % 2:
            theirs = [id_ for id_, (by, name, _) in world.apps.items() if by == user and name in apps]
            await services.apps.set_active(owner, UUID(rng.choice(theirs)), False)
        world.actors += await _keys(services, rng, user, apps, spaces)
        for actor in (
            Actor("spare", None, user),
            Actor("spare app", None, user, rng.choice(apps), (rng.choice(spaces),)),
        ):
            world.keys[str((await _key(services, actor)).id)] = actor
    everyone = await services.keys.create(LOCAL, KeyCreate(name="everyone", everyone=True))
    reads = await services.keys.create(LOCAL, KeyCreate(name="reads", everyone=True, scopes=["read"]))
    admin = await services.keys.create(LOCAL, KeyCreate(name="admin", everyone=True, scopes=["admin"]))
    world.actors += [
        Actor("everyone", everyone.key),
        Actor("reader of everyone", reads.key, scopes=frozenset({Scope.READ})),
        Actor("admin", admin.key, scopes=frozenset({Scope.ADMIN})),
        Actor("nobody", None, valid=False),
        Actor("stranger", f"om_{rng.getrandbits(40):08x}"[:11] + "_" + "A" * 43, valid=False),
    ]
    await world.load()
    return world


def _link(rng: random.Random, ids: list[UUID]) -> tuple[UUID, str, UUID]:
    """Two memories to link, the earlier one to the later one, so that there is no cycle."""
    first, second = sorted(rng.sample(range(len(ids)), 2))
    return ids[first], rng.choice(["is", "explains"]), ids[second]


async def _captured(world: World, rng: random.Random, token: Any, user: str, app: str) -> None:
    """A capture of an app that is done: it has added one memory and deleted another, whoever may read them by now."""
    mine = [row for row in world.rows.values() if row.user == user and row.thread is None]
    added, gone = rng.sample(mine, 2)
    said, namespace = token(), rng.choice(world.namespaces[user])
    operations = [
        {"event": event, "id": row.id, "memory": " ".join(row.tokens), "revision": row.revision, "before": {}}
        for event, row in (("ADD", added), ("DELETE", gone))
    ]
    values = {
        "user": user, "app": app, "namespace": namespace, "hash": said, "input": json.dumps({"text": said}),
        "operations": json.dumps(operations), "ids": [UUID(added.id), UUID(gone.id)],
    }  # fmt: skip
    async with world.services.database.transaction() as tx:
        id_ = await tx.scalar(_CAPTURE, values)
    for each in (str(id_), said):
        world.captures[each] = (user, app, namespace)
        world.owner_of[each] = user


_CAPTURE = text("""
INSERT INTO captures (user_id, app_id, namespace, status, input, hash, operations, memory_ids, finished_at)
SELECT u.id, a.id, :namespace, 'done', CAST(:input AS jsonb), :hash, CAST(:operations AS jsonb), :ids, now()
FROM users u JOIN apps a ON a.owner_id = u.id WHERE u.user_id = :user AND a.name = :app RETURNING id
""")


def _memory(rng: random.Random, token: Any, apps: list[str], spaces: list[str], filed: list[str]) -> MemoryCreate:
    return MemoryCreate(
        # Memories contradict or may replace each other, share a tag, and are rules, so that packs relate them.
        text=f"The alpaca lives in {token()}{rng.choice([' now', '', ' again'])}."
        f" The herd size is {rng.randint(2, 9)}.",
        kind=rng.choice(["memory", "memory", "rule"]),
        metadata={"note": token(), "tags": ["herd", token()]}
        | ({"commit": a_commit(rng)} if rng.random() < 0.5 else {}),
        namespace=rng.choice(spaces),
        thread_id=token() if rng.random() < 0.5 else None,
        key=token() if rng.random() < 0.5 else None,
        categories=tuple(rng.sample(filed, rng.randint(0, 2))),
        app=rng.choice(apps),
    )


def a_commit(rng: random.Random) -> str:
    """A commit that only one memory or message belongs to."""
    return f"c0ffee{rng.getrandbits(136):034x}"


def rule_of(rng: random.Random, world: World, user: str, apps: Iterable[str]) -> GrantCreate:
    """A random rule of a user."""
    sort = rng.choice(["memory", "memory", "app", "namespace", "category", "all"])
    what = {
        "memory": lambda: rng.choice(
            [id_ for id_, row in world.rows.items() if row.user == user and row.thread is None] or [str(UUID(int=1))]
        ),
        "app": lambda: rng.choice(list(apps)),
        "namespace": lambda: rng.choice(world.namespaces[user]),
        "category": lambda: rng.choice(world.categories[user]),
        "all": lambda: None,
    }[sort]()
    effect = rng.choice(["deny", "deny", "allow"]) if sort != "all" else "allow"
    return GrantCreate(effect=effect, app=rng.choice([None, *apps]), object_type=sort, object=what)


async def _keys(services: Services, rng: random.Random, user: str, apps: list[str], spaces: list[str]) -> list[Actor]:
    some = tuple(rng.sample(spaces, 2))
    wanted = [
        Actor("owner", None, user),
        Actor("reader", None, user, scopes=frozenset({Scope.READ})),
        Actor("writer", None, user, scopes=frozenset({Scope.WRITE})),
        Actor("narrow", None, user, namespaces=some),
        *(Actor(f"app{number}", None, user, app) for number, app in enumerate(apps)),
        Actor("narrow app", None, user, apps[0], some),
        Actor("admin of a user", None, user, scopes=EVERY_SCOPE),
        Actor("admin of an app", None, user, apps[0], scopes=EVERY_SCOPE),
        Actor("admin of namespaces", None, user, namespaces=some, scopes=frozenset({Scope.READ, Scope.ADMIN})),
        Actor("admin of an app of everyone", None, None, apps[0], scopes=frozenset({Scope.READ, Scope.ADMIN})),
        Actor("revoked", None, user, valid=False),
        Actor("expired", None, user, valid=False),
    ]
    made = []
    for actor in wanted:
        created = await _key(services, actor)
        if actor.name == "revoked":
            await services.keys.revoke(LOCAL, created.id)
        if actor.name == "expired":
            async with services.database.statement() as tx:
                ended = "UPDATE api_keys SET expires_at = now() WHERE id = :id"
                await tx.execute(text(ended), {"id": created.id})
        made.append(replace(actor, key=created.key))
    return made


async def _key(services: Services, actor: Actor) -> KeyCreated:
    new = KeyCreate(
        name=actor.name, user_id=actor.user, everyone=actor.user is None, app=actor.app, scopes=sorted(actor.scopes),
        namespaces=None if actor.namespaces is None else list(actor.namespaces),
    )  # fmt: skip
    return await services.keys.create(LOCAL, new)
