"""A hook of MkDocs: brings pages from outside `docs/`, fills the reference in, and lets no page load from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
GENERATED = ROOT / "build" / "reference"
PAGES = {
    "README.md": "index.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "app/openmemory/ARCHITECTURE.md": "internals/architecture.md",
}
"""Files of the project → their pages. Those of `docs/` keep their paths."""

SOURCES = {page: source for source, page in PAGES.items()}
LINK = re.compile(r"(?<=]\()(?![a-z]+:|#)([^)#\s]+)")
MARKER = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
LOADED = re.compile(r"""(?:<(?:script|img|iframe)\b[^>]*\bsrc|<link\b[^>]*\bhref)=["']?((?:https?:)?//[^"'\s>]+)""")
IMPORTED = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages that are files of the project outside `docs/`."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Fills in what is generated, and has links lead to pages where the text links to files."""
    here = page.file.src_uri
    source = SOURCES.get(here, f"docs/{here}")

    def moved(match: re.Match[str]) -> str:
        target = normpath(join(dirname(source), match[1]))
        found = PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if found is None and (ROOT / target).exists():
            raise PluginError(f"{source} links to {target}, which is no page")
        return relpath(found, dirname(here) or ".") if found else match[1]

    filled = MARKER.sub(lambda match: (GENERATED / f"{match[1]}.md").read_text(encoding="utf-8"), markdown)
    return LINK.sub(moved, filled)


def on_post_build(*, config: Any) -> None:
    """Fails if a page, script or style sheet would load something from another host."""
    for file in sorted(Path(config.site_dir).rglob("*")):
        if pattern := {".html": LOADED, ".css": IMPORTED}.get(file.suffix):
            for match in pattern.finditer(file.read_text(encoding="utf-8")):
                raise PluginError(f"{file.relative_to(config.site_dir)} loads {match[1]}")
