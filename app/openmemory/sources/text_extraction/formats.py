"""Reads the text of a document: PDF, Word, HTML, and every format that is plain text. markitdown reads more, if it is
installed.

Runs in a process of its own (`text_extraction.child`), because a document may be made to exhaust its reader.
"""

from __future__ import annotations

import codecs
import io
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from typing import BinaryIO, NamedTuple

MAX_UNPACKED = 200 * 1024 * 1024
"""The number of bytes that a zipped document may have when it is unpacked."""

MAX_ENTRIES = 10_000
"""The number of files in a zipped document."""

MAX_LEVELS = 200
"""The number of elements of an HTML page that may stand inside each other."""

_PDF = b"%PDF-"
_ZIP = b"PK\x03\x04"
_HTML = frozenset({"html", "htm", "xhtml"})
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "details", "div",
    "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3",
    "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p",
    "pre", "section", "summary", "table", "tbody", "tfoot", "thead", "tr", "ul",
})  # fmt: skip
_LEFT_OUT = frozenset({"script", "style", "noscript", "template", "head", "svg", "object", "iframe"})


class Unreadable(Exception):
    """The document has no text that can be read. The message has the reason."""


class TextPart(NamedTuple):
    """A part of a document: its text, and its heading, such as the number of a page."""

    text: str
    heading: str | None = None


class Format(NamedTuple):
    """The format of a document: its media type, the language of its text, and if the text has the file's lines."""

    media_type: str
    language: str
    lines: bool


_PLAIN = {
    "md": "text/markdown", "markdown": "text/markdown", "csv": "text/csv", "tsv": "text/tab-separated-values",
    "json": "application/json", "xml": "application/xml", "yaml": "application/yaml", "yml": "application/yaml",
}  # fmt: skip
PDF = Format("application/pdf", "text", lines=False)
WORD = Format("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "markdown", lines=False)
HTML = Format("text/html", "markdown", lines=False)

_CONVERTED = {
    "epub": "application/epub+zip",
    "ipynb": "application/x-ipynb+json",
    "pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    "xls": "application/vnd.ms-excel",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
"""The endings of the names of documents that markitdown reads. It looks at more, and would run programs for some."""

_BY_MARKITDOWN = {media_type: ending for ending, media_type in _CONVERTED.items()}


def format_of(name: str, file: BinaryIO) -> Format:
    """The format of a document by its first bytes, and for plain text by the ending of its name.

    Raises:
        Unreadable: it is none that can be read.
    """
    start = file.read(1024)
    file.seek(0)
    ending = name.rpartition(".")[2].lower() if "." in name else ""
    if _PDF in start:
        return PDF
    if ending in _CONVERTED and (installed("markitdown") or b"\0" in start):
        return _convert(ending, start, file)
    if start.startswith(_ZIP):
        return _zipped(file)
    if ending in ("pdf", "docx"):
        raise Unreadable(f"has a name that ends in .{ending}, and is of another format")
    if b"\0" in start and not _mark(start):
        raise Unreadable("is of no format that can be read: send PDF, Word (docx), HTML or text")
    if ending in _HTML or start.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        return HTML
    language = {"md": "markdown", "markdown": "markdown", "csv": "csv", "tsv": "csv", "json": "json"}
    return Format(_PLAIN.get(ending, "text/plain"), language.get(ending, "text"), lines=True)


def installed(package: str) -> bool:
    """True if a package can be imported."""
    return find_spec(package) is not None


def _convert(ending: str, start: bytes, file: BinaryIO) -> Format:
    if not installed("markitdown"):
        raise Unreadable(f"ends in .{ending}, which is read with `pip install 'openmemory-server[markitdown]'`")
    if start.startswith(_ZIP):
        _entries(file)
    return Format(_CONVERTED[ending], "markdown", lines=False)


def _zipped(file: BinaryIO) -> Format:
    if "word/document.xml" not in _entries(file):
        raise Unreadable("is a zip that is no Word document (docx)")
    return WORD


def _entries(file: BinaryIO) -> set[str]:
    """The names of the files in a zip that is not too large."""
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise Unreadable("is a zip that is damaged") from error
    finally:
        file.seek(0)
    if len(entries) > MAX_ENTRIES or sum(entry.file_size for entry in entries) > MAX_UNPACKED:
        raise Unreadable(f"is larger than {MAX_UNPACKED // 2**20} MB when it is unpacked")
    return {entry.filename for entry in entries}


def parts(form: Format, file: BinaryIO) -> Iterator[TextPart]:
    """Yields the parts of a document in order.

    Raises:
        Unreadable: it cannot be read.
    """
    if form is PDF:
        return _pages(file)
    if form is WORD:
        return _of_word(file)
    if form is HTML:
        return iter([TextPart(_of_html(file.read()))])
    if form.media_type in _BY_MARKITDOWN:
        return iter([TextPart(_by_markitdown(file, _BY_MARKITDOWN[form.media_type]))])
    return iter([TextPart(_decode(file.read()))])


def _mark(start: bytes) -> str | None:
    return next((name for mark, name in _BYTE_ORDER_MARKS.items() if start.startswith(mark)), None)


def _decode(data: bytes) -> str:
    """The text of a file: Unicode with a byte order mark, UTF-8, or else Windows-1252."""
    try:
        text = data.decode(_mark(data[:4]) or "utf-8")
    except UnicodeDecodeError:
        if b"\0" in data:
            raise Unreadable("is no text in UTF-8 or UTF-16") from None
        text = data.decode("cp1252", "replace")
    return text.replace("\0", "")


def _pages(file: BinaryIO) -> Iterator[TextPart]:
    import logging

    import pypdf
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = pypdf.PdfReader(file)
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("needs a password")
        count = len(reader.pages)
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise Unreadable("is a PDF that is damaged") from error
    for number in range(count):
        try:
            text = reader.pages[number].extract_text()
        except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
            continue  # a damaged page does not hide the others
        if text.strip():
            yield TextPart(text.replace("\0", ""), f"Page {number + 1}")


def _of_word(file: BinaryIO) -> Iterator[TextPart]:
    import docx
    from docx.table import Table
    from lxml.etree import LxmlError

    try:
        blocks = list(docx.Document(file).iter_inner_content())
    except (LxmlError, zipfile.BadZipFile, ValueError, KeyError, OSError, AttributeError, EOFError) as error:
        raise Unreadable("is a Word document that is damaged") from error
    lines = list[str]()
    for block in blocks:
        if isinstance(block, Table):
            lines += [" | ".join(cell.text for cell in row.cells) for row in block.rows]
            lines.append("")
            continue
        style = (block.style.name if block.style is not None else "") or ""
        level = style.removeprefix("Heading ") if style.startswith("Heading ") else "1" if style == "Title" else ""
        mark = "#" * min(int(level), 6) + " " if level.isdigit() and block.text.strip() else ""
        lines += [mark + block.text, ""]
    yield TextPart("\n".join(lines))


def _by_markitdown(file: BinaryIO, ending: str) -> str:
    from markitdown import FileConversionException, MarkItDown, MissingDependencyException, StreamInfo

    converter = MarkItDown(enable_plugins=False)
    try:
        return converter.convert_stream(file, stream_info=StreamInfo(extension=f".{ending}")).markdown
    except Exception as error:  # each of its readers fails in its own way
        attempts = (error.attempts or ()) if isinstance(error, FileConversionException) else ()
        reasons = [attempt.exc_info[0] for attempt in attempts if attempt.exc_info]
        if MissingDependencyException in reasons:
            raise Unreadable(f"ends in .{ending}, which is read with `pip install 'markitdown[{ending}]'`") from error
        raise Unreadable(f"is a .{ending} file that is damaged") from error


def _of_html(data: bytes) -> str:
    from lxml import etree, html

    if mark := _mark(data[:4]):
        data = data.decode(mark, "replace").encode()
    # Without a declaration, the parser would read UTF-8 as Latin-1.
    declared = b"charset" in data[:2048].lower()
    encoding = None if declared and not mark else "utf-8"
    parser = html.HTMLParser(no_network=True, huge_tree=False, recover=True, encoding=encoding)
    try:
        root = html.document_fromstring(data, parser=parser)
    except (etree.LxmlError, ValueError) as error:
        raise Unreadable("is an HTML page that holds nothing") from error
    out = io.StringIO()
    hidden = level = 0
    for event, element in etree.iterwalk(root, events=("start", "end")):
        name = element.tag if isinstance(element.tag, str) else "script"
        if event == "start":
            level += 1
            hidden += name in _LEFT_OUT
            if hidden or level > MAX_LEVELS:
                continue
            if name in _BLOCKS:
                out.write("\n\n" if name[0] in "hp" or name == "table" else "\n")
            if len(name) == 2 and name[0] == "h" and name[1].isdigit():
                out.write("#" * min(int(name[1]), 6) + " ")
            elif name in ("td", "th") and element.getprevious() is not None:
                out.write(" | ")
            out.write(_words(element.text, preformatted=name == "pre"))
            continue
        level -= 1
        hidden -= name in _LEFT_OUT
        if not hidden and level < MAX_LEVELS:
            if name in _BLOCKS:
                out.write("\n")
            out.write(_words(element.tail))
    lines = (line.strip() if not line.startswith("    ") else line.rstrip() for line in out.getvalue().split("\n"))
    return "\n".join(lines)


def _words(text: str | None, *, preformatted: bool = False) -> str:
    """A text as a browser shows it: with one blank for every run of them, unless it is kept as it is."""
    if not text or preformatted:
        return text or ""
    one = " ".join(text.split())
    return f"{' ' * text[0].isspace()}{one}{' ' * text[-1].isspace()}" if one else " "
