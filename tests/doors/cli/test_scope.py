"""The projects that commands write to and read, and what they say about them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The folder of a project."""
    folder = tmp_path / "shop"
    (folder / "src").mkdir(parents=True)
    return folder


def test_a_command_writes_to_the_project_of_its_folder_or_to_the_one_it_names(om: Run, user: str, shop: Path) -> None:
    def namespace(*arguments: str, cwd: Path = shop) -> tuple[str, str]:
        done = om("add", *arguments, "--user", user, "--json", cwd=cwd)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["namespace"], done.stderr.strip()

    assert namespace("We ship in May.") == ("shop", "Project of this folder: shop.")
    assert namespace("I like tea.", "--about", "person") == ("default", "")
    assert namespace("We ship in June.", "--about", "project") == ("shop", "Project of this folder: shop.")
    assert namespace("We ship in July.", "--namespace", "other") == ("other", "")
    assert namespace("We ship in August.", "--namespace", "./shop", cwd=shop.parent) == ("shop", "")
    # A home folder belongs to no project.
    done = om("add", "I like jam.", "--user", user, "--json", cwd=shop, HOME=str(shop))
    assert (json.loads(done.stdout)["namespace"], done.stderr) == ("default", "")


@pytest.mark.slow
def test_a_command_reads_the_project_and_the_person_or_what_is_asked_for(om: Run, user: str, shop: Path) -> None:
    for text, where in (("ours", "shop"), ("mine", "default"), ("theirs", "other")):
        assert om("add", text, "--namespace", where, "--user", user).returncode == 0

    def listed(*arguments: str, **more: str) -> set[str]:
        done = om("list", "--json", "--user", user, *arguments, cwd=shop, **more)
        return {one["content"] for one in json.loads(done.stdout)["items"]}

    assert listed() == {"ours", "mine"}
    assert listed("--all-projects") == {"ours", "mine", "theirs"}
    assert listed("--namespace", ".") == {"ours"}
    assert listed("--namespace", "other") == {"theirs"}
    assert listed(HOME=str(shop)) == {"ours", "mine", "theirs"}


def test_a_slip_in_the_name_of_a_project_is_told_before_it_begins_another_one(om: Run, user: str, shop: Path) -> None:
    def noted(*arguments: str) -> str:
        done = om(*arguments, "--user", user, cwd=shop)
        assert done.returncode == 0, done.stderr
        return done.stderr.strip()

    assert noted("add", "We ship in May.", "--namespace", "tidepool") == ""
    slip = "Nothing was known of the project tidepol. Did you mean tidepool?"
    assert slip in noted("search", "ship", "--namespace", "tidepol")
    assert slip in noted("list", "--namespace", "tidepol")
    (shop / "lease.md").write_text("Pets are allowed.")
    assert slip in noted("documents", "list", "--namespace", "tidepol")
    assert slip in noted("documents", "add", "lease.md", "--namespace", "tidepol")
    assert slip not in noted("search", "ship", "--namespace", "tidepol")  # it holds something now
    assert noted("add", "We ship in May.", "--namespace", "orchard") == ""


def test_a_change_of_many_concerns_the_project_alone(om: Run, user: str, shop: Path) -> None:
    for text, where in (("ours", "shop"), ("mine", "default"), ("theirs", "other")):
        assert om("add", text, "--namespace", where, "--user", user).returncode == 0

    def changed(*arguments: str) -> tuple[int, str]:
        done = om("change", "--everything", "--to", "archived", "--yes", "--json", "--user", user, *arguments, cwd=shop)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["changed"], done.stderr.strip()

    assert changed() == (1, "Project of this folder: shop. --all-projects means all.")
    assert changed("--namespace", "other", "--namespace", "default") == (2, "")
    assert om("add", "more", "--namespace", "other", "--user", user).returncode == 0
    assert changed("--all-projects") == (1, "")


def test_a_conversation_of_another_project_stays_in_a_folder_of_none(om: Run, user: str, shop: Path) -> None:
    for where in ("shop", "other"):
        assert om("sessions", "save", "1", "Tea", "--namespace", where, "--user", user).returncode == 0
    done = om("threads", "delete", "session-1", "--user", user, cwd=shop, HOME=str(shop))
    assert (done.returncode, "not found" in done.stderr) == (1, True)
    assert om("threads", "delete", "session-1", "--user", user, cwd=shop).returncode == 0
    left = json.loads(om("sessions", "list", "--all-projects", "--json", "--user", user).stdout)["items"]
    assert [one["namespace"] for one in left] == ["other"]


def test_of_a_key_the_value_of_the_project_comes_before_that_of_the_person(om: Run, user: str, shop: Path) -> None:
    def values(*arguments: str) -> str:
        done = om("values", *arguments, "--user", user, cwd=shop)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    values("set", "tea", "sort", "green", "--about", "person")
    assert values("get", "tea", "sort") == "green"
    values("set", "tea", "sort", "black")
    assert values("get", "tea", "sort") == "black"
    assert values("get", "tea", "sort", "--namespace", "default") == "green"
    assert [line.split("\t")[3:] for line in values("list").splitlines()] == [["shop", "black"], ["default", "green"]]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("add", "x", "--about", "me"), "--about: must be person or project, not 'me'"),
        (("add", "x", "--about", "person", "--namespace", "shop"), "--about: must not be person where --namespace"),
        (("list", "--all-projects", "--namespace", "shop"), "--all-projects: must not be given where --namespace"),
        (("list", "--namespace", "./none"), "--namespace: must be a project or a folder, and there is no folder"),
    ],
)  # fmt: skip
def test_what_names_no_project_is_refused(om: Run, user: str, shop: Path, arguments: tuple[str, ...], problem: str):
    done = om(*arguments, "--user", user, cwd=shop)
    assert done.returncode == 2
    assert problem in done.stderr
