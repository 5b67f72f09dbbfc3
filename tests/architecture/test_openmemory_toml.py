"""openmemory.toml shows every setting with its default, and sets none."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, SecretStr

from openmemory.config.sections import Section
from openmemory.config.settings import Settings, keys, load

HEAD = """\
# Every setting of OpenMemory with its default. Remove the "# " before a line to change it.
#
# `make serve` reads it, and so does every command with --config or OPENMEMORY_CONFIG. In this folder, commands read it
# without that after you confirmed it: `openmemory config trust`. Each setting is also an environment variable, which
# wins over this file: OPENMEMORY_, the section and the key in capitals, such as OPENMEMORY_PORT or
# OPENMEMORY_ACCESS_API_KEY; items of lists are separated by commas. Flags of the command line win over both.
"""


def _value(default: Any) -> str:
    if isinstance(default, SecretStr):
        default = default.get_secret_value()
    if isinstance(default, tuple):
        return "[" + ", ".join(json.dumps(item) for item in default) + "]"
    return f"{default:_}" if isinstance(default, int) and default >= 100_000 else json.dumps(default)


def _section(model: type[BaseModel]) -> list[str]:
    lines = []
    for name, field in model.model_fields.items():
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, Section)):
            lines += ["", f"# {field.description}", f"# {name} = {_value(field.default)}"]
    return lines


def rendered() -> str:
    """The file as the settings want it."""
    lines = [HEAD.rstrip(), *_section(Settings)]
    for name, field in Settings.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            lines += ["", "", f"[{name}]", f"# {field.annotation.__doc__}", *_section(field.annotation)]
    return "\n".join(lines) + "\n"


def test_the_file_lists_every_setting_as_the_code_has_it(root: Path) -> None:
    file = root / "openmemory.toml"
    if "OPENMEMORY_TEST_UPDATE" in os.environ:
        file.write_text(rendered(), encoding="utf-8")
    assert file.read_text(encoding="utf-8") == rendered(), "run OPENMEMORY_TEST_UPDATE=1 make test ARGS=-ktoml"


def test_the_file_as_it_is_changes_nothing(root: Path) -> None:
    document = tomllib.loads((root / "openmemory.toml").read_text(encoding="utf-8"))
    assert all(section == {} for section in document.values())
    assert load(root / "openmemory.toml", environ={}) == Settings()


def test_every_line_of_the_file_may_be_uncommented(root: Path, tmp_path: Path) -> None:
    text = (root / "openmemory.toml").read_text(encoding="utf-8")
    uncommented = re.sub(r"^# (?=[a-z0-9_]+ = )", "", text, flags=re.MULTILINE)
    (tmp_path / "all.toml").write_text(uncommented, encoding="utf-8")
    document = tomllib.loads(uncommented)
    listed = {(name,) for name, value in document.items() if not isinstance(value, dict)}
    listed |= {(name, key) for name, value in document.items() if isinstance(value, dict) for key in value}
    assert listed == set(keys())
    assert load(tmp_path / "all.toml", environ={}).model_dump() == Settings().model_dump()


def test_every_setting_says_what_it_does() -> None:
    assert [".".join(path) for path, field in keys().items() if not (field.description or "").endswith(".")] == []
