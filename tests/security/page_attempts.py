"""The pages, asked for and submitted with everything that might be somebody else's."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from openmemory.identity.principal import Scope
from tests.security.attempts import Attempt, Attempts
from tests.security.world import Actor

Make = Callable[[Actor], Attempt]


class PageAttempts(Attempts):
    """Makes random attempts on the pages and on every other door."""

    def __init__(self, world: Any, rng: random.Random) -> None:
        super().__init__(world, rng)
        pages: dict[str, Make] = {
            "GET /ui/memories": self._memories_page,
            "POST /ui/memories": self._add_by_form,
            "POST /ui/memories/change": self._form("memories/change", self._change),
            "POST /ui/memories/undo": self._form("memories/undo", lambda: {"change": str(UUID(int=9))}),
            "GET /ui/memories/erase": self._page("memories/erase", lambda: {"id": self._ids()}),
            "POST /ui/memories/erase": self._form("memories/erase", lambda: {"id": self._ids()}),
            "GET /ui/memory/{memory_id}": self._memory_page,
            "POST /ui/memory/{memory_id}/edit": self._memory_form(
                "edit", lambda: {"text": f"The alpaca of a form moved to {self._rng.random()}."}
            ),
            "POST /ui/memory/{memory_id}/revert": self._memory_form(
                "revert", lambda: {"revision": str(self._rng.randint(1, 4))}
            ),
            "POST /ui/memory/{memory_id}/file": self._memory_form("file", lambda: {"categories": self._category()}),
            "GET /ui/apps": self._page("apps"),
            "GET /ui/apps/{app_id}": self._app_page,
            "POST /ui/apps/{app_id}/pause": self._app_form("pause"),
            "POST /ui/apps/{app_id}/resume": self._app_form("resume"),
            "POST /ui/apps/{app_id}/rules": self._app_form("rules", self._rule_by_form),
            "POST /ui/apps/{app_id}/rules/remove": self._app_form("rules/remove", self._some_rule),
            "GET /ui/time": self._page("time"),
            "GET /ui/time/changes": self._page("time/changes"),
            "GET /ui/connect": self._page("connect"),
            "GET /ui/activity": self._page("activity"),
            "GET /ui/activity/captures": self._page("activity/captures"),
            "POST /ui/activity/captures/{capture_id}/undo": self._capture_form,
            "GET /ui/activity/upcoming": self._page("activity/upcoming"),
            "GET /ui/activity/conflicts": self._page("activity/conflicts"),
            "POST /ui/activity/conflicts": self._form("activity/conflicts", self._decision),
            "GET /ui/activity/duplicates": self._page("activity/duplicates"),
            "POST /ui/activity/duplicates": self._form("activity/duplicates", self._pair),
            "POST /ui/activity/duplicates/again": self._form(
                "activity/duplicates/again", lambda: {"one": self._id(), "other": self._id()}
            ),
            "GET /ui/settings": self._page("settings"),
            "POST /ui/settings/timezone": self._form("settings/timezone", lambda: {"timezone": "Asia/Kolkata"}),
            "GET /ui/settings/archives": self._page("settings/archives"),
            "POST /ui/settings/archives/export": self._form("settings/archives/export", dict, writes=False),
            "POST /ui/settings/archives": self._import_by_form,
            "GET /ui/settings/categories": self._page("settings/categories"),
            "POST /ui/settings/categories": self._describe_by_form,
            "POST /ui/settings/categories/forget": self._form(
                "settings/categories/forget", lambda: {"name": self._category()}
            ),
            "POST /ui/settings/categories/assign": self._form("settings/categories/assign", dict),
            "GET /ui/settings/keys": self._page("settings/keys"),
            "POST /ui/settings/keys": self._key_form,
            "POST /ui/settings/keys/rotate": self._form("settings/keys/rotate", lambda: {"id": str(UUID(int=4))}),
            "POST /ui/settings/keys/revoke": self._form("settings/keys/revoke", lambda: {"id": str(UUID(int=4))}),
            "GET /ui/settings/models": self._page("settings/models"),
            "POST /ui/settings/models": self._form("settings/models", dict),
            "POST /ui/settings/models/test": self._form("settings/models/test", dict, writes=False),
            "POST /ui/settings/models/reset": self._form("settings/models/reset", dict),
            "POST /ui/settings/models/instructions": self._form(
                "settings/models/instructions", lambda: {"instructions": "none"}
            ),
            "GET /ui/settings/policies": self._page("settings/policies"),
            "POST /ui/settings/policies": self._form(
                "settings/policies",
                lambda: {"criteria_type": "category", "criteria_name": self._category(), "days": "90"},
            ),
            "POST /ui/settings/policies/delete": self._form(
                "settings/policies/delete", lambda: {"id": str(UUID(int=3))}
            ),
            "GET /ui/system": self._page("system"),
            "POST /ui/system/sync": self._form("system/sync", dict, writes=False),
            "POST /ui/notice/close": self._form("notice/close", dict, writes=False),
            "GET /ui/sign-in/start": self._sign_in("start"),
            "GET /ui/sign-in/callback": self._sign_in("callback"),
        }
        self._doors |= pages
        self._names += [name for name in pages for _ in range(12)]

    def _page(self, path: str, parameters: Callable[[], dict[str, Any]] = dict, about: str | None = None) -> Make:
        def make(actor: Actor) -> Attempt:
            user = self._user(actor)
            return Attempt(
                f"GET /ui/{path}", "GET", f"/ui/{path}", {"user": user} | parameters(), user=user, about=about
            )

        return make

    def _sign_in(self, step: str) -> Make:
        """The sign-in at an authorization server, of which there is none here."""
        path = f"/ui/sign-in/{step}"

        def make(_: Actor) -> Attempt:
            return Attempt(f"GET {path}", "GET", path, {"next": f"memory/{self._id()}", "code": "c", "state": "s"})

        return make

    def _form(self, path: str, fields: Callable[[], dict[str, Any]], *, writes: bool = True) -> Make:
        def make(actor: Actor) -> Attempt:
            user = self._user(actor)
            params = {"user": user}
            return Attempt(f"POST /ui/{path}", "POST", f"/ui/{path}", params, user=user, form=fields(), writes=writes)

        return make

    def _change(self) -> dict[str, Any]:
        more: dict[str, Any] = {"all": "1"} if self._rng.random() < 0.2 else {"id": self._ids()}
        action = self._rng.choice(["pause", "resume", "archive", "restore", "delete", "file", "expire", "keep"])
        return more | {"action": action, "file_under": self._category(), "expires": "2099-01-01"}

    def _decision(self) -> dict[str, Any]:
        return {"key": "alpaca", "keep": f"{self._id()} 1", "other": [f"{each} 1" for each in self._ids()]}

    def _pair(self) -> dict[str, Any]:
        keep = self._rng.choice(["newer", "older", "both"])
        return {"keep": keep, "newer": f"{self._id()} 1", "older": f"{self._id()} 1"}

    def _memory_page(self, actor: Actor) -> Attempt:
        """The page of a memory. It shows who has accessed it; half of the attempts also ask who may see it."""
        id_ = self._own_id(actor)
        more = {"who": "1"} if self._rng.random() < 0.5 else {}
        return replace(self._page(f"memory/{id_}", lambda: more, about=id_)(actor), door="get/access-log")

    def _memory_form(self, action: str, fields: Callable[[], dict[str, Any]]) -> Make:
        return lambda actor: self._form(f"memory/{self._own_id(actor)}/{action}", fields)(actor)

    def _capture_form(self, actor: Actor) -> Attempt:
        id_ = self._rng.choice([*self._world.captures, str(UUID(int=2))])
        return self._form(f"activity/captures/{id_}/undo", dict)(actor)

    def _key_form(self, actor: Actor) -> Attempt:
        user = self._rng.choice(self._world.users)
        fields = {"name": "made by a form", "user_id": user, "scopes": "read"}
        made = Actor("made", None, user, scopes=frozenset({Scope.READ}))
        return replace(self._form("settings/keys", lambda: fields)(actor), door="make key", manages=made)

    def _import_by_form(self, actor: Actor) -> Attempt:
        """An archive for a user who is named in the form, at the page of this user or of nobody in particular."""
        made = self._import(actor)
        form = {"do": self._rng.choice(["import", "import", "try"]), "into": made.user or ""} | (made.params or {})
        params = {"user": made.user} if self._rng.random() < 0.5 else {}
        return replace(made, door="import by form", path="/ui/settings/archives", params=params, form=form)

    def _app_page(self, actor: Actor) -> Attempt:
        """The page of an app, at times with a search as that app."""
        id_ = self._own_app_id(actor)
        made = self._page(f"apps/{id_}")(actor)
        if self._rng.random() < 0.5:
            return made
        words, token = self._asked("alpaca")
        return replace(made, params={**(made.params or {}), "q": words}, asks=(token, ()))

    def _app_form(self, action: str, fields: Callable[[], dict[str, Any]] = dict) -> Make:
        return lambda actor: self._form(f"apps/{self._own_app_id(actor)}/{action}", fields)(actor)

    def _rule_by_form(self) -> dict[str, Any]:
        object_type, named = self._rng.choice(
            [("memory", self._id()), ("namespace", self._namespace()), ("category", self._category()), ("all", "")]
        )
        return {"effect": self._rng.choice(["allow", "deny"]), "object_type": object_type, "object": named}

    def _some_rule(self) -> dict[str, Any]:
        return {"rule": self._rng.choice([*(rule.id for rule in self._world.rules), str(UUID(int=5))])}

    def _describe_by_form(self, actor: Actor) -> Attempt:
        """In the words of `_describe`: for words of its memories the service would file them while others try."""
        described = self._describe(actor)
        fields = {"name": self._category(), "description": described.body["description"]}
        return self._form("settings/categories", lambda: fields)(actor)

    def _memories_page(self, actor: Actor) -> Attempt:
        user = self._user(actor)
        params: dict[str, Any] = {"user": user, "state": self._rng.choice(["active", "any", "deleted"])}
        asks = None
        if self._rng.random() < 0.4:
            params["q"], token = self._asked("alpaca")
            asks = (token, ())
        more = self._rng.random()
        if more < 0.15:
            params["app"] = self._app_of(user)
        elif more < 0.3:
            params["namespace"] = self._namespace()
            asks = asks and (asks[0], (params["namespace"],))
        elif more < 0.4:
            params["category"] = self._category()
        return Attempt("GET /ui/memories", "GET", "/ui/memories", params, user=user, asks=asks)

    def _add_by_form(self, actor: Actor) -> Attempt:
        fields = {"text": self._text()["text"], "namespace": self._namespace(), "categories": self._category()}
        return self._form("memories", lambda: fields)(actor)
