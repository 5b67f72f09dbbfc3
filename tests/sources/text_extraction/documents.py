"""Documents that tests make and send: a PDF of some pages, and a Word document."""

from __future__ import annotations

import io
import zlib

import docx

from openmemory.identity.caller import Caller
from openmemory.services import Services
from openmemory.sources.schemas import DocumentStored, NewDocument


def pdf(*pages: str, packed: bool = True) -> bytes:
    """A PDF with one line of text for every line of every page."""
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    numbers = [4 + 2 * place for place in range(len(pages))]
    kids = " ".join(f"{number} 0 R" for number in numbers)
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for number, text in zip(numbers, pages, strict=True):
        lines = "".join(f"({line}) Tj 0 -14 Td " for line in text.split("\n"))
        stream = f"BT /F1 12 Tf 72 720 Td {lines}ET".encode()
        how = ""
        if packed:
            stream, how = zlib.compress(stream), "/Filter /FlateDecode "
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {number + 1} 0 R "
            f"/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        objects.append(f"<< {how}/Length {len(stream)} >>\nstream\n".encode() + stream + b"\nendstream")
    out, places = bytearray(b"%PDF-1.4\n"), list[int]()
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n".encode() + body + b"\nendobj\n"
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{place:010d} 00000 n \n".encode() for place in places)
    out += f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(out)


def word(*paragraphs: tuple[str, str], rows: tuple[tuple[str, ...], ...] = ()) -> bytes:
    """A Word document of paragraphs, each with its style, and a table."""
    document = docx.Document()
    for style, text in paragraphs:
        document.add_paragraph(text, style=style)
    if rows:
        table = document.add_table(rows=len(rows), cols=len(rows[0]))
        for row, cells in zip(table.rows, rows, strict=True):
            for cell, text in zip(row.cells, cells, strict=True):
                cell.text = text
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


async def send_document(services: Services, caller: Caller, new: NewDocument, content: bytes) -> DocumentStored:
    """Stores a document from a file of the operating system, as an upload does."""
    async with services.documents.upload(caller.principal) as spool:
        spool.write(content)
        spool.flush()
        return await services.documents.store(caller, new, spool.file)
