"""Published data becomes judged collections: small files in their shapes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.collections import Collection, read
from benchmarks.loaders import KINDS, by_session, write

LONGMEMEVAL = [
    {
        "question_id": "e47", "question_type": "single-session-user", "question": "Which tea do I drink?",
        "answer": "oolong",
        "question_date": "2023/05/30 (Tue) 23:40", "answer_session_ids": ["s2"], "haystack_session_ids": ["s1", "s2"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00"],
        "haystack_sessions": [
            [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}],
            [
                {"role": "user", "content": "I drink oolong", "has_answer": True},
                {"role": "assistant", "content": "Nice"},
            ],
        ],
    },
    {
        "question_id": "e48_abs", "question_type": "single-session-user", "question": "Which beer?",
        "answer": "unknown",
        "question_date": "2023/05/30 (Tue) 23:40", "answer_session_ids": ["s1"], "haystack_session_ids": ["s1"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21"], "haystack_sessions": [[{"role": "user", "content": "Hello"}]],
    },
]  # fmt: skip
LOCOMO = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ada", "speaker_b": "Ben", "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ada", "dia_id": "D1:1", "text": "Hey"},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "Look", "blip_caption": "a photo of a dog"},
            ],
        },
        "qa": [
            {"question": "What did Ben show?", "answer": "a dog", "evidence": ["D1:2; D9:9"], "category": 4},
            {"question": "Who is Cleo?", "adversarial_answer": "x", "evidence": [], "category": 5},
        ],
    }
]  # fmt: skip
CONVOMEM = {
    "evidence_items": [
        {
            "question": "Where do I work?", "answer": "Acme", "category": "work",
            "message_evidences": [{"speaker": "User", "text": "I work at Acme"}],
            "conversations": [
                {"id": "a", "containsEvidence": True, "messages": [
                    {"speaker": "User", "text": "I work at Acme "}, {"speaker": "Assistant", "text": "Fine"}]},
            ],
        }
    ]
}  # fmt: skip
CHAT = [
    {
        "batch_number": 1,
        "turns": [
            [
                {
                    "role": "user",
                    "id": 0,
                    "time_anchor": "March-15-2024",
                    "content": "The sprint ends on 29 March ->-> 1,1",
                },
                {"role": "assistant", "id": 1, "content": "Noted"},
            ]
        ],
    }
]
PROBES = {
    "knowledge_update": [
        {"question": "When does it end?", "source_chat_ids": {"original_info": [0], "updated_info": [[1]]}}
    ],
    "abstention": [{"question": "Who pays?"}],
}


def sources(folder: Path) -> dict[str, Path]:
    """A file or folder of each kind."""
    found = {}
    for name, data in (("longmemeval", LONGMEMEVAL), ("locomo", LOCOMO), ("convomem", CONVOMEM)):
        found[name] = folder / f"{name}.json"
        found[name].write_text(json.dumps(data), encoding="utf-8")
    found["beam"] = folder / "100K"
    (found["beam"] / "1" / "probing_questions").mkdir(parents=True)
    (found["beam"] / "1" / "chat.json").write_text(json.dumps(CHAT), encoding="utf-8")
    file = found["beam"] / "1" / "probing_questions" / "probing_questions.json"
    file.write_text(json.dumps(PROBES), encoding="utf-8")
    return found


def made(tmp_path: Path, kind: str, **more: Any) -> Collection:
    talks = KINDS[kind](sources(tmp_path)[kind])
    write(map(by_session, talks) if more.get("sessions") else talks, tmp_path / "made")
    return read(tmp_path / "made")


@pytest.mark.parametrize(
    ("kind", "texts", "question", "answers"),
    [
        (
            "longmemeval",
            ["user: Hello", "assistant: Hi", "user: I drink oolong", "assistant: Nice", "user: Hello"],
            "Which tea do I drink?",
            ["user: I drink oolong"],
        ),
        (
            "locomo",
            ["Ada: Hey", "Ben: Look [shared image: a photo of a dog]"],
            "What did Ben show?",
            ["Ben: Look [shared image: a photo of a dog]"],
        ),
        ("convomem", ["User: I work at Acme ", "Assistant: Fine"], "Where do I work?", ["User: I work at Acme "]),
        (
            "beam",
            ["user: The sprint ends on 29 March", "assistant: Noted"],
            "When does it end?",
            ["user: The sprint ends on 29 March", "assistant: Noted"],
        ),
    ],
)
def test_messages_are_documents_and_evidence_answers(
    tmp_path: Path, kind: str, texts: list[str], question: str, answers: list[str]
) -> None:
    found = made(tmp_path, kind)
    assert [one.text for one in found.documents] == texts
    [asked] = found.questions  # what nothing answers is not asked
    assert asked.text == question
    said = {one.id: one.text for one in found.documents}
    assert sorted(said[id_] for id_ in asked.relevant) == sorted(answers)
    assert {one.namespace for one in found.documents if one.id in asked.relevant} == {asked.namespace}


def test_dates_are_read(tmp_path: Path) -> None:
    [first, *_] = made(tmp_path, "longmemeval").documents
    assert first.written == datetime(2023, 5, 20, 2, 21, tzinfo=UTC)
    written = [one.written.date().isoformat() for one in read_again(tmp_path, "beam").documents]
    assert written == ["2024-03-15", "2024-03-15"]


def read_again(tmp_path: Path, kind: str) -> Collection:
    (tmp_path / kind).mkdir()
    return made(tmp_path / kind, kind)


def test_whole_sessions_are_documents(tmp_path: Path) -> None:
    found = made(tmp_path, "longmemeval", sessions=True)
    assert [one.text for one in found.documents[:2]] == [
        "user: Hello\nassistant: Hi", "user: I drink oolong\nassistant: Nice",
    ]  # fmt: skip
    [asked] = found.questions
    assert asked.relevant == {found.documents[1].id}


def test_a_folder_that_exists_is_kept(tmp_path: Path) -> None:
    made(tmp_path, "locomo")
    with pytest.raises(FileExistsError):
        write([], tmp_path / "made")
