"""Texts of documents are read in a process of their own, and a document that exhausts it is refused."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import random
import tempfile
import zipfile
import zlib
from typing import Any

import psutil
import pytest

from openmemory.errors import Invalid
from openmemory.sources.text_extraction import child, extraction, formats
from openmemory.sources.text_extraction.extraction import Extracted, TextExtraction
from tests.sources.text_extraction.documents import pdf, word


async def extract(name: str, content: bytes, **settings: Any) -> Extracted:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        return await TextExtraction(**settings).extract(name, file)


async def refusal(name: str, content: bytes, **settings: Any) -> Invalid:
    with pytest.raises(Invalid) as refused:
        await extract(name, content, **settings)
    return refused.value


async def read_or_refused(name: str, content: bytes, **settings: Any) -> Extracted | None:
    """The text; None if the document is refused. Other errors are raised."""
    with contextlib.suppress(Invalid):
        return await extract(name, content, **settings)
    return None


@pytest.mark.parametrize("packed", [True, False])
async def test_the_pages_of_a_pdf_are_parts(packed: bool) -> None:
    found = await extract("lease.pdf", pdf("The rent is 900 euros.\nIt is due on the third.", "", "Pets are allowed."))
    assert (found.media_type, found.language, found.lines, found.cut) == ("application/pdf", "text", False, False)
    assert [(part.heading, part.text.split()) for part in found.parts] == [
        ("Page 1", ["The", "rent", "is", "900", "euros.", "It", "is", "due", "on", "the", "third."]),
        ("Page 3", ["Pets", "are", "allowed."]),
    ]


async def test_the_headings_and_tables_of_a_word_document_are_kept() -> None:
    content = word(
        ("Title", "Lease"), ("Heading 1", "Rent"), ("Normal", "Due on the third."),
        rows=(("month", "euros"), ("May", "900")),
    )  # fmt: skip
    [part] = (found := await extract("lease.docx", content)).parts
    assert found.language == "markdown"
    assert part.text.split("\n") == [
        "# Lease",
        "",
        "# Rent",
        "",
        "Due on the third.",
        "",
        "month | euros",
        "May | 900",
        "",
    ]


async def test_a_page_of_html_is_its_text() -> None:
    page = """<!DOCTYPE html><html><head><title>Never</title><style>p {}</style></head><body>
    <script>alert("never")</script><h1>Rent</h1><p>It is <b>900</b>\n euros.<p>Caf&eacute; Zoë
    <ul><li>Pets</li><li>Bikes</li></ul><table><tr><td>May<td>900</table></body></html>"""
    [part] = (await extract("page.html", page.encode())).parts
    lines = [line for line in part.text.split("\n") if line]
    assert lines == ["# Rent", "It is 900 euros.", "Café Zoë", "Pets", "Bikes", "May | 900"]
    [part] = (await extract("page.html", page.encode("utf-16"))).parts
    assert "Café Zoë" in part.text
    declared = '<html><meta charset="iso-8859-1"><p>Café'.encode("latin-1")
    assert "Café" in (await extract("page.html", declared)).parts[0].text


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("notes.txt", "Zoë\r\n".encode(), "Zoë\r\n"),
        ("notes.txt", "Zoë".encode("utf-8-sig"), "Zoë"),
        ("notes.txt", "Zoë".encode("utf-16"), "Zoë"),
        ("notes", "Zoë – ok".encode("cp1252"), "Zoë – ok"),
        ("data.csv", b"a,b\n1,2\n", "a,b\n1,2\n"),
        ("data.json", b'{"a": 1}', '{"a": 1}'),
    ],
)
async def test_plain_text_is_read_in_its_encoding(name: str, content: bytes, said: str) -> None:
    found = await extract(name, content)
    assert [part.text for part in found.parts] == [said]
    assert found.lines


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "no format"),
        ("late.txt", b"a" * 2000 + b"\0\xff\xfe", "no text in UTF-8"),
        ("lease.pdf", b"no pdf", "another format"),
        ("lease.pdf", b"%PDF-1.4\nrubbish", "damaged"),
        ("lease.docx", b"PK\x03\x04rubbish", "damaged"),
        ("empty.html", b"<html>", None),
    ],
)
async def test_what_cannot_be_read_is_refused_with_a_reason(name: str, content: bytes, words: str | None) -> None:
    if words is None:
        assert (await extract(name, content)).parts[0].text.strip() == ""
        return
    error = await refusal(name, content)
    assert (error.field, error.code) == ("file", "document_unreadable")
    assert words in error.message


async def test_a_pdf_with_a_password_is_refused() -> None:
    import pypdf

    writer = pypdf.PdfWriter(io.BytesIO(pdf("The rent is 900 euros.")))
    writer.encrypt("secret")
    file = io.BytesIO()
    writer.write(file)
    assert "password" in (await refusal("lease.pdf", file.getvalue())).message


def zipped(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file.getvalue()


async def test_zips_that_are_no_word_documents_or_unpack_to_much_are_refused() -> None:
    assert "no Word document" in (await refusal("a.zip", zipped({"a.txt": b"a"}))).message
    bomb = zipped({"word/document.xml": b"", "big": bytes(210 * 1024 * 1024)})
    assert len(bomb) < 1_000_000
    assert "larger than 200 MB" in (await refusal("bomb.docx", bomb)).message
    liar = zipped({"word/document.xml": b"<" * 10_000, "[Content_Types].xml": b"<!DOCTYPE x"})
    assert (await refusal("liar.docx", liar)).code == "document_unreadable"


async def test_entities_of_xml_are_not_expanded() -> None:
    lease = io.BytesIO(word(("Normal", "MARK")))
    with zipfile.ZipFile(lease) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    bomb = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY f SYSTEM "file:///etc/passwd">]>'
    body = files["word/document.xml"].decode().replace("MARK", "MARK&a;&f;")
    head, rest = body.split("?>", 1)
    files["word/document.xml"] = f"{head}?>{bomb}{rest}".encode()
    try:
        said = (await extract("lease.docx", zipped(files))).parts[0].text
    except Invalid:
        return
    assert "root:" not in said
    assert "ha" not in said


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("small.pdf", pdf("a")),
        ("deep.html", b"<div>" * 200_000 + b"bottom"),
        ("deep.json", b"[" * 500_000),
        ("brackets.txt", b"(" * 500_000),
        ("line.txt", b"word " * 400_000),
    ],
)
async def test_strange_documents_are_read_or_refused_in_time(name: str, content: bytes) -> None:
    async with asyncio.timeout(60):
        found = await read_or_refused(name, content)
    assert found is None or len(found.parts) == 1


@pytest.mark.slow
async def test_a_stream_that_unpacks_to_gigabytes_is_refused_or_cut() -> None:
    stream = zlib.compress(b"BT (a) Tj ET " * 40_000_000, 1)
    plain = pdf("a", packed=True)
    at = plain.index(b"<< /Filter /FlateDecode")
    end = plain.index(b"endstream", at)
    bomb = (
        plain[:at]
        + f"<< /Filter /FlateDecode /Length {len(stream)} >>\nstream\n".encode()
        + stream
        + b"\n"
        + plain[end:]
    )
    async with asyncio.timeout(60):
        found = await read_or_refused("bomb.pdf", bomb, timeout=20)
    assert found is None or sum(len(part.text) for part in found.parts) <= child.MAX_CHARACTERS


async def test_a_long_document_is_cut() -> None:
    found = await extract("long.txt", b"0123456789" * 300_000)
    assert found.cut
    assert [len(part.text) for part in found.parts] == [child.MAX_CHARACTERS]


async def test_a_reader_that_takes_too_long_is_ended() -> None:
    error = await refusal("long.txt", b"a" * 1000, timeout=0.0)
    assert error.code == "document_too_complex"
    left = [each for each in psutil.Process().children() if "text_extraction.child" in " ".join(each.cmdline())]
    assert not left


async def test_a_reader_that_says_too_much_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "_MAX_OUTPUT", 1000)
    assert (await refusal("long.txt", b"a" * 5000)).code == "document_too_complex"


async def test_noise_is_read_or_refused() -> None:
    chance = random.Random(7)
    whole = {"a.pdf": pdf("The rent is 900 euros."), "a.docx": word(("Normal", "The rent is 900 euros."))}
    for _ in range(6):
        for name, content in whole.items():
            damaged = bytearray(content)
            for _ in range(chance.randint(1, 40)):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            cut = bytes(damaged[: chance.randint(len(damaged) // 2, len(damaged))])
            await read_or_refused(name, cut)


def epub(text: str) -> bytes:
    """A book of one chapter."""
    container = "<container xmlns='urn:oasis:names:tc:opendocument:xmlns:container'><rootfiles>"
    package = (
        "<package xmlns='http://www.idpf.org/2007/opf'><metadata/><manifest><item id='a' href='a.xhtml'/></manifest>"
    )
    return zipped(
        {
            "META-INF/container.xml": f"{container}<rootfile full-path='c.opf'/></rootfiles></container>".encode(),
            "c.opf": f"{package}<spine><itemref idref='a'/></spine></package>".encode(),
            "a.xhtml": f"<html><body><h1>Tea</h1><p>{text}</p></body></html>".encode(),
        }
    )


@pytest.mark.slow
async def test_markitdown_reads_more() -> None:
    found = await extract("tea.epub", epub("With milk."))
    assert (found.media_type, found.language, found.lines) == ("application/epub+zip", "markdown", False)
    [part] = found.parts
    assert part.text.split() == ["#", "Tea", "With", "milk."]
    cell = {"cell_type": "markdown", "metadata": {}, "source": ["# Tea\n", "With milk."]}
    notebook = json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    [part] = (await extract("tea.ipynb", notebook.encode())).parts
    assert part.text.split() == ["#", "Tea", "With", "milk."]


@pytest.mark.slow
async def test_what_markitdown_cannot_read_says_why() -> None:
    assert "markitdown[xlsx]" in (await refusal("a.xlsx", zipped({"xl/workbook.xml": b"<workbook/>"}))).message
    assert "damaged" in (await refusal("a.epub", b"PK\x03\x04\0\0")).message
    bomb = zipped({f"{number}.xhtml": bytes(30 * 1024 * 1024) for number in range(8)})
    assert "when it is unpacked" in (await refusal("a.epub", bomb)).message


@pytest.mark.slow
def test_without_markitdown_its_formats_name_it_and_text_stays_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "installed", lambda _: False)
    with pytest.raises(formats.Unreadable, match=r"pip install 'openmemory-server\[markitdown\]'"):
        formats.format_of("a.epub", io.BytesIO(epub("With milk.")))
    assert formats.format_of("a.ipynb", io.BytesIO(b"{}")).media_type == "text/plain"
