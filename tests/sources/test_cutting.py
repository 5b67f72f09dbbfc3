"""Files are cut into passages that hold their lines, under their headings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.sources.cutting import LONGEST, kind_of, language_of, pieces
from openmemory.sources.models import PassageKind

GUIDE = """# Webshop

Sells things.

## Install

Run `make`.

```sh
# no heading
make serve
```

### On Linux

Needs Python.

## Use
"""


def test_markdown_is_cut_at_its_headings() -> None:
    found = [(piece.heading, piece.first_line, piece.last_line) for piece in pieces(GUIDE, "markdown")]
    assert found == [
        ("Webshop", 1, 3),
        ("Webshop > Install", 5, 12),
        ("Webshop > Install > On Linux", 14, 16),
        ("Webshop > Use", 18, 18),
    ]


def test_code_is_cut_between_its_blocks() -> None:
    functions = [f"def f{n}(x):\n" + "".join(f"    y = x + {i}\n\n" for i in range(30)) for n in range(6)]
    found = pieces("\n".join(functions), "python")
    assert len(found) == 6
    assert [piece.content.split("(")[0] for piece in found] == [f"def f{n}" for n in range(6)]
    assert all(len(piece.content) <= LONGEST for piece in found)


def test_methods_stand_under_their_class_and_parts_of_one_under_both() -> None:
    short = "".join(f"    @cached\n    def m{n}(self):\n" + "        y = 2\n" * 14 + "\n" for n in range(8))
    long = "    def long(self):\n" + (6 * "        z = 1  # a line of some length\n" + "\n") * 8
    found = pieces(f"import os\n\n\nclass Cart(Base):\n    limit = 3\n\n{short}{long}\n\nx = 1\n", "python")
    titles = [(piece.heading, piece.content.split("\n")[0].strip()) for piece in found]
    assert titles[0] == (None, "import os")
    assert ("class Cart(Base)", "@cached") in titles
    assert {heading for heading, _ in titles[1:-1]} == {"class Cart(Base)", "class Cart(Base) > def long(self)"}
    assert titles[-1] == (None, "x = 1")
    assert all(len(piece.content) <= LONGEST for piece in found)


@pytest.mark.parametrize("language", ["go", "typescript"])
def test_braces_are_no_part_of_a_title(language: str) -> None:
    methods = "".join(f"  m{n}(): number {{\n" + "    return this.total + 1\n" * 12 + "  }\n\n" for n in range(6))
    found = pieces(f"// About carts.\nclass Cart {{\n  total = 0\n\n{methods}}}\n", language)
    assert {piece.heading for piece in found} == {"class Cart"}
    assert [piece.content.split("(")[0].strip() for piece in found[1:]] == [f"m{n}" for n in range(1, 6)]


def test_code_without_blank_lines_is_cut_evenly() -> None:
    found = pieces("".join(f"    value_{n} = {n}\n" for n in range(200)), "python")
    sizes = [len(piece.content) for piece in found]
    assert max(sizes) <= LONGEST
    assert min(sizes) > max(sizes) * 0.7


def test_a_staircase_of_indents_ends() -> None:
    steps = "\n\n".join(" " * n + "x = 1" for n in range(3_000))
    said = "".join("".join(piece.content.split()) for piece in pieces(steps, "python"))
    assert said == "x=1" * 3_000


def test_short_blocks_stay_together_as_they_stand() -> None:
    text = "import a\n\n\nx = 1\ny = 2\n"
    assert [piece.content for piece in pieces(text, "python")] == ["import a\n\n\nx = 1\ny = 2"]


def test_a_long_line_is_cut() -> None:
    line = "x" * (2 * LONGEST + 5)
    found = pieces(f"a\n{line}\nb\n", "javascript")
    assert "".join(piece.content for piece in found).replace("\n", "") == f"a{line}b"
    assert all(len(piece.content) <= LONGEST + 10 for piece in found)
    assert found[-1].last_line == 3


@given(
    st.lists(st.one_of(st.just(""), st.text(alphabet="ab #`é\t", max_size=60), st.text(max_size=80)), max_size=60),
    st.sampled_from(["markdown", "python", None]),
    st.integers(1, 40),
)
def test_every_line_is_in_one_passage_at_its_place(lines: list[str], language: str | None, repeat: int) -> None:
    lines = [line.replace("\r", "").replace("\n", "") * repeat for line in lines]
    found = pieces("\n".join(lines), language)
    held: list[str] = []
    before = 0
    for piece in found:
        assert piece.content.strip()
        assert before <= piece.first_line <= piece.last_line <= len(lines)
        before = piece.last_line
        own = "".join(lines[piece.first_line - 1 : piece.last_line]).split()
        assert set("".join(piece.content.split())) <= set("".join(own))
        held.append(piece.content)
    assert "".join("".join(held).split()) == "".join("".join(lines).split())


@pytest.mark.parametrize(
    ("path", "language", "kind"),
    [
        ("src/main.py", "python", PassageKind.CODE),
        ("README.md", "markdown", PassageKind.TEXT),
        ("Makefile", "make", PassageKind.CODE),
        ("LICENSE", "text", PassageKind.TEXT),
        ("a/b.unknown", None, PassageKind.TEXT),
        (".gitignore", None, PassageKind.TEXT),
        ("x.TSX", "typescript", PassageKind.CODE),
    ],
)
def test_languages_are_known_by_the_name(path: str, language: str | None, kind: PassageKind) -> None:
    assert language_of(path) == language
    assert kind_of(language) is kind


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# A title", "A title"),
        ("###\t A title ###  ", "A title"),
        ("# C#", "C#"),
        ("# Ends with # signs ##", "Ends with # signs"),
        ("#No title", None),
        ("#", None),
        ("#   ", None),
        ("# ##", None),
        ("####### Seven", None),
        (" # Indented", None),
        ("# " + " " * 8_000 + "a # b", "a # b"),
        ("# a" + " " * 8_000 + "#" * 8_000 + " " * 8_000 + "b", ("a" + " " * 8_000)[:200]),
    ],
)
def test_a_heading_is_read_in_one_pass(line: str, title: str | None) -> None:
    [piece, *_] = pieces(f"{line}\ntext", "markdown")
    assert piece.heading == title
