"""The language of the words of memories and passages, and the backfill after it changes.

A trigger computes the column `words` from a text: the lexemes of its words and, without a position and not counted in
`word_count`, compound identifiers as one word (`getuserbyid`), dates in digits, words without their accents, and the
tags, entities and reason of a memory. Queries
use the same PostgreSQL function, `lexical_words`. The row of `lexicon` sets the language for all users.

A new language takes effect at startup. New rows use it at once, and a job backfills the others, one page of ids at a
time, memories first, and records its progress. Changed rows get outbox entries, because the index contains their
words too. Until
the job finishes, a query also uses the former language, so that every row is found by the words it has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from sqlalchemy import Text, bindparam, text

from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.database.sql_files import load_sql
from openmemory.errors import SetupError
from openmemory.index.models import ItemKind
from openmemory.index.sync import outbox
from openmemory.search import statistics

log = logging.getLogger(__name__)

PAGE = 250
"""The number of rows in one backfill transaction: small, so that no writer waits long."""

COUNT_EVERY = 80
"""The number of pages between two refreshes of the statistics. A word without statistics counts as rare."""

_LANGUAGES = text("SELECT cfgname FROM pg_ts_config WHERE pg_ts_config_is_visible(oid) ORDER BY 1")
_LANGUAGE = text("SELECT language FROM lexicon")
# A transaction that waits for a table lock blocks all writers behind it.
_BRIEFLY = text("SET LOCAL lock_timeout = '5s'")
# Under this lock, other writers have either not committed yet or use the new language.
_ALONE = text("LOCK TABLE memories, passages IN SHARE ROW EXCLUSIVE MODE")
_CHOOSE = text(
    """
    UPDATE lexicon SET language = :language, kind = 'memory', done = NULL,
        former = CASE WHEN EXISTS (SELECT FROM memories) OR EXISTS (SELECT FROM passages)
        THEN array_append(array_remove(former, :language), language) ELSE '{}' END
    WHERE language <> :language
    """
).bindparams(bindparam("language", type_=Text))

_LOCK = 0x6F6D6C78
_TURN = text(f"SELECT pg_try_advisory_xact_lock({_LOCK})")
_STATE = text("SELECT language, kind, done FROM lexicon WHERE cardinality(former) > 0")
_REGCONFIG = "CAST(:language AS regconfig)"
_PAGE = {
    ItemKind.MEMORY: text(
        load_sql(__name__, "page",
            table="memories", columns="kind, content, metadata",
            words=f"CASE WHEN kind = 'state' THEN '' ELSE memory_words({_REGCONFIG}, content, metadata) END",
        )
    ),
    ItemKind.PASSAGE: text(
        load_sql(__name__, "page",
            table="passages", columns="passage_text(heading, speaker, content) AS content",
            words=f"lexical_words({_REGCONFIG}, content)",
        )
    ),
}  # fmt: skip
_KINDS = (ItemKind.MEMORY, ItemKind.PASSAGE)
_SAVE_PROGRESS = text("UPDATE lexicon SET done = :done WHERE language = :language")
_NEXT_KIND = text("UPDATE lexicon SET kind = :kind, done = NULL WHERE language = :language")
_FINISH = text("UPDATE lexicon SET kind = 'memory', done = NULL, former = '{}' WHERE language = :language")
_COUNTED_USERS = {kind: text(f"SELECT DISTINCT user_id FROM {statistics.TABLES[kind]}") for kind in ItemKind}  # noqa: S608


async def choose(database: Database, language: str) -> None:
    """Sets the language of words.

    Raises:
        SetupError: PostgreSQL has no text search configuration of this name.
        Unavailable: PostgreSQL does not answer, or other transactions do not end in time.
    """
    async with database.transaction() as tx:
        languages = list((await tx.execute(_LANGUAGES)).scalars())
        if language not in languages:
            raise SetupError(
                f"search.language: {language!r} is no text search configuration of this PostgreSQL; valid are "
                + ", ".join(languages)
            )
        if await tx.scalar(_LANGUAGE) == language:
            return
        await tx.execute(_BRIEFLY)
        await tx.execute(_ALONE)
        await tx.execute(_CHOOSE, {"language": language})
    log.info("search.language is now %s; older texts are reindexed in the background", language)


class LexicalBackfill:
    """The backfill of rows whose words may be in a former language."""

    def __init__(self, database: Database, wake: Callable[[], None]) -> None:
        """`wake` is called after outbox entries were written."""
        self._database = database
        self._wake = wake

    async def run(self) -> int:
        """Runs until all rows are done, and returns the number of pages. Does nothing if another process already
        runs it.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        pages = 0
        while (more := await self._step()) is not None:
            pages += more
            if not more or pages % COUNT_EVERY == 0:
                await self._count()
        return pages

    @retry_on_conflict
    async def _step(self) -> bool | None:
        """Processes one page. Returns True if there may be more, and None if there is nothing to do or another process
        runs the backfill."""
        async with self._database.transaction() as tx:
            if not await tx.scalar(_TURN):
                return None
            state = (await tx.execute(_STATE)).one_or_none()
            if state is None:
                return None
            kind = ItemKind(state.kind)
            page = (await tx.execute(_PAGE[kind], {"done": state.done, "language": state.language, "page": PAGE})).one()
            if page.changed:
                await outbox.add_entries(tx, kind, page.changed)
            await self._note(tx, state.language, kind, page.last)
        if page.changed:
            self._wake()
        if page.last is not None or kind is not _KINDS[-1]:
            return True
        log.info("search.language: all memories and passages are indexed in %s", state.language)
        return False

    @staticmethod
    async def _note(tx: Tx, language: str, kind: ItemKind, last: UUID | None) -> None:
        if last is not None:
            await tx.execute(_SAVE_PROGRESS, {"language": language, "done": last})
        elif kind is not _KINDS[-1]:
            await tx.execute(_NEXT_KIND, {"language": language, "kind": _KINDS[_KINDS.index(kind) + 1].value})
        else:
            await tx.execute(_FINISH, {"language": language})

    async def _count(self) -> None:
        for kind in ItemKind:
            async with self._database.statement() as tx:
                users = list((await tx.execute(_COUNTED_USERS[kind])).scalars())
            for user in users:
                async with self._database.transaction() as tx:
                    await statistics.refresh(tx, user, kind)
