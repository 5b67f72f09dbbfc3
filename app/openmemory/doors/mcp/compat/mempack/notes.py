"""Tools that add, link and show memories by a title. Offered by the toolset `notes`.

Their names and arguments are those of Mempack.
"""

from __future__ import annotations

from typing import Annotated, Any

from mcp_types import ToolAnnotations
from pydantic import BeforeValidator, Field

from openmemory.doors.mcp.compact import block, memory_line, unusual
from openmemory.doors.mcp.compat.mempack.context import THREAD, ProjectArguments, stored_thread
from openmemory.doors.mcp.tool import Answer, Arguments, Reference, Strings, Tool, ToolCall
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.errors import Invalid
from openmemory.identity.names import PERSON
from openmemory.memories.notes import NamesUpdate, NoteUpdate, note_text, title_and_summary
from openmemory.memories.schemas import MemoryCreate
from openmemory.projects.anchors import COMMIT
from openmemory.services import Services


def _at_commas(value: Any) -> Any:
    """Reads a list that is sent as one text with commas."""
    if not isinstance(value, str) or value.lstrip().startswith("["):
        return value
    return [name for each in value.split(",") if (name := each.strip())]


Names = Annotated[Strings, BeforeValidator(_at_commas)]
"""An argument that is a list of names, also as JSON text, or as one text with commas between them."""


class AddNoteArguments(ProjectArguments):
    about: str | None = Field(None, description="person: of no project.")
    title: str = Field(description="What it says, in a sentence.")
    summary: str | None = Field(None, description="More about it.")
    thread: str | None = None
    tags: Names = Field(default_factory=list)
    entities: Names = Field(default_factory=list)


class _ByIdArguments(Arguments):
    needless = frozenset({"repo", "workspace"})  # an id is unique in all of them


class UpdateNoteArguments(_ByIdArguments):
    id: Reference
    title: str | None = None
    summary: str | None = Field(None, description="A dash removes it.")
    tags: Names | None = Field(None, description="All tags.")
    tags_add: Names = Field(default_factory=list)
    tags_remove: Names = Field(default_factory=list)
    entities: Names | None = None
    entities_add: Names = Field(default_factory=list)
    entities_remove: Names = Field(default_factory=list)


class LinkArguments(_ByIdArguments):
    from_id: Reference
    rel: str = Field(description="What the first is to the second, such as fixes or depends_on.")
    to_id: Reference


class ShowArguments(Arguments):
    id: Reference


_TEXT = "title and summary"
"""The arguments that an error about the text of a note names."""


async def _add(services: Services, call: ToolCall[AddNoteArguments]) -> Answer:
    arguments = call.arguments
    title = _title(arguments.title)
    text = note_text(title, arguments.summary)
    metadata = {name: value for name in ("tags", "entities") if (value := getattr(arguments, name))}
    head = arguments.head(call.offer)
    namespace = arguments.namespace(call.offer)
    if arguments.about is not None:
        target = call.offer.project.target(arguments.repo, arguments.about)
        namespace, head = (PERSON, None) if target == PERSON else (namespace, head)
    metadata |= {COMMIT: head} if head else {}
    thread = stored_thread(arguments.thread)
    new = MemoryCreate(text, namespace=namespace, thread_id=thread, kind="note", metadata=metadata)
    row = await services.memories.add(call.caller, services.memories.intake.created(new, _TEXT))
    [short] = (await services.short_ids.shortened(call.caller, [row.id])).values()
    data = {
        "id": str(row.id), "thread_id": thread or THREAD, "thread_used": thread or THREAD,
        "thread_defaulted": arguments.thread is None, "title": title,
        "anchor_commit": head or "", "created_at": row.created_at.isoformat(),
        "event": row.event.value,
    }  # fmt: skip
    return Answer([f"{row.event.value} {short}{call.offer.project.format_target(namespace)}"], data)


async def _update(services: Services, call: ToolCall[UpdateNoteArguments]) -> Answer:
    arguments = call.arguments
    [id_] = await services.short_ids.resolved(call.caller, [arguments.id], "id")
    names = {
        "tags": NamesUpdate(arguments.tags, arguments.tags_add, arguments.tags_remove),
        "entities": NamesUpdate(arguments.entities, arguments.entities_add, arguments.entities_remove),
    }
    title = None if arguments.title is None else _title(arguments.title)
    change = NoteUpdate(title, "" if arguments.summary == "-" else arguments.summary, names)
    updated = await services.memories.update(call.caller, id_, change, field=_TEXT)
    memory = updated.memory
    title, summary = title_and_summary(memory.content)
    data = {
        "id": str(id_), "thread_id": memory.thread_id or THREAD, "title": title, "summary": summary,
        "operation_at": memory.updated_at.isoformat(), "event": updated.event.value,
    }  # fmt: skip
    return Answer([f"{updated.event.value} {arguments.id}"], data)


def _title(text: str) -> str:
    """Returns a title on one line.

    Raises:
        Invalid: it is blank.
    """
    title = " ".join(text.splitlines()).strip()
    if not title:
        raise Invalid("title", "must not be empty or blank")
    return title


async def _link(services: Services, call: ToolCall[LinkArguments]) -> Answer:
    arguments = call.arguments
    [from_id] = await services.short_ids.resolved(call.caller, [arguments.from_id], "from_id")
    [to_id] = await services.short_ids.resolved(call.caller, [arguments.to_id], "to_id")
    link = await services.links.link(call.caller, from_id, arguments.rel, to_id)
    status = "linked" if link.created else "exists"
    data = {
        "from_id": str(link.from_id), "rel": link.rel, "to_id": str(link.to_id), "weight": 1,
        "created": link.created, "status": status,
    }  # fmt: skip
    return Answer([f"{status}: {arguments.from_id} {link.rel} {arguments.to_id}"], data)


async def _show(services: Services, call: ToolCall[ShowArguments]) -> Answer:
    [id_] = await services.short_ids.resolved(call.caller, [call.arguments.id], "id")
    memory = await services.memories.get(call.caller, id_)
    linked = await services.links.of(call.caller, id_)
    short = await services.short_ids.shortened(call.caller, [id_, *(one.id for one in linked.links)])
    untrusted = Untrusted(services.settings.capture.injection)
    text, app = untrusted.text(memory.content, memory.labels), untrusted.name(memory.text_app_name)
    zone = call.caller.timezone
    marks = unusual(memory, None, untrusted.name(memory.namespace), zone)
    lines = [memory_line(short[id_], memory, app, text, marks, zone=zone)]
    links = []
    for one in linked.links:
        rel, other = untrusted.name(one.rel), untrusted.text(one.memory, one.labels)
        lines.append(f"{'->' if one.direction == 'out' else '<-'} {rel} {short[one.id]}: {block(other)}")
        links.append({"direction": one.direction, "rel": rel, "id": str(one.id), "memory": other})
    data = {"id": str(id_), "memory": text, **untrusted.names(memory), "links": links,
            "created_at": memory.created_at.isoformat(), "updated_at": memory.updated_at.isoformat()}  # fmt: skip
    return Answer(lines, data, untrusted.note())


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "mem_add_memory", "Add a note", "Remember a fact or a decision of a project by a title.",
        AddNoteArguments, ToolAnnotations(read_only_hint=False, destructive_hint=False),
        _add, "Error adding to memory", toolset="notes",
    ),
    Tool(
        "mem_update_memory", "Change a note", "Change the title, summary, tags or entities of a memory.",
        UpdateNoteArguments, ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True),
        _update, "Error updating memory", toolset="notes",
    ),
    Tool(
        "mem_link_memories", "Link memories", "Link two memories. Links of one relation form no cycle.",
        LinkArguments, ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True),
        _link, "Error linking memories", toolset="notes",
    ),
    Tool(
        "mem_show", "Show a memory", "Show a memory as a whole, with its links.",
        ShowArguments, ToolAnnotations(read_only_hint=True),
        _show, "Error getting memory", toolset="notes",
    ),
)  # fmt: skip
"""The tools for notes."""
