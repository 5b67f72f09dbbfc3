"""A language model and an embedder by script, for two systems that ask in different words: both are answered as well as
their questions allow, and what they ask is counted in one way."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from benchmarks.sayings import BROKEN, Said
from openmemory.embeddings.local import TOKENIZER, Model
from tests.llm.server import Answer, LlmServer, says


@dataclass
class Counts:
    """What was asked. `prompt` and `completion` in tokens; `embedded`: texts."""

    calls: int = 0
    prompt: int = 0
    completion: int = 0
    embeddings: int = 0
    embedded: int = 0


class Scripted:
    """Answers mem0's question for new memories and ours for operations, and embeds with the packaged model.

    Tokens are those of the packaged model's own tokenizer, of all messages, of the JSON schema if one is sent, and of
    what is answered; failed answers are counted too.
    """

    def __init__(self) -> None:
        self._model = Model(threads=1, tokenwise=False)
        self._tokens: Tokenizer = Tokenizer.from_file(str(TOKENIZER.verified()))
        self._tokens.no_truncation()
        self._tokens.no_padding()
        self._lock = threading.Lock()
        self._asked: Counter[str] = Counter()
        self._said: Sequence[Said] = ()
        self.counts = Counts()
        self.server = LlmServer(self._answer)

    @property
    def url(self) -> str:
        """The base URL of both."""
        return self.server.url

    def close(self) -> None:
        """Stop serving."""
        self.server.close()

    def begin(self, said: Sequence[Said]) -> Counts:
        """Know what will be said, and count anew."""
        with self._lock:
            self._said, self._asked, self.counts = said, Counter(), Counts()
            return self.counts

    def _answer(self, asked: dict[str, Any]) -> Answer:
        return self._embedded(asked["input"]) if "input" in asked else self._told(asked)

    def _embedded(self, texts: str | list[str]) -> Answer:
        texts = [texts] if isinstance(texts, str) else texts
        with self._lock:
            self.counts.embeddings += 1
            self.counts.embedded += len(texts)
        vectors = [self._model.run([ids])[0].vector.tolist() for ids in self._model.encode(texts)]
        data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
        usage = {"prompt_tokens": 0, "total_tokens": 0}
        return says({}, raw=json.dumps({"object": "list", "data": data, "model": "m", "usage": usage}).encode())

    def _told(self, asked: dict[str, Any]) -> Answer:
        if len(asked["messages"]) == 1:
            return Answer("ok")  # the doctor asks whether the model answers
        with self._lock:
            question = asked["messages"][1]["content"]
            system = _mem0 if "## New Messages\n" in question else _ours
            said = self._about(question)
            times = self._asked[said.text]
            self._asked[said.text] += 1
            answer = good = says(system(question, said))
            if times < len(said.failures):
                answer = said.failures[times]
            if answer is BROKEN:
                assert good.text is not None
                answer = Answer(good.text[: len(good.text) // 2])
            self.counts.calls += 1
            self.counts.prompt += sum(map(self._length, _read(asked)))
            self.counts.completion += self._length(answer.text or "") if answer.status == 200 else 0
        return answer

    def _about(self, question: str) -> Said:
        """The text that is asked about, which both systems quote."""
        new = question.rpartition("## New Messages\n")[2] if "## New Messages\n" in question else question
        new = new.rpartition("<said-")[2]
        [said] = {each.text: each for each in self._said if each.text in new}.values()
        return said

    def _length(self, text: str) -> int:
        return len(self._tokens.encode(text, add_special_tokens=False).ids)


def _read(asked: dict[str, Any]) -> list[str]:
    form = asked.get("response_format") or {}
    schema = form.get("json_schema", {}).get("schema")
    return [turn["content"] for turn in asked["messages"]] + ([] if schema is None else [json.dumps(schema)])


def _mem0(question: str, said: Said) -> dict[str, Any]:
    """What mem0's prompt asks for: new memories alone, none that is there, and a change told as a change and linked."""
    block = re.search(r"^## Existing Memories\n(.*)$", question, re.MULTILINE)
    assert block is not None
    there = {each["text"]: each["id"] for each in json.loads(block[1])}
    texts = [said.change] if said.change else [*said.facts]
    linked = {"linked_memory_ids": [there[said.replaces]]} if said.replaces in there else {}
    new = [text for text in texts if text not in there]
    return {"memory": [{"id": str(at), "text": text, "attributed_to": "user"} | linked for at, text in enumerate(new)]}


def _ours(question: str, said: Said) -> dict[str, Any]:
    """What our prompt asks for: operations on what is there and on what is new."""
    block = re.search(r"<memories-(\w+)>\n(.*)\n</memories-\1>", question, re.DOTALL)
    assert block is not None
    lines = (line.partition(". ") for line in block[2].splitlines() if line != "(none)")
    # The time follows the text.
    there = {json.JSONDecoder().raw_decode(text)[0]: int(number) for number, _, text in lines}
    return {"operations": [_operation(fact, there, said.replaces) for fact in said.facts]}


def _operation(fact: str, there: dict[str, int], replaces: str) -> dict[str, Any]:
    kind = {"categories": ["personal"], "kind": "fact", "importance": 5, "from": None, "until": None, "reason": None}
    if fact in there:
        nothing = {"categories": [], "kind": None, "importance": None, "reason": "known"}
        return {"op": "NONE", "id": there[fact], "text": None} | kind | nothing
    if replaces in there:
        return {"op": "SUPERSEDE", "id": there[replaces], "text": fact} | kind
    return {"op": "ADD", "id": None, "text": fact} | kind
