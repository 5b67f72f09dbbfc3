"""Resolves users and apps by name: creates them on the first write, and caches them after that."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Literal, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import BaseModel, Field
from sqlalchemy import ColumnElement, Text, bindparam, cast, column, exists, func, select, table, update
from sqlalchemy.dialects.postgresql import insert

from openmemory.access.models import App, User
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.sections import AccessSettings
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import NotFound
from openmemory.identity.caller import UNKNOWN, Caller
from openmemory.identity.principal import LOCAL, Principal, Scope
from openmemory.serialization.zones import zone_named, zone_or_none

Belonging = Literal["memory", "app", "capture", "document", "grant", "policy"]

# By name, because the models belong to higher-level packages.
_OWNED = {
    name: table(of, column("id"), column("user_id"))
    for name, of in (
        ("memory", "memories"), ("capture", "captures"), ("document", "sources"), ("grant", "access_controls"),
        ("policy", "archive_policies"),
    )
}  # fmt: skip

CACHE_SECONDS = 30.0
"""Seconds that ids are cached: another process may have erased the user meanwhile, or saved another time zone."""

TIMEZONE = "timezone"
"""The entry of a user's metadata with the IANA name of their time zone."""


class _Ids(NamedTuple):
    """The ids of a user and an app, None for each that does not exist, and the name of the time zone that is saved."""

    user: UUID | None
    app: UUID | None
    timezone: str | None = None


class Me(BaseModel):
    """As whom a client asks."""

    user: str = Field(description="The user that is meant where a request names none.")
    app: str = Field(description="The app that writes where a request names none.")
    every_user: bool = Field(description="True if the credential speaks for every user that a request names.")
    every_app: bool = Field(description="True if it speaks for every app that a request names, and the user themself.")
    namespaces: list[str] | None = Field(description="The namespaces that it reaches; null: all.")
    scopes: list[Scope] = Field(description="What it allows.")


class UserTimezone(BaseModel):
    """The time zone in which a user means dates and words such as `today`."""

    timezone: str = Field(description="IANA name of the one that counts for this request.", examples=["Europe/Berlin"])
    source: Literal["request", "user", "setting"] = Field(
        description="Who names it: the request, what the user saved, or access.default_timezone."
    )
    saved: str | None = Field(description="The one that the user saved; null: none.")


class Directory:
    """Resolves the names in a request to a `Caller`.

    It caches the ids of users with memories for a while: they never change until the user is erased. Without memories,
    an import may still change them. It never caches whether an app is paused: that is decided where the rows are read.
    """

    def __init__(self, database: Database, settings: AccessSettings) -> None:
        self._database = database
        self._settings = settings
        self._zone = settings.timezone
        self._cache: dict[tuple[str, str], tuple[_Ids, float]] = {}

    def me(self, principal: Principal) -> Me:
        """Returns as whom a principal acts if it names nobody. Creates nothing."""
        return Me(
            user=principal.user or self._settings.default_user,
            app=principal.app or self._settings.default_app,
            every_user=principal.user is None,
            every_app=principal.app is None,
            namespaces=None if principal.namespaces is None else list(principal.namespaces),
            scopes=[scope for scope in Scope if scope in principal.scopes],
        )

    async def app_caller(self, principal: Principal, user: str | None, app: str | None) -> Caller:
        """Returns the app that a principal acts for, as an assistant. User and app are created as by `caller`.

        Raises:
            Forbidden: the credential does not allow what the names claim.
        """
        return await self.caller(principal.claimed_user(user), principal.claimed_app(app), principal=principal)

    async def owner(self, principal: Principal, user: str | None, *, make: bool = False) -> Caller:
        """Returns the user themself, or the app if the credential is bound to an app. The user must exist, unless it is
        the credential's own user or may be created (`make`), as by `caller`.

        Raises:
            Forbidden: the credential does not allow what the name claims.
            NotFound: the user does not exist.
        """
        user = principal.claimed_user(user)
        if principal.app is not None:
            return await self.caller(user, principal.app, principal=principal)
        if make or user == principal.user:
            return await self.caller(user, None, owner=True, principal=principal)
        return await self.existing(user, principal=principal)

    async def owner_or_new(self, principal: Principal, user: str | None) -> Caller:
        """Returns the user themself, as `owner`. A user who does not exist is not created, and `UNKNOWN`.

        Raises:
            Forbidden: the credential does not allow what the name claims.
        """
        try:
            return await self.owner(principal, user)
        except NotFound:
            user = principal.claimed_user(user) or self._settings.default_user
            return self._caller(user, self._settings.default_app, _Ids(UNKNOWN, UNKNOWN), True, principal)

    async def caller(
        self, user: str | None, app: str | None, *, owner: bool = False, principal: Principal = LOCAL
    ) -> Caller:
        """Returns the caller with these names. None means the configured default.

        If the user or the app is new and the principal may write, they are created. Otherwise they are `UNKNOWN`: the
        caller then reads what a new app or a new user would, and leaves no trace.

        It checks no claim: names from a request must go through `app_caller` or `owner`.
        """
        user = user or self._settings.default_user
        app = app or self._settings.default_app
        ids = await self._ensure_ids(user, app, await self._ids(user, app), principal)
        return self._caller(user, app, ids, owner, principal)

    async def existing(self, user: str | None, *, principal: Principal = LOCAL) -> Caller:
        """Returns an existing user themself, under the name of the default app. It checks no claim.

        Raises:
            NotFound: the user does not exist.
        """
        user = user or self._settings.default_user
        app = self._settings.default_app
        ids = await self._ids(user, app)
        if ids.user is None:
            raise NotFound("User not found", code="user_not_found")
        return self._caller(user, app, await self._ensure_ids(user, app, ids, principal), True, principal)

    async def preview(self, caller: Caller, app_id: UUID) -> Caller:
        """Returns the caller as whom a user sees what one of their apps would read. Nothing counts as read by the app.

        Raises:
            Forbidden: the caller is an app.
            NotFound: the user has no such app.
        """
        caller.must_be_owner("see what their apps would read")
        caller.may_read()
        async with self._database.statement() as tx:
            name = await tx.scalar(select(App.name).where(App.id == app_id, App.owner_id == caller.user_id))
        if name is None:
            raise NotFound("App not found", code="app_not_found")
        return replace(caller, app_id=app_id, app=name, owner=False, preview=True)

    async def timezone(self, caller: Caller) -> UserTimezone:
        """Returns the time zone of a caller, and who names it."""
        caller.may_read()
        async with self._database.transaction() as tx:
            zone = zone_or_none(await tx.scalar(select(_SAVED_ZONE).where(User.id == caller.user_id)))
            await audit_log.record(tx, caller, AuditAction.USER_GET)
        return self._user_timezone(caller, zone)

    def _user_timezone(self, caller: Caller, zone: ZoneInfo | None) -> UserTimezone:
        request_zone = caller.principal.timezone
        source: Literal["request", "user", "setting"] = "request" if request_zone else "user" if zone else "setting"
        return UserTimezone(timezone=(request_zone or zone or self._zone).key, source=source, saved=zone and zone.key)

    async def save_timezone(self, caller: Caller, name: str | None) -> UserTimezone:
        """Saves the time zone of a user, for requests that name none; None forgets it. Another process may take
        `CACHE_SECONDS` seconds to follow.

        Raises:
            Forbidden: the caller is an app, or may not write.
            Invalid: there is no such zone.
        """
        caller.must_be_owner("save their time zone")
        caller.may_write()
        zone = None if name is None else zone_named(name)
        metadata: ColumnElement[Any] = User.metadata_.op("-")(TIMEZONE)
        if zone is not None:
            metadata = metadata.op("||")(func.jsonb_build_object(TIMEZONE, cast(zone.key, Text)))
        async with self._database.transaction() as tx:
            await tx.execute(
                update(User).where(User.id == caller.user_id).values(metadata_=metadata, updated_at=func.now())
            )
            await audit_log.record(tx, caller, AuditAction.USER_TIMEZONE, detail={"timezone": zone and zone.key})
        self.forget(caller.user)
        return self._user_timezone(caller, zone)

    async def name_of(self, user_id: UUID) -> str | None:
        """Returns the name of the user with this internal id."""
        async with self._database.statement() as tx:
            name: str | None = await tx.scalar(select(User.user_id).where(User.id == user_id))
        return name

    async def owner_of(self, what: Belonging, id_: UUID) -> str | None:
        """Returns the name of the user who owns the object with this id; None if nobody does. It checks no access: only
        callers who may act for every user may see the result."""
        query = select(User.user_id)
        if what == "app":
            query = query.join(App, App.owner_id == User.id).where(App.id == id_)
        else:
            of = _OWNED[what]
            query = query.join(of, of.c.user_id == User.id).where(of.c.id == id_)
        async with self._database.statement() as tx:
            name: str | None = await tx.scalar(query)
        return name

    def forget(self, user: str) -> None:
        """Drop what is cached of a user who was erased, or who got other ids or another time zone."""
        for key in [key for key in self._cache if key[0] == user]:
            del self._cache[key]

    def _caller(self, user: str, app: str, ids: _Ids, owner: bool, principal: Principal) -> Caller:
        zone = principal.timezone or zone_or_none(ids.timezone) or self._zone
        return Caller(
            ids.user or UNKNOWN, user, ids.app or UNKNOWN, app, owner=owner, default=self._settings.default,
            principal=principal, timezone=zone,
        )  # fmt: skip

    def _add_to_cache(self, user: str, app: str, ids: _Ids) -> None:
        if len(self._cache) >= 10_000:
            self._cache.clear()
        self._cache[user, app] = (ids, time.monotonic())

    async def _ids(self, user: str, app: str) -> _Ids:
        """Returns the ids of the names."""
        ids, since = self._cache.get((user, app), (None, 0.0))
        if ids is not None and time.monotonic() - since < CACHE_SECONDS:
            return ids
        async with self._database.statement() as tx:
            rows = await _IDS.rows(tx, {"user": user, "app": app})
        if not rows:
            return _Ids(None, None)
        *values, has_memories = rows[0]
        ids = _Ids(*values)
        if ids.app is not None and has_memories:
            self._add_to_cache(user, app, ids)
        return ids

    async def _ensure_ids(self, user: str, app: str, ids: _Ids, principal: Principal) -> _Ids:
        """Returns the ids. Missing users and apps are created if the principal may write, and stay None if not."""
        if (ids.user is not None and ids.app is not None) or Scope.WRITE not in principal.scopes:
            return ids
        return await self._make(user, app, ids.timezone)

    @retry_on_conflict
    async def _make(self, user: str, app: str, timezone: str | None) -> _Ids:
        async with self._database.transaction() as tx:
            return _Ids(*await make(tx, user, app), timezone)

    async def app_ids(self, caller: Caller, names: list[str]) -> list[UUID]:
        """Returns the ids of the user's apps with these names; unknown names are ignored."""
        query = select(App.id).where(App.owner_id == caller.user_id, App.name == func.any(names))
        async with self._database.statement() as tx:
            return list((await tx.scalars(query)).all())


_SAVED_ZONE = User.metadata_[TIMEZONE].astext

_IDS = CompiledStatement(
    select(User.id, App.id, _SAVED_ZONE, exists().where(_OWNED["memory"].c.user_id == User.id))
    .outerjoin(App, (App.owner_id == User.id) & (App.name == bindparam("app")))
    .where(User.user_id == bindparam("user")),
    plain=True,
)
"""The ids of a user and an app by name, the user's time zone, and whether the user has memories."""


async def make(tx: Tx, user: str, app: str) -> tuple[UUID, UUID]:
    """Creates the user and the app of these names, unless they exist, and returns their ids.

    Raises:
        NotFound: another transaction erased the user meanwhile.
    """
    await tx.execute(insert(User).values(user_id=user, name=user).on_conflict_do_nothing())
    user_id = await tx.scalar(select(User.id).where(User.user_id == user))
    await tx.execute(insert(App).values(owner_id=user_id, name=app).on_conflict_do_nothing())
    app_id = await tx.scalar(select(App.id).where(App.owner_id == user_id, App.name == app))
    if user_id is None or app_id is None:
        raise NotFound("The user was erased a moment ago", code="user_not_found")
    return user_id, app_id
