"""Links between pages lead somewhere. `make docs` checks the same on the built site."""

from __future__ import annotations

import re

import yaml

from tests.docs.conftest import PAGES, ROOT, Page, read

LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Page) -> set[str]:
    """The anchors of a page's headings, as GitHub and MkDocs make them."""
    kept = (re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in HEADING.findall(page.prose))
    return {re.sub(r"[-\s]+", "-", heading) for heading in kept}


def test_every_link_leads_to_a_file_and_a_heading(pages: list[Page]) -> None:
    broken = []
    for page in pages:
        for path, anchor in LINK.findall(page.prose):
            target = (page.path.parent / path).resolve() if path else page.path
            if not target.exists() or (anchor and anchor not in anchors(read(target))):
                broken.append(f"{page}: {path}#{anchor}")
    assert broken == []


def test_the_site_has_every_page(pages: list[Page]) -> None:
    def listed(node: object) -> set[str]:
        if isinstance(node, str):
            return {node}
        return set().union(*map(listed, node.values() if isinstance(node, dict) else node))  # type: ignore[attr-defined]

    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    docs = ROOT / "docs"
    assert {path.relative_to(docs).as_posix() for path in PAGES if path.is_relative_to(docs)} <= listed(nav)


def test_a_page_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        if path in reached or path.suffix != ".md":
            continue
        reached.add(path)
        waiting += [(path.parent / target).resolve() for target, _ in LINK.findall(read(path).prose) if target]
    guides = {path for path in PAGES if path.parent.name in {"guides", "concepts", "operations", "reference"}}
    assert guides - reached == set()
