"""Files are stored like a folder: what is unchanged stays, what moved keeps its passages, what is gone goes."""

from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import text

from openmemory.access.schemas import GrantCreate
from openmemory.errors import BatchRefused, Forbidden, Invalid
from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind
from openmemory.search.schemas import PassageResult, SearchQuery
from openmemory.services import Services
from openmemory.sources.schemas import FileEvent, FileSeen, FileStored, NewFile, Rename

GUIDE = "# Webshop\n\nSells things.\n\n## Install\n\nRun make serve.\n\n## Pay\n\nOnly with cards.\n"
CODE = "def pay(card):\n    return charge(card)\n\n\ndef ship(parcel):\n    return carrier.fetch(parcel)\n"


async def store(
    services: Services, caller: Caller, *files: tuple[str, str], namespace: str = "shop"
) -> list[FileStored]:
    results = await services.files.store(caller, namespace, [NewFile(*one) for one in files])
    assert all(isinstance(each, FileStored) for each in results), results
    return [each for each in results if isinstance(each, FileStored)]


async def find(services: Services, caller: Caller, query: str, **more: object) -> list[PassageResult]:
    return (await services.search.passages(caller, SearchQuery(query, **more))).results  # type: ignore[arg-type]


async def ids(services: Services, caller: Caller, path: str) -> dict[str, UUID]:
    """The passages of a file by their text."""
    async with services.database.statement() as tx:
        query = """
            SELECT p.content, p.id FROM passages AS p JOIN sources AS s ON s.id = p.source_id
            WHERE s.app_id = :app AND s.locator = :path AND p.state = 'active'
        """
        return {row.content: row.id for row in await tx.execute(text(query), {"app": caller.app_id, "path": path})}


async def test_files_are_found_with_their_lines_by_meaning_and_by_words(services: Services, owner: Caller) -> None:
    await store(services, owner, ("README.md", GUIDE), ("src/pay.py", CODE))
    [first, *_] = await find(services, owner, "can I pay in cash or with a card?")
    assert (first.path, first.heading, first.first_line, first.last_line) == ("README.md", "Webshop > Pay", 9, 11)
    assert (first.kind, first.language, first.role, first.thread_id) == ("text", "markdown", None, None)
    assert (await find(services, owner, "ship parcel"))[0].path == "src/pay.py"
    for narrowed in ({"below": "src/"}, {"languages": ("python",)}, {"kinds": ("code",)}):
        found = await find(services, owner, "card", **narrowed)
        assert {result.path for result in found} == {"src/pay.py"}, narrowed
    assert await find(services, owner, "card", below="nowhere/") == []


async def test_a_file_that_is_sent_again_keeps_what_did_not_change(services: Services, owner: Caller) -> None:
    [first] = await store(services, owner, ("README.md", GUIDE))
    assert (first.event, first.passages, first.changed) == (FileEvent.ADD, 3, 3)
    before = await ids(services, owner, "README.md")
    await services.outbox_delivery.drain()
    [same] = await store(services, owner, ("README.md", GUIDE))
    assert same.event is FileEvent.NONE
    longer = GUIDE.replace("## Pay", "## Test\n\nRun make test.\n\n## Pay").replace("serve", "start")
    [changed] = await store(services, owner, ("README.md", longer))
    assert (changed.event, changed.passages, changed.changed) == (FileEvent.UPDATE, 4, 2)
    after = await ids(services, owner, "README.md")
    assert {before[content] == after[content] for content in before.keys() & after.keys()} == {True}
    assert len(before.keys() & after.keys()) == 2
    done = await services.outbox_delivery.drain()
    assert done.failed == 0
    tenant = ItemKind.PASSAGE.tenant(owner.user_id)
    assert await services.index.count(tenant) == 4
    [pay, *_] = await find(services, owner, "pay with cards")
    assert (pay.first_line, pay.position) == (13, 4)


async def test_equal_passages_of_a_file_are_told_apart(services: Services, owner: Caller) -> None:
    twice = "x = 1\n" * 60
    await store(services, owner, ("a.py", f"{twice}\n{twice}\ny = 2\n"))
    [again] = await store(services, owner, ("a.py", f"{twice}\n{twice}\ny = 3\n"))
    assert (again.passages, again.changed) == (3, 1)


async def test_a_plan_says_what_to_send_what_moved_and_what_is_gone(services: Services, owner: Caller) -> None:
    await store(services, owner, ("a.py", CODE), ("b.md", GUIDE), ("sub/c.py", "z = 1\n"))
    async with services.database.statement() as tx:
        mine = text("SELECT locator, hash FROM sources WHERE app_id = :app AND namespace = 'shop'")
        hashes = {row.locator: row.hash for row in await tx.execute(mine, {"app": owner.app_id})}
    listed = [FileSeen("moved/a.py", hashes["a.py"]), FileSeen("b.md", "other"), FileSeen("new.py", "n")]
    plan = await services.files.plan(owner, "shop", listed)
    assert (plan.wanted, plan.gone, plan.unchanged) == (["b.md", "new.py"], ["sub/c.py"], 0)
    assert plan.renamed == [Rename("a.py", "moved/a.py")]
    other = await services.files.plan(owner, "shop", [FileSeen("a.txt", hashes["a.py"])])
    assert (other.wanted, other.renamed) == (["a.txt"], [])
    below = await services.files.plan(owner, "shop", [FileSeen("sub/c.py", hashes["sub/c.py"])], below="sub")
    assert (below.wanted, below.renamed, below.gone, below.unchanged) == ([], [], [], 1)
    before = await ids(services, owner, "a.py")
    done = await services.files.finish(owner, "shop", renamed=plan.renamed, gone=plan.gone)
    assert (done.renamed, done.removed) == (1, 1)
    assert await ids(services, owner, "moved/a.py") == before
    page = await services.files.list(owner, namespaces=("shop",))
    assert [(item.path, item.language, item.passages) for item in page.items] == [
        ("b.md", "markdown", 3), ("moved/a.py", "python", 1),
    ]  # fmt: skip
    again = await services.files.finish(owner, "shop", renamed=plan.renamed, gone=plan.gone)
    assert (again.renamed, again.removed) == (0, 0)
    taken = await services.files.finish(owner, "shop", renamed=[Rename("b.md", "moved/a.py")])
    assert taken.renamed == 0


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "C:/x", "a\\b", "a\x00b", "x" * 1_001, "\ud800"]
)
async def test_paths_stay_in_their_folder(services: Services, owner: Caller, path: str) -> None:
    with pytest.raises(BatchRefused):
        await services.files.store(owner, "shop", [NewFile(path, "x")])
    with pytest.raises(Invalid):
        await services.files.plan(owner, "shop", [FileSeen(path, "h")])
    with pytest.raises(Invalid):
        await services.files.finish(owner, "shop", gone=[path])


async def test_secrets_are_redacted_before_anything_is_made_of_them(services: Services, owner: Caller) -> None:
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    [stored] = await store(services, owner, ("deploy.sh", f"export TOKEN={key}\nmake deploy\n"))
    assert stored.redacted
    [content] = await ids(services, owner, "deploy.sh")
    assert key not in content
    assert "make deploy" in content


async def test_a_rule_hides_an_apps_own_files_from_it(services: Services, owner: Caller, app_caller: Caller) -> None:
    await store(services, app_caller, ("a.py", CODE))
    await services.grants.create(
        owner, GrantCreate(effect="deny", app=app_caller.app, object_type="namespace", object="shop")
    )
    plan = await services.files.plan(app_caller, "shop", [FileSeen("b.py", "h")])
    assert (plan.wanted, plan.gone) == (["b.py"], [])
    for path in ("a.py", "b.py"):  # there is one, and there is none
        with pytest.raises(Forbidden, match="rule hides"):
            await services.files.store(app_caller, "shop", [NewFile(path, "x = 1\n")])
    assert (await services.files.finish(app_caller, "shop", gone=["a.py"])).removed == 0
    assert (await services.files.list(owner)).total == 1


async def test_a_text_that_is_too_long_and_a_batch_without_any_are_refused(services: Services, owner: Caller) -> None:
    results = await services.files.store(owner, "shop", [NewFile("a.py", "x" * 1_000_001), NewFile("b.py", "\n \n")])
    assert isinstance(results[0], Invalid)
    assert isinstance(results[1], FileStored)
    assert results[1].passages == 0
    with pytest.raises(Invalid):
        await services.files.store(owner, "shop", [])
