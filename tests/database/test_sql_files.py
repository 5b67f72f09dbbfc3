"""Statements in files: found by name, without comments, with their parts filled in."""

from __future__ import annotations

import pytest

from openmemory.database.sql_files import load_sql

CATALOGUE = "openmemory.schema.catalogue"


def test_a_statement_comes_without_its_name_and_comments():
    statement = load_sql(CATALOGUE, "catalogue")
    assert statement.startswith("WITH tables AS (\n")
    assert "--" not in statement


def test_a_file_may_hold_several_statements():
    assert load_sql("openmemory.access.restore", "fill_user").startswith("UPDATE users")
    assert load_sql("openmemory.access.restore", "find_rules").startswith("UPDATE incoming_access_controls")


def test_parts_are_filled_in():
    assert "LIMIT 17\n" in load_sql("openmemory.index.tokens", "page", page="17")


def test_a_name_or_a_part_that_is_missing_is_an_error_at_once():
    with pytest.raises(LookupError, match=r"the SQL of openmemory\.schema\.catalogue has no statement named other"):
        load_sql(CATALOGUE, "other")
    with pytest.raises(LookupError, match="page"):
        load_sql("openmemory.index.tokens", "page")
