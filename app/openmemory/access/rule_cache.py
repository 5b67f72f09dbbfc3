"""A cache of the rules of apps, valid until they change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from uuid import UUID

from sqlalchemy import Uuid, bindparam, func, select, update
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.access.models import User
from openmemory.access.rules import NONE, Rule, Rules, in_sets
from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Tx
from openmemory.identity.caller import UNKNOWN, Caller, Default

MAX_CACHED_RULES = 100_000
"""The cache size in rules, plus one for each app: some 15 MB. The least recently used entries are evicted first."""

_Key = tuple[UUID, UUID, Default]


def revision_of(user: str, app: str) -> str:
    """Returns SQL for the one row whose `revision` is that of the user's rules. It is null if the app is paused or the
    user does not exist. Both arguments are SQL expressions."""
    return f"""
        SELECT (
            SELECT u.rules_revision FROM users AS u
            WHERE u.id = {user} AND ({app} = '{UNKNOWN}'::uuid OR EXISTS (
                SELECT FROM apps AS a WHERE a.owner_id = u.id AND a.id = {app} AND a.is_active))
        ) AS revision
        """  # noqa: S608 - only expressions of this code are put in


_STATE = CompiledStatement(bound(revision_of(":user", ":app"), {"user": Uuid(), "app": Uuid()}), plain=True)

_RULES = CompiledStatement(
    bound(
        """
        SELECT u.rules_revision, r.subject_id IS NOT NULL, r.effect, r.object_type,
            array_agg(r.object_id), array_agg(r.object_name)
        FROM users AS u
        LEFT JOIN access_controls AS r ON r.user_id = u.id AND (r.subject_id = :app OR r.subject_id IS NULL)
        WHERE u.id = :user
        GROUP BY 1, 2, 3, 4
        """,
        {"user": Uuid(), "app": Uuid()},
    ),
    plain=True,
)

_LOCK = (
    select(User.id)
    .where(User.id == func.any(bindparam("users", type_=ARRAY(Uuid()))))
    .order_by(User.id)
    .with_for_update(key_share=True)
)


class RuleCache:
    """The rules of apps as sets, cached.

    Every lookup reads the revision of the user's rules to validate the cached entry, so that a change by another
    process is never missed. A paused app may read nothing.
    """

    def __init__(self) -> None:
        self._entries: OrderedDict[_Key, tuple[int, Rules]] = OrderedDict()
        self._size = 0

    async def of(self, tx: Tx, caller: Caller) -> Rules:
        """Returns the current rules of an app."""
        values = {"user": caller.user_id, "app": caller.app_id}
        [(revision,)] = await _STATE.rows(tx, values)
        if revision is None:
            return NONE
        if (rules := self.still(caller, revision)) is not None:
            return rules
        rows = await _RULES.rows(tx, values)
        if not rows:
            return NONE
        rules = in_sets((Rule(*row[1:]) for row in rows if row[2] is not None), caller.app_id, caller.default)
        self._add_to_cache(_key(caller), rows[0][0], rules)
        return rules

    def from_cache(self, caller: Caller) -> Rules | None:
        """Returns the rules of an app as of the last lookup; None if there was none. Verify them with `still` before
        use."""
        entry = self._entries.get(_key(caller))
        return None if entry is None else entry[1]

    def still(self, caller: Caller, revision: int | None) -> Rules | None:
        """Returns the cached rules if `revision` is still the current one; see `revision_of`."""
        key = _key(caller)
        entry = self._entries.get(key)
        if entry is None or entry[0] != revision:
            return None
        self._entries.move_to_end(key)
        return entry[1]

    def _add_to_cache(self, key: _Key, revision: int, rules: Rules) -> None:
        if key in self._entries:
            self._size -= 1 + len(self._entries.pop(key)[1])
        self._entries[key] = revision, rules
        self._size += 1 + len(rules)
        while self._size > MAX_CACHED_RULES and len(self._entries) > 1:
            self._size -= 1 + len(self._entries.popitem(last=False)[1][1])


def _key(caller: Caller) -> _Key:
    return caller.user_id, caller.app_id, caller.default


async def hold(tx: Tx, users: Iterable[UUID]) -> None:
    """Lock users: nobody else can change their rules, or erase what rules refer to, until the transaction ends."""
    await tx.execute(_LOCK, {"users": list(users)})


async def changed(tx: Tx, users: Iterable[UUID]) -> None:
    """Mark the rules of users as changed, effective when the transaction commits."""
    mine = User.id == func.any(bindparam("users", type_=ARRAY(Uuid())))
    statement = update(User).where(mine).values(rules_revision=User.rules_revision + 1)
    await tx.execute(statement, {"users": list(users)})
