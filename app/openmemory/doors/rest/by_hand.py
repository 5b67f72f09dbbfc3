"""The routes that are written by hand: why each is no operation, and the command and the tool that do the same.

A use case that is a request and an answer is described in `openmemory.operations`.
"""

from __future__ import annotations

from typing import NamedTuple


class ByHand(NamedTuple):
    """A route that is no operation. `command`, `tool`: what does the same; empty: nothing."""

    because: str
    command: str = ""
    tool: str = ""


_BODY = "Its body or its answer has a form of OpenMemory that parameters do not give."
_FILE = "It receives or sends a file."
_ENDS = "It ends when its client closes the connection."
_PROBE = "Its status or its format is for programs that watch the service."

BY_HAND = {
    "search_by_query": ByHand(_ENDS, "search", "search_memory"),
    "search_memories": ByHand(_ENDS, "search", "search_memory"),
    "list_memories": ByHand(_BODY, "list", "list_memories"),
    "filter_memories": ByHand(_BODY, "list", "list_memories"),
    "add_memory": ByHand(_BODY, "add", "add_memories"),
    "add_memories": ByHand(_BODY, "import"),
    "update_memory": ByHand(_BODY, "update", "update_memory"),
    "delete_memories": ByHand(_BODY, "delete", "delete_memories"),
    "archive_memories": ByHand(_BODY, "archive"),
    "pause_memories": ByHand(_BODY, "pause"),
    "store_document": ByHand(_FILE, "documents add"),
    "download_document": ByHand(_FILE, "documents download"),
    "export_bundle": ByHand(_FILE, "share export"),
    "import_bundle": ByHand(_FILE, "share import"),
    "export_backup": ByHand(_FILE, "export"),
    "import_backup": ByHand(_FILE, "import"),
    "import_file": ByHand(_FILE, "import"),
    "get_config": ByHand(_BODY, "models show"),
    "put_config": ByHand(_BODY),
    "patch_config": ByHand(_BODY, "models choose"),
    "reset_config": ByHand(_BODY, "models reset"),
    "test_config": ByHand(_BODY, "models test"),
    "get_llm_config": ByHand(_BODY),
    "put_llm_config": ByHand(_BODY),
    "get_embedder_config": ByHand(_BODY),
    "put_embedder_config": ByHand(_BODY),
    "get_vector_store_config": ByHand(_BODY),
    "put_vector_store_config": ByHand(_BODY),
    "get_openmemory_config": ByHand(_BODY),
    "put_openmemory_config": ByHand(_BODY, "models instruct"),
    "erase_user": ByHand("A name may end with a slash, which `confirm` decides.", "erase"),
    "health": ByHand(_PROBE),
    "live": ByHand(_PROBE),
    "ready": ByHand(_PROBE),
    "metrics": ByHand(_PROBE),
    "protected_resource": ByHand(_PROBE),
}
"""By the id of the operation in OpenAPI."""
