"""Finds conflicting results: key-value memories (`key=value`) that give one key different values. Has no side
effects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from openmemory.content_policy.injection import LABEL
from openmemory.dedup.key_values import parsed
from openmemory.search.schemas import Disagreement, Statement


class Result(Protocol):
    """The fields of a result that this module needs."""

    @property
    def id(self) -> UUID: ...
    @property
    def memory(self) -> str: ...
    @property
    def updated_at(self) -> datetime: ...
    @property
    def namespace(self) -> str: ...
    @property
    def app_name(self) -> str: ...
    @property
    def labels(self) -> Sequence[str]: ...


def conflicts(results: Sequence[Result]) -> list[Disagreement]:
    """The keys to which the results give different values, in the order of the results.

    Namespaces are projects, so equal keys in different namespaces are unrelated. Memories that are flagged as prompt
    injections are ignored: a planted text must not become the current value.
    """
    statements: defaultdict[tuple[str, str], list[Statement]] = defaultdict(list)
    for result in results:
        if LABEL not in result.labels:
            for key, value in (parsed(result.memory) or {}).items():
                one = Statement(value, result.id, result.app_name, result.updated_at)
                statements[key, result.namespace].append(one)
    disagreements = []
    for (key, namespace), versions in statements.items():
        current, *older = sorted(versions, key=lambda one: one.at, reverse=True)
        if previous := [one for one in older if one.value != current.value]:
            disagreements.append(Disagreement(key, namespace, current, previous))
    return disagreements
