"""Every door of the product, called with everything that might be somebody else's."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from openmemory.identity.principal import Scope
from tests.backup.archives import Upstream
from tests.security.world import CHANNELS, SESSIONS, VALUES, Actor, World, a_commit, rule_of

MEMORIES = "/api/v1/memories"
NOBODYS_ID = "00000000-0000-4000-8000-000000000000"
HEAD = "a" * 40
NOBODY, NO_APP = "nobody-at-all", "an-app-of-nobody"
_LLM = {"provider": "openai", "config": {"model": "m", "temperature": 0.1, "max_tokens": 2000}}
_EMBEDDER = {"provider": "local", "config": {"model": "all-MiniLM-L6-v2-int8"}}


@dataclass(frozen=True)
class Attempt:
    """One request. `user` and `app` are what it claims (None: nothing); `exact` names the list that must be exactly
    what may be read, `total` whether its count must be too; `about`: the id whose owner is meant where nobody is
    named."""

    door: str
    method: str
    path: str
    params: dict[str, Any] | None = None
    body: Any = None
    archive: Upstream | None = None
    form: dict[str, Any] | None = None
    """The fields of a page's form."""
    upload: tuple[str, str] | None = None
    """The name and the text of a document; `body` has the other fields of its form."""
    user: str | None = None
    app: str | None = None
    as_app: bool = False
    exact: Callable[[Any], list[str]] | None = None
    states: tuple[str, ...] = ()
    writes: bool = False
    about: str | None = None
    asks: tuple[str, tuple[str, ...]] | None = None
    """The token of what is searched for, and the namespaces that are named; none: all."""
    manages: Actor | None = None
    """The bounds of the key that it makes, replaces or ends."""


class Attempts:
    """Makes random attempts for an actor."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._doors: dict[str, Callable[[Actor], Attempt]] = {
            "GET /api/v1/memories": self._list,
            "POST /api/v1/memories": self._add,
            "DELETE /api/v1/memories": self._delete,
            "POST /api/v1/memories/filter": self._filter,
            "POST /api/v1/memories/batch": self._batch,
            "GET /api/v1/memories/search": self._search_by_query,
            "POST /api/v1/memories/search": self._search,
            "POST /api/v1/brief": self._brief,
            "GET /api/v1/memories/{memory_id}": self._of_memory(""),
            "GET /api/v1/memories/{memory_id}/history": self._of_memory("/history"),
            "GET /api/v1/memories/{memory_id}/access-log": self._of_memory("/access-log"),
            "GET /api/v1/memories/{memory_id}/related": self._of_memory("/related"),
            "GET /api/v1/memories/categories": self._of_user(f"{MEMORIES}/categories"),
            "PUT /api/v1/memories/{memory_id}": self._update,
            "POST /api/v1/memories/actions/archive": self._archive,
            "POST /api/v1/memories/actions/pause": self._pause,
            "POST /api/v1/memories/actions/restore": self._action("restore"),
            "POST /api/v1/memories/actions/erase": self._action("erase"),
            "POST /api/v1/memories/actions/supersede": self._supersede,
            "GET /api/v1/threads": self._sources("threads"),
            "POST /api/v1/threads/{thread_id}/messages": self._say,
            "GET /api/v1/threads/{thread_id}/messages": self._read_thread,
            "POST /api/v1/threads/{thread_id}/close": self._of_thread("POST", "/close"),
            "POST /api/v1/threads/{thread_id}/restore": self._of_thread("POST", "/restore"),
            "POST /api/v1/threads/{thread_id}/erase": self._of_thread("POST", "/erase"),
            "DELETE /api/v1/threads/{thread_id}": self._of_thread("DELETE", ""),
            "POST /api/v1/slack/messages": self._say_in_channel,
            "GET /api/v1/slack/channels": self._of_channels("channels"),
            "GET /api/v1/slack/search": self._of_channels("search"),
            "DELETE /api/v1/slack/channels/{channel}": self._forget_channel,
            "GET /api/v1/files": self._sources("files"),
            "POST /api/v1/files/plan": self._of_files("/plan", lambda: {"files": [self._file() | {"hash": "x"}]}),
            "POST /api/v1/files/batch": self._of_files("/batch", lambda: {"files": [self._file() | self._said()]}),
            "POST /api/v1/files/finish": self._of_files("/finish", lambda: {"gone": [self._file()["path"]]}),
            "GET /api/v1/sessions": self._sources("sessions"),
            "GET /api/v1/sources": self._sources("sources"),
            "POST /api/v1/sessions": self._save_session,
            "GET /api/v1/sessions/{number}": self._read_session,
            "POST /api/v1/context": self._context,
            "GET /api/v1/context/usage": self._of_project("GET", "context/usage"),
            "GET /api/v1/stats/tools": self._of_project("GET", "stats/tools"),
            "GET /api/v1/anchors": self._of_project("GET", "anchors", lambda: {"head": HEAD}),
            "POST /api/v1/anchors": self._to_project("POST", "anchors", self._anchors),
            "GET /api/v1/bundles": self._of_project("GET", "bundles"),
            "POST /api/v1/bundles": self._to_project("POST", "bundles", self._bundle),
            "GET /api/v1/state": self._of_project("GET", "state"),
            "GET /api/v1/state/history": self._of_project("GET", "state/history"),
            "POST /api/v1/state/checkpoint": self._to_project("POST", "state/checkpoint", self._state),
            "GET /api/v1/projects": self._of_project("GET", "projects"),
            "POST /api/v1/projects": self._to_project("POST", "projects", lambda: {"name": "The alpaca"}),
            "GET /api/v1/projects/{namespace}": self._project("GET"),
            "POST /api/v1/projects/actions/move": self._move,
            "POST /api/v1/projects/actions/check": self._check,
            "DELETE /api/v1/projects/{namespace}": self._project("DELETE"),
            "GET /api/v1/values": self._of_project("GET", "values"),
            "PUT /api/v1/values": self._to_project("PUT", "values", self._value),
            "GET /api/v1/values/{topic}/{key}": self._of_project("GET", "values/topic/{key}"),
            "DELETE /api/v1/values/{topic}/{key}": self._of_project("DELETE", "values/topic/{key}"),
            "GET /api/v1/links": self._of_project("GET", "links", lambda: {"memory_id": self._given(self._id())}),
            "GET /api/v1/replacements": self._of_user("/api/v1/replacements", size=100),
            "POST /api/v1/replacements": self._decide_replacement,
            "GET /api/v1/conflicts": self._of_user("/api/v1/conflicts", size=100),
            "POST /api/v1/conflicts": self._decide_conflict,
            "GET /api/v1/duplicates": self._of_user("/api/v1/duplicates"),
            "POST /api/v1/duplicates": self._decide_duplicate,
            "POST /api/v1/memories/actions/undo": self._undo,
            "POST /api/v1/memories/actions/change": self._change_many,
            "GET /api/v1/timeline/memories": self._then,
            "GET /api/v1/timeline/changes": self._of_user("/api/v1/timeline/changes", since="2026-01-01", size=100),
            "GET /api/v1/feed": self._feed,
            "GET /api/v1/stats/daily": self._of_user("/api/v1/stats/daily"),
            "POST /api/v1/links": self._to_project("POST", "links", self._link),
            "DELETE /api/v1/links": self._of_project("DELETE", "links", self._link),
            "GET /api/v1/documents": self._sources("documents"),
            "POST /api/v1/documents": self._send_document,
            "GET /api/v1/documents/{document_id}": self._of_document("GET", ""),
            "GET /api/v1/documents/{document_id}/original": self._of_document("GET", "/original"),
            "DELETE /api/v1/documents/{document_id}": self._of_document("DELETE", ""),
            "POST /api/v1/documents/{document_id}/restore": self._of_document("POST", "/restore"),
            "POST /api/v1/documents/{document_id}/erase": self._of_document("POST", "/erase"),
            "GET /api/v1/captures": self._of_user("/api/v1/captures", size=100),
            "GET /api/v1/captures/usage": self._of_user("/api/v1/captures/usage"),
            "GET /api/v1/captures/{capture_id}": self._of_capture("GET", ""),
            "POST /api/v1/captures/{capture_id}/undo": self._of_capture("POST", "/undo"),
            "GET /api/v1/apps": self._of_user("/api/v1/apps", page_size=100, activity=True),
            "GET /api/v1/apps/{app_id}": self._of_app(""),
            "GET /api/v1/apps/{app_id}/memories": self._of_app("/memories"),
            "GET /api/v1/apps/{app_id}/accessed": self._of_app("/accessed"),
            "PUT /api/v1/apps/{app_id}": self._pause_app,
            "GET /api/v1/me": self._plain("GET", "/api/v1/me"),
            "GET /api/v1/me/timezone": self._of_user("/api/v1/me/timezone"),
            "PUT /api/v1/me/timezone": self._save_timezone,
            "GET /api/v1/stats": self._of_user("/api/v1/stats"),
            "GET /api/v1/grants": self._of_user("/api/v1/grants"),
            "POST /api/v1/grants": self._grant,
            "GET /api/v1/grants/explain": self._explain,
            "DELETE /api/v1/grants/{grant_id}": self._revoke,
            "GET /api/v1/archive-policies": self._of_user("/api/v1/archive-policies"),
            "GET /api/v1/archive-policies/upcoming": self._upcoming,
            "POST /api/v1/archive-policies": self._policy,
            "DELETE /api/v1/archive-policies/{policy_id}": self._end_policy,
            "GET /api/v1/categories": self._of_user("/api/v1/categories"),
            "PUT /api/v1/categories/{name}": self._describe,
            "DELETE /api/v1/categories/{name}": self._forget,
            "POST /api/v1/categories/assign": self._assign,
            "GET /api/v1/categories/assign": self._of_user("/api/v1/categories/assign"),
            "GET /api/v1/categories/assign/preview": self._of_user("/api/v1/categories/assign/preview", again=True),
            "GET /api/v1/audit": self._of_user("/api/v1/audit", limit=20),
            "POST /api/v1/backup/export": self._export,
            "POST /api/v1/backup/import": self._import,
            "POST /api/v1/imports": lambda actor: self._import(actor, "/api/v1/imports"),
            "DELETE /api/v1/users/{user_id}": self._erase_user,
            "GET /api/v1/keys": self._plain("GET", "/api/v1/keys"),
            "POST /api/v1/keys": self._make_key,
            "DELETE /api/v1/keys/{key_id}": self._of_key("DELETE", ""),
            "POST /api/v1/keys/{key_id}/rotate": self._of_key("POST", "/rotate"),
            "GET /api/v1/config": self._plain("GET", "/api/v1/config"),
            "PUT /api/v1/config": self._configure("PUT", "", {"openmemory": {"custom_instructions": "none"}}),
            "PATCH /api/v1/config": self._configure("PATCH", "", {"openmemory": {"custom_instructions": None}}),
            "POST /api/v1/config/test": self._configure("POST", "/test", {"mem0": {"embedder": _EMBEDDER}}),
            "POST /api/v1/config/reset": self._plain("POST", "/api/v1/config/reset"),
            "GET /api/v1/config/mem0/llm": self._plain("GET", "/api/v1/config/mem0/llm"),
            "PUT /api/v1/config/mem0/llm": self._configure("PUT", "/mem0/llm", _LLM),
            "GET /api/v1/config/mem0/embedder": self._plain("GET", "/api/v1/config/mem0/embedder"),
            "PUT /api/v1/config/mem0/embedder": self._configure("PUT", "/mem0/embedder", _EMBEDDER),
            "GET /api/v1/config/mem0/vector_store": self._plain("GET", "/api/v1/config/mem0/vector_store"),
            "PUT /api/v1/config/mem0/vector_store": self._configure("PUT", "/mem0/vector_store", None),
            "GET /api/v1/config/openmemory": self._plain("GET", "/api/v1/config/openmemory"),
            "PUT /api/v1/config/openmemory": self._configure("PUT", "/openmemory", {"custom_instructions": "none"}),
            "POST /api/v1/sync": self._sync,
            "GET /api/v1/sync/runs": self._plain("GET", "/api/v1/sync/runs"),
            "GET /api/v1/doctor": self._plain("GET", "/api/v1/doctor"),
            "GET /api/v1/installation": self._plain("GET", "/api/v1/installation"),
            "POST /api/v1/installation": self._decide,
            "GET /metrics": self._plain("GET", "/metrics"),
            "GET /.well-known/oauth-protected-resource": self._plain("GET", "/.well-known/oauth-protected-resource"),
            "GET /health": self._plain("GET", "/health"),
            "GET /health/live": self._plain("GET", "/health/live"),
            "GET /health/ready": self._plain("GET", "/health/ready"),
            "tool add_memories": self._tool("add_memories", self._text, writes=True),
            "tool search_memory": self._tool("search_memory", self._query),
            "tool list_memories": self._tool(
                "list_memories", lambda: {"limit": 1000, "format": "json"}, exact=_listed_by_tool
            ),
            "tool update_memory": self._tool("update_memory", self._new_text, writes=True),
            "tool delete_memories": self._tool("delete_memories", self._some, writes=True),
            "tool delete_all_memories": self._tool("delete_all_memories", lambda: {"confirm": True}, writes=True),
            "tool log_messages": self._tool("log_messages", self._messages, writes=True),
            "tool search_messages": self._tool("search_messages", self._question),
            "tool find_slack_user": self._tool("find_slack_user", lambda: {"email": "ada@example.com"}),
            "tool send_slack_message": self._tool(
                "send_slack_message", lambda: {"to": "general", "text": "Hello", "confirm": True}, writes=True
            ),
            "tool send_slack_file": self._tool(
                "send_slack_file",
                lambda: {"to": "general", "name": "a.txt", "content": "a", "confirm": True},
                writes=True,
            ),
            "tool search_slack_channels": self._tool("search_slack_channels", self._question),
            "tool load_slack_channel": self._tool(
                "load_slack_channel", lambda: {"channel_name": "general"}, writes=True
            ),
            "tool read_thread": self._tool("read_thread", lambda: {"thread_id": self._thread()}),
            "tool list_threads": self._tool("list_threads", lambda: {}),
            "tool file_index": self._tool(
                "file_index",
                lambda: {"project_id": self._namespace(), "file_path": self._file()["path"], "summary": "The alpaca."},
                writes=True,
            ),
            "tool file_search": self._tool("file_search", lambda: self._question() | {"project_id": self._namespace()}),
            "tool search_files": self._tool("search_files", self._question),
            "tool session_create": self._tool(
                "session_create", lambda: self._session("project_id", "session_num"), writes=True
            ),
            "tool session_get": self._tool("session_get", lambda: self._which_session("project_id", "session_num")),
            "tool session_list": self._tool("session_list", lambda: {"project_id": self._namespace()}),
            "tool session_search": self._tool(
                "session_search", lambda: self._question() | {"project_id": self._namespace()}
            ),
            "tool mem_get_initial_context": self._tool("mem_get_initial_context", self._repo),
            "tool mem_get_context": self._tool("mem_get_context", lambda: self._question() | self._repo()),
            "tool mem_explain": self._tool("mem_explain", lambda: self._repo() | {"query": self._query()["query"]}),
            "tool mem_usage": self._tool("mem_usage", self._repo),
            "tool mem_checkpoint": self._tool(
                "mem_checkpoint", lambda: self._repo() | {"reason": "The alpaca.", "state_json": {"a": 1}}, writes=True
            ),
            "tool mem_add_memory": self._tool(
                "mem_add_memory", lambda: self._repo() | {"title": self._text()["text"]}, writes=True
            ),
            "tool mem_link_memories": self._tool("mem_link_memories", self._link, writes=True),
            "tool mem_show": self._tool("mem_show", lambda: {"id": self._given(self._id())}),
            "tool mem_update_memory": self._tool(
                "mem_update_memory", lambda: {"id": self._given(self._id()), "title": self._text()["text"]}, writes=True
            ),
            "tool project_register": self._tool(
                "project_register", lambda: {"id": self._namespace(), "name": "The alpaca"}, writes=True
            ),
            "tool project_list": self._tool("project_list", dict),
            "tool project_status": self._tool("project_status", lambda: {"project_id": self._namespace()}),
            "tool memory_set": self._tool("memory_set", lambda: self._named_value() | self._new_value(), writes=True),
            "tool memory_get": self._tool("memory_get", self._named_value),
            "tool memory_list": self._tool("memory_list", lambda: {"project_id": self._namespace()}),
            "tool memory_search": self._tool(
                "memory_search", lambda: self._question() | {"project_id": self._namespace()}
            ),
            "tool memory_delete": self._tool("memory_delete", self._named_value, writes=True),
            "tool search_documents": self._tool("search_documents", self._question),
            "tool read_document": self._tool("read_document", lambda: {"name": self._thread()}),
            "tool list_conflicts": self._tool("list_conflicts", dict),
            "tool tool_usage": self._tool("tool_usage", lambda: {"namespace": self._namespace()}),
            "tool list_documents": self._tool("list_documents", lambda: {}),
            "tool restore_memories": self._tool("restore_memories", self._some, writes=True),
            "tool sync_vector_store": self._tool("sync_vector_store", lambda: {}),
            "tool save_memory": self._tool("save_memory", self._entry, writes=True),
            "tool get_memory": self._tool("get_memory", lambda: self._client() | {"limit": 100}),
            "tool pimemento.search_memory": self._tool(
                "pimemento.search_memory", lambda: {"query": self._query()["query"], "limit": 50} | self._client()
            ),
            "tool delete_memory": self._tool(
                "delete_memory", lambda: self._client() | {"content_match": "alpaca"}, writes=True
            ),
            "tool memory_status": self._tool("memory_status", self._client),
        }
        # Looking is tried more often than what changes much, or concerns nobody.
        rare = {
            "tool delete_all_memories", "DELETE /api/v1/projects/{namespace}", "POST /api/v1/projects/actions/move",
             "tool sync_vector_store", "POST /api/v1/sync", "GET /api/v1/doctor", "POST /api/v1/installation",
        }  # fmt: skip
        # What one says is told where another looks.
        often = {
            "GET /api/v1/memories/{memory_id}/access-log", "POST /api/v1/memories/search", "GET /api/v1/captures",
            "PUT /api/v1/apps/{app_id}", "tool search_memory", "tool list_memories",
        }  # fmt: skip
        few = ("health", "known", "config")
        self._looks = True
        self._names = [
            name
            for name in self._doors
            for _ in range(1 if name in rare or any(part in name for part in few) else 40 if name in often else 12)
        ]

    def only(self, *names: str) -> None:
        """Try these operations only."""
        self._names = list(names)
        self._looks = False

    @property
    def doors(self) -> set[str]:
        """The operations that are tried."""
        return set(self._doors)

    def next(self, actor: Actor) -> Attempt:
        """A random attempt. Who reaches some namespaces looks often at who has accessed what lies there."""
        if self._looks and actor.namespaces is not None and actor.app is None and self._rng.random() < 0.25:
            return self._of_memory("/access-log")(actor)
        return self._doors[self._rng.choice(self._names)](actor)

    def to_door(self, name: str, actor: Actor) -> Attempt:
        """A random attempt at one operation."""
        return self._doors[name](actor)

    # What requests name: mostly what is the actor's own, often what is somebody else's.

    def _user(self, actor: Actor) -> str:
        if actor.user is not None and self._rng.random() < 0.6:
            return actor.user
        # Who writes for everyone would make that user.
        unknown = [] if actor.user is None and Scope.WRITE in actor.scopes and actor.valid else [NOBODY]
        return self._rng.choice([*self._world.users, *unknown])

    def _id(self) -> str:
        return self._rng.choice([*self._world.rows, *self._world.memory_of.values(), str(UUID(int=7))])

    def _indexed_id(self) -> str:
        """As `_id`, but never the id of a project: a memory may have the same id, and the world holds one row for each
        id."""
        row = self._world.rows.get(id_ := self._id())
        return str(UUID(int=7)) if row is not None and row.is_registration else id_

    def _ids(self) -> list[str]:
        return [self._given(self._id()) for _ in range(self._rng.randint(1, 3))]

    def _given(self, id_: str) -> str:
        """The id of a memory as a request gives it: at times only its first characters."""
        return id_[: self._rng.randint(4, 12)] if self._rng.random() < 0.3 else id_

    def _app_of(self, user: str) -> str:
        if self._rng.random() < 0.1:
            return NO_APP
        names = [name for owner, name, _ in self._world.apps.values() if owner == user]
        return self._rng.choice(names or ["openmemory"])

    def _own_app_id(self, actor: Actor) -> str:
        own = [id_ for id_, (owner, _, _) in self._world.apps.items() if owner == actor.user]
        return self._rng.choice(own) if own and self._rng.random() < 0.7 else self._app_id()

    def _own_id(self, actor: Actor) -> str:
        own = [id_ for id_, row in self._world.rows.items() if row.user == actor.user]
        return self._rng.choice(own) if own and self._rng.random() < 0.7 else self._id()

    def _asked(self, words: str) -> tuple[str, str]:
        """A question that holds a token of its own, and the token."""
        token = f"tk{self._rng.getrandbits(48):012x}"
        return f"{words} {token}", token

    def _app_id(self) -> str:
        return self._rng.choice([*self._world.apps, str(UUID(int=8))])

    def _namespace(self) -> str:
        return self._rng.choice(self._world.namespaces[self._rng.choice(self._world.users)])

    def _category(self) -> str:
        return self._rng.choice(self._world.categories[self._rng.choice(self._world.users)])

    def _text(self) -> dict[str, Any]:
        text = self._rng.choice(["An alpaca was seen at {}.", "The alpaca lives in {} now.", "The alpaca moved to {}."])
        more: dict[str, Any] = {"supersedes": self._ids()} if self._rng.random() < 0.2 else {}
        return {"text": text.format(self._rng.random()), "infer": False} | more

    def _new_text(self) -> dict[str, Any]:
        return {"memory_id": self._given(self._id()), "text": f"The alpaca moved to {self._rng.random()}."}

    def _as_models_write(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a tool, with one of the forms of the answer."""
        return {"format": self._rng.choice(["json", "compact"])} | arguments

    def _some(self) -> dict[str, Any]:
        return {"memory_ids": self._ids()}

    def _query(self) -> dict[str, Any]:
        more: dict[str, Any] = {"namespace": self._namespace()} if self._rng.random() < 0.3 else {}
        if self._rng.random() < 0.2:
            more["categories"] = [self._category()]
        if self._rng.random() < 0.4:
            more["filter"] = self._conditions()
        words, _ = self._asked(self._rng.choice(["alpaca", "what does it like", "carrots"]))
        return {"query": words, "limit": 50} | more

    def _question(self) -> dict[str, Any]:
        return {name: value for name, value in self._query().items() if name in ("query", "limit", "namespace")}

    def _client(self) -> dict[str, Any]:
        """The project, the user and the part of it that a call of Pimemento's tools names."""
        more = {"user_id": self._rng.choice(self._world.users)} if self._rng.random() < 0.2 else {}
        return {"client_id": self._namespace()} | more

    def _entry(self) -> dict[str, Any]:
        said = self._rng.choice([f"alpaca={self._rng.random()} | food=hay", self._text()["text"]])
        kind = {"category": "business_context", "type": self._rng.choice(["insight", "decision"])}
        # Whoever reads the memory is told this name, as any other word of its metadata.
        return self._client() | kind | {"content": said, "reason": "The alpaca.", "user_id": "ada"}

    def _messages(self) -> dict[str, Any]:
        said = {
            "role": "user",
            "content": f"The alpaca slept at {self._rng.random()}.",
            "id": f"m-{self._rng.random()}",
        }
        return {"thread_id": self._thread(), "messages": [said]}

    def _conditions(self) -> dict[str, Any]:
        """A filter that fits what may be anybody's."""
        one = self._rng.choice(
            [
                {"metadata.note": "*"},
                {"metadata.note": {"contains": "tk"}},
                {"metadata.note": self._rng.choice([*self._world.memory_of, "none"])},
                {"namespace": [self._namespace(), self._namespace(), "default"]},
                {"category": {"in": [self._category(), self._category()]}},
                {"app_id": [self._app_id(), self._app_id()]},
                {"app": {"contains": "app"}},
                {"thread_id": {"exists": self._rng.random() < 0.5}},
                {"key": self._rng.choice([*self._world.memory_of, "none"])},
                {"created_at": {"gte": "2000-01-01"}},
            ]
        )
        return self._rng.choice([one, {"NOT": [one]}, {"OR": [one, {"metadata.note": {"ne": "x"}}]}])

    # The doors.

    def _list(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        states = self._rng.choice([("active",), ("active", "paused", "archived", "deleted")])
        params: dict[str, Any] = {"user_id": user, "size": 100, "state": ",".join(states)}
        more = self._rng.random()
        if more < 0.15:
            params["app_id"] = self._app_id()
        elif more < 0.3:
            params["namespace"] = self._namespace()
        elif more < 0.4:
            params["categories"] = self._category()
        elif more < 0.5:
            params["search_query"] = "alpaca"
        return Attempt(
            "list", "GET", MEMORIES, params, user=user, exact=_listed if len(params) == 3 else None, states=states
        )

    def _filter(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body: dict[str, Any] = {"user_id": user, "size": 100, "show_archived": True}
        exact: Any = _listed
        if self._rng.random() < 0.3:
            body["app_ids"], exact = [self._app_id()], None
        states = ("active", "paused", "archived")
        return Attempt("filter", "POST", f"{MEMORIES}/filter", None, body, user=user, exact=exact, states=states)

    def _add(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body = self._text() | {"user_id": user, "namespace": self._namespace()}
        app = self._app_of(user) if self._rng.random() < 0.5 else None
        if app is not None:
            body["app"] = app
        return Attempt("add", "POST", MEMORIES, None, body, user=user, app=app, as_app=True, writes=True)

    def _batch(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        entry = {"text": f"An alpaca of a batch at {self._rng.random()}.", "namespace": self._namespace()}
        if self._rng.random() < 0.5:
            entry["app"] = self._app_of(user)
        body = {"user_id": user, "memories": [entry]}
        return Attempt("batch", "POST", f"{MEMORIES}/batch", None, body, user=user, writes=True)

    def _delete(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        return Attempt("delete", "DELETE", MEMORIES, None, {"user_id": user, **self._some()}, user=user, writes=True)

    def _search_by_query(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        words, token = self._asked("alpaca")
        params = {"user_id": user, "query": words, "limit": 50}
        if self._rng.random() < 0.4:
            params["filter"] = json.dumps(self._conditions())
        return Attempt("search", "GET", f"{MEMORIES}/search", params, user=user, asks=(token, ()))

    def _search(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body = {"user_id": user} | self._query()
        app = self._app_of(user) if self._rng.random() < 0.8 else None
        if app is not None:
            body["app"] = app
        if self._rng.random() < 0.2:
            body["app_ids"] = [self._app_id()]
        if self._rng.random() < 0.4:
            body = {name: value for name, value in body.items() if name not in ("filter", "categories")}
            body["corpus"] = self._rng.choice(["passages", "both"])
            if self._rng.random() < 0.3:
                body["thread_id"] = self._thread()
        path = f"{MEMORIES}/search"
        return Attempt(
            "search", "POST", path, None, body, user=user, app=app, as_app=app is not None, asks=_asks(body)
        )  # fmt: skip

    def _thread(self) -> str:
        threads = [row.thread for row in self._world.rows.values() if row.thread is not None]
        return self._rng.choice([*threads, "no-such-thread"])

    def _as_app_or_user(self, actor: Actor) -> dict[str, Any]:
        """What a request names: a user, and at times an app and a namespace."""
        named = {"user_id": self._user(actor)}
        if self._rng.random() < 0.5:
            named["app"] = self._app_of(named["user_id"])
        if self._rng.random() < 0.3:
            named["namespace"] = self._namespace()
        return named

    def _sources(self, door: str) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            params = self._as_app_or_user(actor) | {"size": 100}
            user, app = params["user_id"], params.get("app")
            return Attempt(door, "GET", f"/api/v1/{door}", params, user=user, app=app, as_app=app is not None)

        return make

    def _read_thread(self, actor: Actor) -> Attempt:
        named = self._as_app_or_user(actor)
        user, app = named["user_id"], named.get("app")
        path = f"/api/v1/threads/{self._thread()}/messages"
        return Attempt("read thread", "GET", path, named, user=user, app=app, as_app=app is not None)

    def _file(self) -> dict[str, Any]:
        return {"path": self._thread()}

    def _said(self) -> dict[str, Any]:
        return {"text": f"The alpaca ran at {self._rng.random()}."}

    def _of_files(self, part: str, more: Callable[[], dict[str, Any]]) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            user = self._user(actor)
            body = {"user_id": user, "namespace": self._namespace()} | more()
            app = self._app_of(user) if self._rng.random() < 0.5 else None
            if app is not None:
                body["app"] = app
            path = f"/api/v1/files{part}"
            return Attempt(f"files{part}", "POST", path, None, body, user=user, app=app, as_app=True, writes=True)

        return make

    def _repo(self) -> dict[str, Any]:
        return {"repo": self._namespace()}

    def _state(self) -> dict[str, Any]:
        return {"state": {"alpaca": self._rng.random()}, "reason": f"It ran at {self._rng.random()}."}

    def _anchors(self) -> dict[str, Any]:
        commits = sorted(each for each in self._world.memory_of if each.startswith("c0ffee"))
        known = self._rng.sample(commits, min(2, len(commits)))
        return {"head": HEAD, "reachable": known[:1], "orphaned": [*known[1:], a_commit(self._rng)]}

    def _bundle(self) -> dict[str, Any]:
        ids = self._rng.sample(["m1", "m2", "m3"], 2)
        memories = [{"source_id": id_, "title": f"It ran at {self._rng.random()}."} for id_ in ids]
        link = {"from_id": ids[0], "rel": "is", "to_id": ids[1]}
        manifest = {"source_repo_id": self._rng.choice(["om_1", "om_2"])}
        bundle = {"manifest": manifest, "memories": memories, "links": [link], "state": {"alpaca": 1}}
        return {"bundle": bundle, "replace": self._rng.random() < 0.5}

    def _new_value(self) -> dict[str, Any]:
        return {"value": f"It ran at {self._rng.random()}."}

    def _value(self) -> dict[str, Any]:
        return {"topic": "topic", "key": f"key{self._rng.randrange(VALUES + 1)}"} | self._new_value()

    def _named_value(self) -> dict[str, Any]:
        return {"project_id": self._namespace(), "topic": "topic", "key": f"key{self._rng.randrange(VALUES + 1)}"}

    def _link(self) -> dict[str, Any]:
        rel = self._rng.choice(["is", "explains"])
        return {"from_id": self._given(self._id()), "rel": rel, "to_id": self._given(self._id())}

    def _of_project(
        self, method: str, path: str, more: Callable[[], dict[str, Any]] = dict
    ) -> Callable[[Actor], Attempt]:
        """An attempt at the state, the values or the links of a project."""

        def make(actor: Actor) -> Attempt:
            named = self._as_app_or_user(actor)
            params = named | more()
            if path == "links":
                params.pop("namespace", None)
            user, app = named["user_id"], named.get("app")
            where = f"/api/v1/{path.format(key=f'key{self._rng.randrange(VALUES + 1)}')}"
            as_app, writes = app is not None, method != "GET"
            return Attempt(f"{method} {path}", method, where, params, user=user, app=app, as_app=as_app, writes=writes)

        return make

    def _project(self, method: str) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            named = self._as_app_or_user(actor)
            path = f"/api/v1/projects/{named.pop('namespace', None) or self._namespace()}"
            if method == "DELETE":
                named.pop("app", None)
            user, app = named["user_id"], named.get("app")
            as_app, writes = app is not None, method != "GET"
            return Attempt(f"{method} project", method, path, named, user=user, app=app, as_app=as_app, writes=writes)

        return make

    def _check(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body = {"user_id": user, "namespace": self._namespace(), "repair": self._rng.random() < 0.5}
        return Attempt("check project", "POST", "/api/v1/projects/actions/check", None, body, user=user, writes=True)

    def _move(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body = {"user_id": user, "namespace": self._namespace(), "to": self._namespace(), "merge": True}
        return Attempt("move project", "POST", "/api/v1/projects/actions/move", None, body, user=user, writes=True)

    def _to_project(self, method: str, path: str, more: Callable[[], dict[str, Any]]) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            user = self._user(actor)
            body = {"user_id": user} | more()
            if path != "links":
                body["namespace"] = self._namespace()
            app = self._app_of(user) if self._rng.random() < 0.5 else None
            if app is not None:
                body["app"] = app
            where = f"/api/v1/{path}"
            return Attempt(path, method, where, None, body, user=user, app=app, as_app=True, writes=True)

        return make

    def _context(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        app = self._app_of(user)
        body: dict[str, Any] = {"user_id": user, "app": app, "namespace": self._namespace(), "explain": True}
        if self._rng.random() < 0.3:
            body |= {"head": HEAD, "include_orphans": self._rng.random() < 0.5}
        if self._rng.random() < 0.5:
            body["about"] = self._given(self._own_id(actor))
        if "about" not in body or self._rng.random() < 0.5:
            body["query"] = self._query()["query"]
        asks = _asks(body)
        asks = asks and (asks[0], tuple(dict.fromkeys((*asks[1], "default"))))
        return Attempt(
            "POST /api/v1/context", "POST", "/api/v1/context", None, body, user=user, app=app, as_app=True, asks=asks
        )

    def _which_session(self, namespace: str, number: str) -> dict[str, Any]:
        return {namespace: self._namespace(), number: self._rng.randrange(SESSIONS + 2)}

    def _session(self, namespace: str, number: str) -> dict[str, Any]:
        said = {"title": "The alpaca", "summary": "It slept.", "content": f"It ran at {self._rng.random()}."}
        return self._which_session(namespace, number) | said

    def _read_session(self, actor: Actor) -> Attempt:
        named = self._as_app_or_user(actor)
        user, app = named["user_id"], named.get("app")
        path = f"/api/v1/sessions/{self._rng.randrange(SESSIONS + 2)}"
        return Attempt("read session", "GET", path, named, user=user, app=app, as_app=app is not None)

    def _save_session(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body = {"user_id": user} | self._session("namespace", "number")
        app = self._app_of(user) if self._rng.random() < 0.5 else None
        if app is not None:
            body["app"] = app
        return Attempt(
            "save session", "POST", "/api/v1/sessions", None, body, user=user, app=app, as_app=True, writes=True
        )

    def _send_document(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        fields = {"user_id": user, "namespace": self._namespace(), "name": self._thread()}
        app = self._app_of(user) if self._rng.random() < 0.5 else None
        if app is not None:
            fields["app"] = app
        said = ("sent.txt", f"The alpaca swam at {self._rng.random()}.")
        return Attempt(
            "send document", "POST", "/api/v1/documents", None, fields, upload=said, user=user, app=app, as_app=True,
            writes=True,
        )  # fmt: skip

    def _of_document(self, method: str, part: str) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            named = self._as_app_or_user(actor)
            named.pop("namespace", None)
            user, app = named["user_id"], named.get("app")
            path = f"/api/v1/documents/{self._rng.choice([*self._world.documents, NOBODYS_ID])}{part}"
            params, body = (None, named) if method == "POST" else (named, None)
            writes = method != "GET"
            return Attempt(
                f"document{part}", method, path, params, body, user=user, app=app, as_app=app is not None, writes=writes
            )  # fmt: skip

        return make

    def _say(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body = {
            "user_id": user,
            "namespace": self._namespace(),
            "messages": [{"content": f"The alpaca slept at {self._rng.random()}.", "id": f"m-{self._rng.random()}"}],
        }
        app = self._app_of(user) if self._rng.random() < 0.5 else None
        if app is not None:
            body["app"] = app
        path = f"/api/v1/threads/{self._thread()}/messages"
        return Attempt("say", "POST", path, None, body, user=user, app=app, as_app=True, writes=True)

    def _say_in_channel(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        app = self._app_of(user) if self._rng.random() < 0.5 else None
        ts = f"{self._rng.randrange(10**9)}.000100"
        body = {
            "user_id": user, "channel": self._rng.choice(CHANNELS), "channel_id": "C0GENERAL", "gone": [ts],
            "messages": [{"ts": ts, "text": f"The alpaca slept at {ts}."}], "after": "0.000000", "until": ts,
        }  # fmt: skip
        if app is not None:
            body["app"] = app
        path = "/api/v1/slack/messages"
        return Attempt("say in channel", "POST", path, None, body, user=user, app=app, as_app=True, writes=True)

    def _of_channels(self, what: str) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            named = self._as_app_or_user(actor)
            user, app = named["user_id"], named.get("app")
            named.pop("namespace", None)
            if what == "search":
                named |= {"query": self._query()["query"], "limit": 100}
            if what == "search" and self._rng.random() < 0.5:
                named["channel"] = self._rng.choice(CHANNELS)
            return Attempt(
                f"slack {what}", "GET", f"/api/v1/slack/{what}", named, user=user, app=app, as_app=app is not None
            )  # fmt: skip

        return make

    def _forget_channel(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        path = f"/api/v1/slack/channels/{self._rng.choice(CHANNELS)}"
        return Attempt("forget channel", "DELETE", path, {"user_id": user}, user=user, writes=True)

    def _of_thread(self, method: str, part: str) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            named = self._as_app_or_user(actor)
            user, app = named["user_id"], named.get("app")
            path = f"/api/v1/threads/{self._thread()}{part}"
            params, body = (named, None) if method == "DELETE" else (None, named)
            return Attempt(
                f"thread{part}", method, path, params, body, user=user, app=app, as_app=app is not None, writes=True
            )  # fmt: skip

        return make

    def _brief(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        app = self._app_of(user)
        body: dict[str, Any] = {"user_id": user, "app": app, "budget": 2_000}
        if self._rng.random() < 0.5:
            body |= {"namespace": self._namespace(), "head": HEAD}
        asks = None
        if self._rng.random() < 0.3:
            body |= {"query": self._query()["query"], "min_score": 0}
            asks = _asks(body)
            asks = asks and (asks[0], tuple(dict.fromkeys((*asks[1], "default"))))
        return Attempt(
            "POST /api/v1/brief", "POST", "/api/v1/brief", None, body, user=user, app=app, as_app=True, asks=asks
        )  # fmt: skip

    def _of_memory(self, part: str) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            user = self._user(actor) if self._rng.random() < 0.7 else None
            params = {} if user is None else {"user_id": user}
            if part == "/access-log":
                params |= {"page_size": "100", "fold": self._rng.choice(["true", "false"])}
            id_ = self._own_id(actor)
            given = self._given(id_)
            # A short id says nothing about whose memory is meant.
            named = given == id_ or user is not None or actor.user is not None
            path = f"{MEMORIES}/{given}{part}"
            return Attempt(f"get{part}", "GET", path, params, user=user, about=id_ if named else None)

        return make

    def _update(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        change = self._rng.choice(
            [
                {"memory_content": f"The alpaca moved to {self._rng.random()}."},
                {"categories": [self._category()]},
                {"metadata": {"moved": self._rng.random()}},
            ]
        )
        path = f"{MEMORIES}/{self._given(self._id())}"
        return Attempt("update", "PUT", path, None, {"user_id": user} | change, user=user, writes=True)

    def _archive(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        path = f"{MEMORIES}/actions/archive"
        if self._rng.random() < 0.5:
            return Attempt("archive", "POST", path, {"user_id": user}, self._ids(), user=user, writes=True)
        return Attempt("archive", "POST", path, None, {"user_id": user, **self._some()}, user=user, writes=True)

    def _pause(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        which = self._rng.choice(
            [{"global_pause": True}, {"app_id": self._app_id()}, self._some(), self._some() | {"all_for_app": True}]
        )
        body = {"user_id": user, "state": self._rng.choice(["active", "paused"])} | which
        return Attempt("pause", "POST", f"{MEMORIES}/actions/pause", None, body, user=user, writes=True)

    def _supersede(self, actor: Actor) -> Attempt:
        named = self._as_app_or_user(actor)
        named.pop("namespace", None)
        body = named | {"memory_id": self._given(self._id()), "by": self._given(self._id())}
        user, app, path = named["user_id"], named.get("app"), f"{MEMORIES}/actions/supersede"
        as_app = app is not None
        return Attempt("supersede", "POST", path, None, body, user=user, app=app, as_app=as_app, writes=True)

    def _decide_replacement(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        decision = self._rng.choice(["replace", "both", "different"])
        body = {"user_id": user, "newer": self._given(self._id()), "older": self._given(self._id())}
        return Attempt(
            "replace", "POST", "/api/v1/replacements", None, body | {"decision": decision}, user=user, writes=True
        )

    def _decide_conflict(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body = {"user_id": user, "key": "port", "keep": self._given(self._id()), "others": self._ids()}
        return Attempt("conflict", "POST", "/api/v1/conflicts", None, body, user=user, writes=True)

    def _decide_duplicate(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body = {"user_id": user, "newer": self._given(self._id()), "older": self._given(self._id())}
        body["keep"] = self._rng.choice(["newer", "older", "both"])
        return Attempt("duplicate", "POST", "/api/v1/duplicates", None, body, user=user, writes=True)

    def _undo(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body = {"user_id": user, "action": NOBODYS_ID}
        return Attempt("undo", "POST", "/api/v1/memories/actions/undo", None, body, user=user, writes=True)

    def _change_many(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        which = self._rng.choice([self._some(), {"everything": True, "namespaces": [self._namespace()]}])
        change = self._rng.choice([{"to": "paused"}, {"to": "active"}, {"add_category": self._category()}])
        body = {"user_id": user} | which | change
        if self._rng.random() < 0.1:
            # What is erased is gone for good.
            body = {"user_id": user, "memory_ids": [self._given(self._id())], "to": "erased"}
        return Attempt("change", "POST", f"{MEMORIES}/actions/change", None, body, user=user, writes=True)

    def _then(self, actor: Actor) -> Attempt:
        named = self._as_app_or_user(actor)
        named.pop("namespace", None)
        user, app = named["user_id"], named.get("app")
        return Attempt(
            "then",
            "GET",
            "/api/v1/timeline/memories",
            named | {"size": 100},
            user=user,
            app=app,
            as_app=app is not None,
        )

    def _feed(self, actor: Actor) -> Attempt:
        return self._of_user("/api/v1/feed", what=self._rng.choice(["written", "read"]), size=100)(actor)

    def _action(self, name: str) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            user = self._user(actor)
            # What is erased is gone for good: most attempts are about one memory of another user.
            ids = self._ids() if name != "erase" else [self._given(self._id())]
            body: dict[str, Any] = {"user_id": user, "memory_ids": ids}
            if name == "restore" and self._rng.random() < 0.3:
                del body["memory_ids"]
            return Attempt(name, "POST", f"{MEMORIES}/actions/{name}", None, body, user=user, writes=True)

        return make

    def _of_user(self, path: str, **more: Any) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            user = self._user(actor)
            return Attempt(path, "GET", path, {"user_id": user} | more, user=user)

        return make

    def _of_app(self, part: str) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            user = self._user(actor) if self._rng.random() < 0.7 else None
            params = {} if user is None else {"user_id": user}
            id_ = self._app_id()
            return Attempt(f"app{part}", "GET", f"/api/v1/apps/{id_}{part}", params, user=user, about=id_)

        return make

    def _pause_app(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        # Paused and resumed in turn, so that apps do not all end paused.
        params = {"user_id": user, "is_active": self._rng.random() < 0.5}
        path = f"/api/v1/apps/{self._own_app_id(actor)}"
        return Attempt("pause app", "PUT", path, params, user=user, writes=True)

    def _grant(self, actor: Actor) -> Attempt:
        user, about = self._user(actor), self._rng.choice(self._world.users)
        apps = [name for owner, name, _ in self._world.apps.values() if owner == about]
        rule = rule_of(self._rng, self._world, about, apps).model_dump()
        if rule["object_type"] == "memory":
            rule["object"] = self._given(rule["object"])
        return Attempt("grant", "POST", "/api/v1/grants", None, {"user_id": user} | rule, user=user, writes=True)

    def _policy(self, actor: Actor) -> Attempt:
        user, about = self._user(actor), self._rng.choice(self._world.users)
        criterion = self._rng.choice(
            [
                {"criteria_type": "user"},
                {"criteria_type": "app", "criteria_id": self._app_id()},
                {"criteria_type": "app", "criteria_name": self._app_of(about)},
                {"criteria_type": "category", "criteria_name": self._category()},
                {"criteria_type": "namespace", "criteria_name": self._namespace()},
            ]
        )
        days = self._rng.choice([{"days_to_archive": 3650}, {"days_to_expire": 3650}])
        body = {"user_id": user} | days | criterion
        return Attempt("policy", "POST", "/api/v1/archive-policies", None, body, user=user, writes=True)

    def _upcoming(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        params = {"user_id": user, "within_days": 36_500, "size": 100}
        return Attempt("upcoming", "GET", "/api/v1/archive-policies/upcoming", params, user=user)

    def _end_policy(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        path = f"/api/v1/archive-policies/{UUID(int=11)}"
        return Attempt("end policy", "DELETE", path, {"user_id": user}, user=user, writes=True)

    def _assign(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body = {"user_id": user, "again": self._rng.random() < 0.5}
        return Attempt("assign", "POST", "/api/v1/categories/assign", None, body, user=user, writes=True)

    def _save_timezone(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body = {"user_id": user, "timezone": self._rng.choice(["Asia/Kolkata", "Pacific/Kiritimati", None])}
        return Attempt("timezone", "PUT", "/api/v1/me/timezone", None, body, user=user, writes=True)

    def _describe(self, actor: Actor) -> Attempt:
        """With the token of whose description it is, for others to find where it should not be."""
        user, name = self._user(actor), self._category()
        body = {"description": f"What {self._rng.choice([user, name])} is about."}
        return Attempt("describe", "PUT", f"/api/v1/categories/{name}", {"user_id": user}, body, user=user, writes=True)

    def _forget(self, actor: Actor) -> Attempt:
        user, path = self._user(actor), f"/api/v1/categories/{self._category()}"
        return Attempt("forget", "DELETE", path, {"user_id": user}, user=user, writes=True)

    def _explain(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        params = {"user_id": user, "app": self._app_of(self._user(actor)), "memory_id": self._given(self._id())}
        return Attempt("explain", "GET", "/api/v1/grants/explain", params, user=user)

    def _revoke(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        id_ = self._rng.choice([rule.id for rule in self._world.rules] or [str(UUID(int=9))])
        return Attempt("revoke", "DELETE", f"/api/v1/grants/{id_}", {"user_id": user}, user=user, writes=True)

    def _export(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        body: dict[str, Any] = {"user_id": user, "include_vectors": self._rng.random() < 0.5}
        if self._rng.random() < 0.3:
            body["app_id"] = self._app_id()
        return Attempt("export", "POST", "/api/v1/backup/export", None, body, user=user)

    def _import(self, actor: Actor, path: str = "/api/v1/backup/import") -> Attempt:
        """An archive with the ids of everybody: of memories, apps and rules, and of what the rules are about."""
        user = self._user(actor)
        archive = Upstream(self._rng.choice([user, self._rng.choice(self._world.users)]))
        app = archive.app(self._app_of(self._user(actor)), id=self._app_id())
        category = archive.category(self._category())
        for id_ in dict.fromkeys(self._indexed_id() for _ in range(self._rng.randint(1, 3))):
            memory = archive.memory(
                f"An alpaca of an archive at {self._rng.random()}.",
                id=id_, app_id=self._rng.choice([app, archive.app_id]), namespace=self._namespace(),
                superseded_by=self._id(), categories=[category] if self._rng.random() < 0.5 else (),
            )  # fmt: skip
            archive.change(memory, "deleted", "active")
            archive.rule(app, "allow", memory)
        archive.rule(app, self._rng.choice(["allow", "deny"]), self._id())
        params = {"mode": self._rng.choice(["overwrite", "skip"])}
        return Attempt("import", "POST", path, params, None, archive, user=user, writes=True)

    def _erase_user(self, actor: Actor) -> Attempt:
        others = [user for user in self._world.users if user != actor.user] if actor.user else ["nobody-at-all"]
        user = self._rng.choice(others)
        return Attempt("erase user", "DELETE", f"/api/v1/users/{user}", {"confirm": user}, user=user, writes=True)

    def _plain(self, method: str, path: str) -> Callable[[Actor], Attempt]:
        return lambda _: Attempt(path, method, path)

    def _configure(self, method: str, part: str, body: Any) -> Callable[[Actor], Attempt]:
        path = f"/api/v1/config{part}"
        return lambda _: Attempt(path, method, path, None, body)

    def _make_key(self, actor: Actor) -> Attempt:
        user = self._rng.choice([None, actor.user, *self._world.users])
        own = [name for owner, name, _ in self._world.apps.values() if owner == user]
        app = self._rng.choice([None, *own, *([actor.app] if user in (None, actor.user) else [])])
        namespaces = self._rng.choice([None, actor.namespaces, (self._namespace(),)])
        scopes = frozenset(self._rng.sample(list(Scope), self._rng.randint(1, 3)))
        made = Actor("made", None, user, app, namespaces, scopes)
        body = {
            "name": "k", "user_id": user, "everyone": user is None, "app": app, "scopes": sorted(scopes),
            "namespaces": None if namespaces is None else list(namespaces),
        }  # fmt: skip
        return Attempt("make key", "POST", "/api/v1/keys", None, body, manages=made)

    def _of_capture(self, method: str, part: str) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            ids = [each for each in self._world.captures if "-" in each]
            id_ = self._rng.choice([*ids, str(UUID(int=9))])
            user = self._user(actor) if self._rng.random() < 0.7 else None
            params = {} if user is None else {"user_id": user}
            path = f"/api/v1/captures/{id_}{part}"
            return Attempt(
                f"capture{part}", method, path, params, user=user, writes=method == "POST",
                about=None if user is not None else id_,
            )  # fmt: skip

        return make

    def _of_key(self, method: str, part: str) -> Callable[[Actor], Attempt]:
        def make(_: Actor) -> Attempt:
            id_ = self._rng.choice([str(UUID(int=10)), *self._world.keys])
            return Attempt("key", method, f"/api/v1/keys/{id_}{part}", manages=self._world.keys.get(id_))

        return make

    def _decide(self, _: Actor) -> Attempt:
        return Attempt("decide", "POST", "/api/v1/installation", body={"decision": "copied"})

    def _sync(self, actor: Actor) -> Attempt:
        if self._rng.random() < 0.5:
            return Attempt("sync", "POST", "/api/v1/sync", {"dry_run": True})
        user = self._user(actor)
        return Attempt("sync", "POST", "/api/v1/sync", {"user_id": user, "dry_run": True}, user=user)

    def _tool(
        self,
        name: str,
        arguments: Callable[[], dict[str, Any]],
        *,
        writes: bool = False,
        exact: Callable[[Any], list[str]] | None = None,
    ) -> Callable[[Actor], Attempt]:
        def make(actor: Actor) -> Attempt:
            given = self._as_models_write(arguments())
            body = {
                "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": given},
            }  # fmt: skip
            if actor.user is not None and self._rng.random() < 0.3:
                return Attempt(
                    f"tool {name}", "POST", "/mcp", None, body, as_app=True, exact=exact, writes=writes,
                    asks=_asks(given),
                )  # fmt: skip
            user = self._user(actor)
            app = actor.app if actor.app is not None and self._rng.random() < 0.6 else self._app_of(user)
            path = f"/mcp/{app}/http/{user}"
            return Attempt(
                f"tool {name}", "POST", path, None, body, user=user, app=app, as_app=True, exact=exact, writes=writes,
                states=("active",), asks=_asks(given),
            )  # fmt: skip

        return make


def _asks(arguments: dict[str, Any]) -> tuple[str, tuple[str, ...]] | None:
    """The token of a question, and the namespaces that it names."""
    if "query" not in arguments:
        return None
    if "repo" in arguments:  # what belongs to no project comes as well
        return arguments["query"].split()[-1], tuple(dict.fromkeys((arguments["repo"], "default")))
    within = arguments.get("client_id", arguments.get("project_id", arguments.get("namespace")))
    return arguments["query"].split()[-1], () if within is None else (within,)


def _listed(answer: Any) -> list[str]:
    assert answer["total"] == len(answer["items"])
    return [item["id"] for item in answer["items"]]


def _listed_by_tool(answer: Any) -> list[str]:
    found = answer["result"]["structuredContent"]
    assert found["total"] == len(found["result"])
    return [item["id"] for item in found["result"]]
