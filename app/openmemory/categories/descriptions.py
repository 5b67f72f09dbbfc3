"""A user's own category descriptions. The service assigns these categories in addition to OpenMemory's twenty."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY, TEXT, insert
from sqlalchemy.dialects.postgresql import UUID as PG_UUID

from openmemory.access.models import User
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.categories import requests
from openmemory.categories.schemas import MAX_DESCRIPTION_LENGTH, DescribedCategories, DescribedCategory
from openmemory.categories.taxonomy import NAMES, SUBJECTS, Subject, described
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.database.sql_files import load_sql
from openmemory.errors import ConflictError, NotFound, TooLarge
from openmemory.identity.caller import Caller
from openmemory.identity.names import category_name
from openmemory.memories import changes, validation
from openmemory.memories.intake import Intake
from openmemory.memories.models import Category, CategoryDescription
from openmemory.memories.schemas import MemoryUpdate

OWN = 100
"""The maximum number of categories of a user's own, besides OpenMemory's."""


_OWN = text(load_sql(__name__, "own")).bindparams(
    bindparam("users", type_=ARRAY(PG_UUID())), bindparam("known", type_=ARRAY(TEXT))
)


class Descriptions:
    """Sets, lists and deletes category descriptions. Only the user may, never an app."""

    def __init__(self, database: Database, *, intake: Intake, limits: LimitSettings) -> None:
        self._database = database
        self._intake = intake
        self._limits = limits

    async def describe(self, caller: Caller, name: str, description: str) -> DescribedCategory:
        """Describe a category, which may be an unused one or one of OpenMemory's. If the description changed, memories
        whose categories no client has set are assigned again in the background.

        Raises:
            Forbidden: the caller is an app.
            Invalid: the name or the description is invalid, or holds what `capture` refuses.
            ConflictError: the user describes too many categories.
        """
        caller.must_be_owner("describe categories")
        caller.may_write()
        caller.may_read()  # the answer shows stored data
        return await self._describe(caller, self._clean_name(name), checked(description, self._intake))

    async def list(self, caller: Caller) -> DescribedCategories:
        """The categories that the service assigns to the user's memories."""
        caller.must_be_owner("see by what categories are assigned")
        caller.may_read()
        async with self._database.transaction() as tx:
            own = [DescribedCategory.model_validate(row._mapping) for row in await _own(tx, [caller.user_id])]
            query = select(Category.name, Category.id).where(Category.name == func.any(list(NAMES)))
            ids = {row.name: row.id for row in await tx.execute(query)}
            await audit_log.record(tx, caller, AuditAction.CATEGORY_LIST)
        own_names = {each.name for each in own}
        common = [_common(subject, ids.get(subject.name)) for subject in SUBJECTS if subject.name not in own_names]
        return DescribedCategories(categories=own + common, total=len(own) + len(common))

    @retry_on_conflict
    async def forget(self, caller: Caller, name: str) -> None:
        """Delete the user's description of a category. Assignments by clients stay; automatic ones are made again.

        Raises:
            Forbidden: the caller is an app.
            NotFound: the user does not describe this category.
        """
        caller.must_be_owner("forget what categories are about")
        caller.may_write()
        name = category_name(validation.name(name, "name", self._limits))
        category_id = select(Category.id).where(Category.name == name).scalar_subquery()
        mine = delete(CategoryDescription).where(
            CategoryDescription.user_id == caller.user_id, CategoryDescription.category_id == category_id
        )
        async with self._database.transaction() as tx:
            await _hold(tx, caller)
            gone = await tx.scalar(mine.returning(CategoryDescription.category_id))
            if gone is None:
                raise NotFound("The user does not describe this category", code="category_not_described")
            await requests.request_reclassification(tx, caller.user_id)
            await audit_log.record(tx, caller, AuditAction.CATEGORY_FORGET, [gone], detail={"name": name})

    @retry_on_conflict
    async def _describe(self, caller: Caller, name: str, description: str) -> DescribedCategory:
        async with self._database.transaction() as tx:
            # Serialized, because two concurrent requests could exceed the limit.
            await _hold(tx, caller)
            category = (await changes.category_ids(tx, {name}))[name]
            row = insert(CategoryDescription).values(
                user_id=caller.user_id, category_id=category, description=description
            )
            upsert = row.on_conflict_do_update(
                index_elements=["user_id", "category_id"],
                set_={"description": row.excluded.description, "updated_at": func.now()},
                where=CategoryDescription.description != row.excluded.description,
            ).returning(CategoryDescription.category_id)
            mine = CategoryDescription.user_id == caller.user_id
            if await tx.scalar(upsert) is not None:
                if (await tx.scalar(select(func.count()).select_from(CategoryDescription).where(mine)) or 0) > OWN:
                    raise ConflictError(
                        f"A user describes at most {OWN} categories.",
                        code="too_many_categories",
                        hint="Forget one that is not used any more.",
                    )
                await requests.request_reclassification(tx, caller.user_id)
            await audit_log.record(tx, caller, AuditAction.CATEGORY_DESCRIBE, [category], detail={"name": name})
            query = select(CategoryDescription).where(mine, CategoryDescription.category_id == category)
            record = (await tx.execute(query)).one()
        return DescribedCategory(
            id=category, name=name, description=description, described_by="user", created_at=record.created_at,
            updated_at=record.updated_at,
        )  # fmt: skip

    def _clean_name(self, name: str) -> str:
        name = validation.name(name, "name", self._limits)
        [cleaned] = self._intake.changed(MemoryUpdate(categories=(name,))).categories or ()
        return cleaned


def checked(description: str, intake: Intake) -> str:
    """The description as it can be stored: without surrounding blanks, and redacted according to `capture`.

    Raises:
        Invalid: it is blank, too long, or holds what `capture` refuses.
    """
    description = description.strip()
    if len(description) > MAX_DESCRIPTION_LENGTH:
        raise TooLarge("description", f"has {len(description):,} characters; the limit is {MAX_DESCRIPTION_LENGTH}")
    cleaned = intake.changed(MemoryUpdate(text=description), "description").text
    assert cleaned is not None
    return cleaned


async def subjects(tx: Tx, users: Collection[UUID]) -> dict[UUID, tuple[Subject, ...]]:
    """The categories, own and OpenMemory's, of those users who have categories of their own."""
    rows: dict[UUID, list[Any]] = {}
    for row in await _own(tx, users):
        rows.setdefault(row.user_id, []).append(row)
    return {user: _with_common(own) for user, own in rows.items()}


async def _own(tx: Tx, users: Collection[UUID]) -> Iterable[Any]:
    return (await tx.execute(_OWN, {"users": list(users), "known": list(NAMES), "most": OWN})).all()


def _with_common(own: Iterable[Any]) -> tuple[Subject, ...]:
    """OpenMemory's categories, with the user's descriptions where they exist, and then the user's other categories."""
    theirs = {row.name: described(row.name, row.description) for row in own}
    common = [theirs.pop(subject.name, subject) for subject in SUBJECTS]
    return (*common, *theirs.values())


def _common(subject: Subject, id_: UUID | None) -> DescribedCategory:
    return DescribedCategory(
        id=id_, name=subject.name, description=subject.description, described_by="openmemory", created_at=None,
        updated_at=None,
    )  # fmt: skip


async def _hold(tx: Tx, caller: Caller) -> None:
    query = select(User.id).where(User.id == caller.user_id).with_for_update(key_share=True)
    if await tx.scalar(query) is None:
        raise NotFound("User not found", code="user_not_found")
