"""The commands that add, find, list and remove, against a running service."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_what_is_added_is_listed_found_and_added_only_once(om: Run, user: str) -> None:
    first = om("add", "The ferry leaves at seven", "--user", user, "--app", "notes", "--category", "travel", "--json")
    assert first.returncode == 0, first.stderr
    added = json.loads(first.stdout)
    assert (added["content"], added["event"]) == ("The ferry leaves at seven", "ADD")
    again = om("add", "The ferry leaves at seven", "--user", user, "--app", "notes")
    assert again.stdout == f"Already remembered: {added['id']}\n"
    [item] = json.loads(om("list", "--user", user, "--json").stdout)["items"]
    assert (item["id"], item["app_name"], item["categories"]) == (added["id"], "notes", ["travel"])
    [hit] = json.loads(om("search", "when does the boat depart", "--user", user, "--json").stdout)["results"]
    assert hit["id"] == added["id"]
    [line] = om("search", "ferry", "--user", user).stdout.splitlines()
    assert line.split("\t")[1] == added["id"]
    assert line.endswith("\tnotes\tThe ferry leaves at seven")


def test_a_text_from_standard_input_is_kept_word_for_word(om: Run, user: str) -> None:
    assert om("add", "-", "--user", user, stdin="two\nlines \u2028 and \x1b[31mred\n").returncode == 0
    [item] = json.loads(om("list", "--user", user, "--json").stdout)["items"]
    assert item["content"] == "two\nlines \u2028 and \x1b[31mred"
    [line] = om("list", "--user", user).stdout.splitlines()
    assert "\x1b" not in line


def test_an_explanation_is_a_table_whose_parts_add_up(om: Run, user: str) -> None:
    om("add", "the ferry leaves at nine", "--user", user)
    told = om("search", "ferry in May 2023", "--user", user, "--explain")
    line, *notes = told.stdout.splitlines()
    score, _, _, _, _, *columns, penalty, bm25, place, cosine, nearest, text = line.split("\t")
    logit = sum(float(column) for column in columns if column != "-") - float(penalty)
    assert float(score) == pytest.approx(1 / (1 + math.exp(-logit)), abs=0.006)
    assert columns[-3:] == ["-", "-", "-"]  # names, recency, reranker
    assert (place, nearest, text) == ("1", "1", "the ferry leaves at nine")
    assert 0 < float(cosine) < 1
    assert float(bm25) > 0
    assert {
        "# Embedded as: ferry in May 2023", "# Time: from 2023-05-01T00:00:00Z until 2023-06-01T00:00:00Z"
    } <= {*notes}  # fmt: skip
    assert told.stderr == ""


@pytest.mark.slow
def test_rows_name_the_app_of_the_text_and_the_one_that_added_it_where_they_differ(om: Run, user: str) -> None:
    for app in ("one", "two"):
        om("values", "set", "drinks", "coffee", f"{app} is bitter", "--app", app, "--user", user, "--namespace", "home")
    om("values", "set", "drinks", "tea", "green", "--app", "one", "--user", user, "--namespace", "home")
    for command, column in ((["list"], 2), (["search", "which drinks, coffee or tea?"], 3)):
        for filtered in ([], ["--app", "one"]):
            lines = om(*command, "--user", user, *filtered).stdout.splitlines()
            apps = {line.rpartition("\t")[2]: line.split("\t")[column] for line in lines}
            assert apps == {"drinks/coffee: two is bitter": "two, added by one", "drinks/tea: green": "one"}
        assert "coffee" not in om(*command, "--user", user, "--app", "two").stdout


def test_an_empty_answer_says_why_and_an_overview_has_no_scores(om: Run, user: str) -> None:
    om("add", "My name is Ada", "--user", user)
    nothing = om("search", "quasar redshift", "--user", user)
    note = "Nothing was found for “quasar redshift” in the only memory that you may read"
    assert (nothing.returncode, nothing.stdout.splitlines()) == (0, [f"# {note}"])
    for more in ([], ["--explain"]):
        line, *_ = om("search", "who am I?", "--user", user, *more).stdout.splitlines()
        cells = line.split("\t")
        assert (cells[0], cells[-1]) == ("-", "My name is Ada")


def test_apps_and_namespaces_narrow_lists_and_searches(om: Run, user: str) -> None:
    om("add", "Coffee is black", "--user", user, "--app", "one", "--namespace", "home")
    om("add", "Coffee is bitter", "--user", user, "--app", "two", "--namespace", "work")
    for command in (["list"], ["search", "coffee"]):
        of_app = om(*command, "--user", user, "--app", "one").stdout
        assert ("black" in of_app, "bitter" in of_app) == (True, False)
        of_namespace = om(*command, "--user", user, "--namespace", "work").stdout
        assert ("black" in of_namespace, "bitter" in of_namespace) == (False, True)
    condition = '{"AND": [{"app": "two"}, {"namespace": {"contains": "or"}}]}'
    filtered = om("search", "coffee", "--user", user, "--filter", condition).stdout
    assert ("black" in filtered, "bitter" in filtered) == (False, True)
    unknown = om("list", "--user", user, "--app", "three")
    assert (unknown.returncode, unknown.stderr) == (1, f"openmemory: {user} has no app 'three'\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["export", "--user", "nobody-of-this-name"], 1, "User not found"),
        (["add", "   "], 2, "TEXT: "),
        (["list", "--state", "gone"], 2, "--state: must be one or more"),
        (["search", "x", "--limit", "100000"], 2, "--limit: "),
        (["search", "x", "--filter", "{"], 2, "--filter: must be valid JSON"),
        (["search", "x", "--filter", '{"colour": 1}'], 2, "--filter: colour: is not a known field"),
        (["search", "x", "--filter", "[]"], 2, "--filter: must be a JSON object"),
        (["erase"], 2, "--memory ID"),
        (["erase", "--user", "somebody"], 2, "--yes"),
        (["erase", "--memory", "5", "--yes"], 2, "--memory: "),
        (["grants", "revoke", "00000000-0000-0000-0000-000000000000"], 1, "Grant not found"),
        (["grants", "add", "maybe", "all"], 2, "EFFECT: "),
        (["grants", "explain", "5", "--app", "cursor"], 2, "MEMORY: "),
        (["grants", "explain", "00000000-0000-0000-0000-000000000000", "--app", "nobody"], 1, "App not found"),
        (["apps", "pause", "unheard-of"], 1, "no app 'unheard-of'"),
    ],
)
def test_a_refusal_is_one_line_with_an_exit_code(om: Run, arguments: list[str], code: int, words: str) -> None:
    told = om(*arguments)
    assert told.returncode == code
    [line] = told.stderr.splitlines()
    assert line.startswith("openmemory: ")
    assert words in line


def test_a_paused_app_writes_nothing_until_it_is_resumed(om: Run, user: str) -> None:
    om("add", "Before", "--user", user, "--app", "noisy")
    assert om("apps", "pause", "noisy", "--user", user).stdout == "noisy is paused.\n"
    assert "noisy\tpaused\t1" in om("apps", "list", "--user", user).stdout
    refused = om("add", "Meanwhile", "--user", user, "--app", "noisy")
    assert refused.returncode == 1
    assert "paused" in refused.stderr
    om("apps", "resume", "noisy", "--user", user)
    assert om("add", "After", "--user", user, "--app", "noisy").returncode == 0


def test_rules_are_made_listed_and_revoked(om: Run, user: str) -> None:
    made = json.loads(
        om("grants", "add", "deny", "namespace", "health", "--app", "cursor", "--user", user, "--json").stdout
    )
    listed = json.loads(om("grants", "list", "--user", user, "--json").stdout)["grants"]
    assert [(grant["id"], grant["effect"], grant["object"]) for grant in listed] == [(made["id"], "deny", "health")]
    assert om("grants", "revoke", "0000", "--user", user).stderr == "openmemory: Rule not found\n"
    assert om("grants", "revoke", made["id"][:8], "--user", user).stdout == f"Revoked {made['id']}.\n"
    assert om("grants", "list", "--user", user).stdout == ""


def test_a_rule_is_explained_in_a_line_with_those_that_it_goes_before(om: Run, user: str) -> None:
    memory = json.loads(om("add", "Tea", "--user", user, "--app", "cursor", "--json").stdout)["id"]
    told = om("grants", "explain", memory, "--app", "cursor", "--user", user)
    assert told.stdout == "yes: no rule speaks of it; access.default is user\n"
    om("grants", "add", "allow", "all", "--user", user)
    om("grants", "add", "deny", "app", "cursor", "--app", "cursor", "--user", user)
    first, *others = om("grants", "explain", memory, "--app", "cursor", "--user", user).stdout.splitlines()
    assert first == "no: denied by the rule that hides app 'cursor' from cursor"
    assert [line.split()[1:-1] for line in others] == [["deny", "cursor", "app"], ["allow", "every", "app"]]
    answer = json.loads(om("grants", "explain", memory, "--app", "cursor", "--user", user, "--json").stdout)
    assert (answer["allowed"], answer["rule"]["effect"], len(answer["considered"])) == (False, "deny", 2)


def test_what_is_erased_is_gone_in_every_state(om: Run, user: str) -> None:
    one = json.loads(om("add", "One", "--user", user, "--json").stdout)["id"]
    om("add", "Two", "--user", user)
    assert om("erase", "--memory", one, "--user", user, "--yes").returncode == 0
    [left] = json.loads(om("list", "--user", user, "--state", "all", "--json").stdout)["items"]
    assert left["content"] == "Two"
    assert om("erase", "--user", user, "--yes").returncode == 0
    assert json.loads(om("list", "--user", user, "--state", "all", "--json").stdout)["items"] == []


def test_the_doctor_finds_nothing_after_a_sync(om: Run, user: str) -> None:
    om("add", "Healthy", "--user", user)
    synced = om("sync", "--user", user, "--json")
    assert synced.returncode == 0, synced.stderr
    assert json.loads(synced.stdout)["statistics"]["total_memories"] == 1
    told = om("doctor", "--json")
    found = json.loads(told.stdout)
    assert (told.returncode, found["status"], found["problems"]) == (0, "ok", [])


def test_a_sync_that_only_looks_changes_nothing(om: Run, user: str) -> None:
    om("add", "Looked at", "--user", user)
    assert om("sync", "--user", user).returncode == 0
    told = om("sync", "--user", user, "--full", "--dry-run")
    assert told.returncode == 0
    assert "1 memory: 1 would be written, 0 would be removed, 0 embedded" in told.stdout


def test_pairs_are_merged_and_conflicts_are_told(om: Run, user: str) -> None:
    added = json.loads(om("add", "budget=50K | lead=Ada", "--user", user, "--app", "one", "--json").stdout)
    merged = om("add", "budget=40K", "--user", user, "--app", "one")
    assert merged.stdout.startswith(f"Completed: {added['id']}\n# ")
    assert "changed: budget 50K -> 40K (was @one " in merged.stdout
    assert "\n#" not in om("search", "budget", "--user", user).stdout
    om("add", "budget=30K \x1b[31m", "--user", user, "--app", "one", "--namespace", "other")
    om("add", "budget=30\u2066K", "--user", user, "--app", "two")
    told = om("search", "budget", "--user", user)
    *found, line = told.stdout.splitlines()
    assert len(found) == 3
    assert line.startswith("# CONFLICT budget: current=30 K (@two 20")
    assert ", previous=40K (@one 20" in line
    [conflict] = json.loads(om("search", "budget", "--user", user, "--json").stdout)["conflicts"]
    assert [conflict["current"]["value"], *(one["value"] for one in conflict["previous"])] == ["30\u2066K", "40K"]
