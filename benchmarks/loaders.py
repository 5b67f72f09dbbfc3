"""Converts published data about long-term memory to judged collections that `benchmarks.evaluation` reads.

    python -m benchmarks loaders KIND SOURCE FOLDER [--sessions]

KIND is one of
  longmemeval  SOURCE: a file of LongMemEval, such as `longmemeval_s_cleaned.json` (Wu et al. 2024)
  locomo       SOURCE: `locomo10.json` (Maharana et al. 2024)
  convomem     SOURCE: a file of ConvoMem's evidence questions, or a folder of them (Salesforce 2025)
  beam         SOURCE: a folder of chats of BEAM, such as `chats/100K` (Tavakoli et al. 2025)

Each message becomes a document, in the namespace of its conversation. `--sessions` makes whole sessions documents
instead. A question without evidence is kept without an answer, and is not asked. FOLDER must not exist yet.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

LOCOMO_CATEGORIES = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}

_TURN = re.compile(r"D\d+:\d+")
_PLACE_IN_PLAN = re.compile(r" ?->-> ?[\d,N/A ]{1,20}$")
_BEAM_DATE = "%B-%d-%Y"


class Message(NamedTuple):
    """A message of a conversation. `date`: as `benchmarks.collections` reads it, empty if it is not known."""

    id: str
    session: str
    text: str
    date: str


class Asked(NamedTuple):
    """A question about a conversation, and the ids of the messages that answer it."""

    id: str
    text: str
    category: str
    evidence: frozenset[str]


class Conversation(NamedTuple):
    """A conversation with its questions. Ids are unique in it."""

    name: str
    messages: list[Message]
    questions: list[Asked]


def longmemeval(source: Path) -> Iterator[Conversation]:
    """One conversation per question: its haystack. Where no message is marked as evidence, every message of a session
    with the answer is."""
    for item in _json(source):
        messages, marked, told = [], set[str](), set[str]()
        sessions = zip(item["haystack_session_ids"], item["haystack_dates"], item["haystack_sessions"], strict=True)
        for at, (session, date, turns) in enumerate(sessions):
            # A haystack may contain a session twice.
            name = f"{at}:{session}"
            for place, turn in enumerate(turns):
                one = Message(f"{name}:{place}", name, f"{turn['role']}: {turn['content']}", date)
                messages.append(one)
                if turn.get("has_answer"):
                    marked.add(one.id)
                if session in item["answer_session_ids"]:
                    told.add(one.id)
        evidence = set() if item["question_id"].endswith("_abs") else marked or told
        question = Asked("q", item["question"], item["question_type"], frozenset(evidence))
        yield Conversation(item["question_id"], messages, [question])


def locomo(source: Path) -> Iterator[Conversation]:
    """The conversations of LoCoMo. The caption of a shared image is a part of its message."""
    for item in _json(source):
        talk, messages = item["conversation"], []
        numbers = sorted(int(name[8:]) for name in talk if re.fullmatch(r"session_\d+", name))
        for number in numbers:
            for turn in talk[f"session_{number}"]:
                image = f" [shared image: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
                text = f"{turn['speaker']}: {turn['text']}{image}"
                messages.append(Message(turn["dia_id"], f"D{number}", text, talk[f"session_{number}_date_time"]))
        known = {one.id for one in messages}
        questions = [
            Asked(
                f"q{at}",
                asked["question"],
                LOCOMO_CATEGORIES.get(asked["category"], str(asked["category"])),
                frozenset(_TURN.findall(" ".join(asked.get("evidence") or ()))) & known,
            )
            for at, asked in enumerate(item["qa"])
        ]
        yield Conversation(item["sample_id"], messages, questions)


def convomem(source: Path) -> Iterator[Conversation]:
    """One conversation per evidence item. Evidence are the messages whose text the item repeats."""
    files = sorted(source.rglob("*.json")) if source.is_dir() else [source]
    for file in files:
        for number, item in enumerate(_json(file)["evidence_items"]):
            wanted = {(each["speaker"], each["text"].strip()) for each in item["message_evidences"]}
            messages, evidence = [], set[str]()
            for at, talk in enumerate(item["conversations"]):
                for place, said in enumerate(talk["messages"]):
                    one = Message(f"{at}:{place}", str(at), f"{said['speaker']}: {said['text']}", "")
                    messages.append(one)
                    if (said["speaker"], said["text"].strip()) in wanted:
                        evidence.add(one.id)
            question = Asked("q", item["question"], item.get("category", ""), frozenset(evidence))
            yield Conversation(f"{file.stem}-{number}", messages, [question])


def beam(source: Path) -> Iterator[Conversation]:
    """The chats of a folder of BEAM. A message without a time has that of the last one before it."""
    for folder in sorted(file.parent for file in source.glob("*/chat.json")):
        messages, date = [], ""
        for batch in _json(folder / "chat.json"):
            for said in (said for turn in batch["turns"] for said in turn):
                date = _beam_date(said.get("time_anchor")) or date
                text = f"{said['role']}: {_PLACE_IN_PLAN.sub('', said['content'])}"
                messages.append(Message(str(said["id"]), str(batch["batch_number"]), text, date))
        known = {one.id for one in messages}
        questions = [
            Asked(
                f"{ability}-{at}", asked["question"], ability, frozenset(_leaves(asked.get("source_chat_ids"))) & known
            )
            for ability, some in _json(folder / "probing_questions" / "probing_questions.json").items()
            for at, asked in enumerate(some)
        ]
        yield Conversation(f"{source.name}-{folder.name}", messages, questions)


def _leaves(value: Any) -> Iterator[str]:
    """The numbers in lists and objects of any depth."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield str(value)


def _beam_date(said: str | None) -> str:
    try:
        return f"{datetime.strptime(said or '', _BEAM_DATE):%Y-%m-%d}"
    except ValueError:
        return ""


KINDS: dict[str, Callable[[Path], Iterator[Conversation]]] = {
    "longmemeval": longmemeval,
    "locomo": locomo,
    "convomem": convomem,
    "beam": beam,
}


def by_session(one: Conversation) -> Conversation:
    """The conversation with its sessions as messages."""
    sessions: dict[str, list[Message]] = {}
    for message in one.messages:
        sessions.setdefault(message.session, []).append(message)
    of = {message.id: message.session for message in one.messages}
    messages = [
        Message(name, name, "\n".join(each.text for each in some), some[0].date) for name, some in sessions.items()
    ]
    questions = [each._replace(evidence=frozenset(of[id_] for id_ in each.evidence)) for each in one.questions]
    return Conversation(one.name, messages, questions)


def write(conversations: Sequence[Conversation] | Iterator[Conversation], folder: Path) -> tuple[int, int]:
    """Writes a collection in the layout of BEIR, and returns its number of documents and of questions with an answer.

    Raises:
        FileExistsError: the folder exists.
    """
    folder.mkdir(parents=True)
    documents = answered = 0
    with (
        (folder / "corpus.jsonl").open("w", encoding="utf-8") as corpus,
        (folder / "queries.jsonl").open("w", encoding="utf-8") as queries,
        (folder / "qrels.tsv").open("w", encoding="utf-8") as judgements,
    ):
        judgements.write("query-id\tcorpus-id\tscore\n")
        for talk in conversations:
            for one in talk.messages:
                metadata = {"namespace": talk.name, "session": one.session}
                document = {"_id": f"{talk.name}|{one.id}", "text": one.text, "metadata": metadata}
                if one.date:
                    metadata["date"] = one.date
                corpus.write(f"{json.dumps(document, ensure_ascii=False)}\n")
            documents += len(talk.messages)
            for asked in talk.questions:
                id_, about = f"{talk.name}|{asked.id}", {"namespace": talk.name, "category": asked.category}
                question = {"_id": id_, "text": asked.text, "metadata": about}
                queries.write(f"{json.dumps(question, ensure_ascii=False)}\n")
                judgements.writelines(f"{id_}\t{talk.name}|{each}\t1\n" for each in sorted(asked.evidence))
                answered += bool(asked.evidence)
    return documents, answered


def _json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


def main() -> None:
    """Converts one source."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("source", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sessions", action="store_true", help="whole sessions instead of messages")
    given = parser.parse_args()
    if given.folder.exists():
        parser.error(f"{given.folder} exists; name a new folder")
    found = KINDS[given.kind](given.source)
    documents, answered = write(map(by_session, found) if given.sessions else found, given.folder)
    print(f"{given.folder}: {documents:,} documents, {answered:,} questions with an answer")


if __name__ == "__main__":
    main()
