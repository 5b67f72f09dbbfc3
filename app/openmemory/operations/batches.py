"""Batches: each item is checked by itself, so that an invalid one does not stop the others.

A use case takes the items as they were sent:

    messages: Annotated[list[Any], items_of(MessageEntry)]
    ...
    new = await parsed(messages, MessageEntry, MessageEntry.message)
    return MessagesAnswer(thread_id=thread_id, **reported(await services.conversations.add(caller, new)))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError

from openmemory.content_policy.secrets import redacted
from openmemory.errors import Invalid
from openmemory.serialization.invalid_fields import not_valid

EntryT = TypeVar("EntryT", bound=BaseModel)
ItemT = TypeVar("ItemT")


class Problem(BaseModel):
    """A request that could not be answered."""

    error: str = Field(description="A stable code for programs.", examples=["memory_not_found"])
    detail: str = Field(description="What happened, for people.", examples=["Memory not found"])
    hint: str | None = Field(description="What would work, if known.")


class ItemProblem(Problem):
    """An item of a batch that was not stored, with the reason. The reason does not repeat the invalid value."""

    index: int = Field(description="Its position in the batch, from 0.")
    field: str = Field(description="The refused field; `body`: the item is not a JSON object.")

    @classmethod
    def of(cls, index: int, error: Invalid) -> Self:
        """Returns the error of the item at this position."""
        return cls(index=index, field=error.field, error=error.code, detail=error.message, hint=error.hint)


Refused = Annotated[list[ItemProblem], Field(description="The items of `results` that were not stored.")]


class BatchReport(BaseModel):
    """The answer to a batch, with `results` and `refused`."""


def items_of(entry: type[BaseModel]) -> Any:
    """Returns the words of a field with items that are checked one by one."""
    schema = entry.model_json_schema(ref_template="#/components/schemas/{model}")
    return Field(description="At most limits.batch of them.", json_schema_extra={"items": schema})


async def parsed(entries: list[Any], entry: type[EntryT], made: Callable[[EntryT], ItemT]) -> list[ItemT | Invalid]:
    """Returns what `made` makes of each item, or its error."""

    def one(sent: Any) -> ItemT | Invalid:
        try:
            return made(entry.model_validate(sent))
        except ValidationError as error:
            problems = not_valid(error.errors(include_url=False, include_input=False, include_context=False))
        # The name of a field may look like a secret.
        field, _, problem = problems.partition(": ")
        return Invalid(redacted(field), redacted(problem))

    # In a thread, because a batch may be large.
    return await asyncio.to_thread(lambda: [one(each) for each in entries])


def reported(became: Iterable[ItemT | Invalid]) -> dict[str, Any]:
    """Returns the fields of a report: the results in their order, and the errors among them."""
    results = [ItemProblem.of(index, one) if isinstance(one, Invalid) else one for index, one in enumerate(became)]
    return {"results": results, "refused": [one for one in results if isinstance(one, ItemProblem)]}
