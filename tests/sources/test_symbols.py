"""The names that passages of code define, in the languages that people use."""

from __future__ import annotations

import time

import pytest

from openmemory.sources.symbols import MOST, normal, symbols


@pytest.mark.parametrize(
    ("code", "heading", "found"),
    [
        ("def add(a, b):\n    return a + b\n", None, ["add"]),
        ("    @property\n    async def name(self) -> str:\n        ...", "class Store(Base)", ["name", "store.name"]),
        ("class Store:\n    def get(self):\n        if (x):\n            pass\n", None, ["store", "get", "store.get"]),
        ("func (s *Store) Get(id int) error {", None, ["get", "store.get"]),
        ("func (s *Store[T]) Get(id int) error {", None, ["get", "store.get"]),
        ("func New() *Store {", None, ["new"]),
        ("\tdefer func() {", "func Run", []),
        ("type Store struct {", None, ["store"]),
        ("export async function load(url: string): Promise<void> {", None, ["load"]),
        ("export const load = async (url: string): Promise<void> => {", None, ["load"]),
        ("const twice = x => x * 2;", None, ["twice"]),
        ("  async get(id: string): Promise<Item> {\n    if (id) {", "export class Store", ["get", "store.get"]),
        (
            "  async compile<T = unknown>(\n    schema: Schema,\n    load?: (uri: string) => Schema\n  ): Check<T> {",
            "export class Ajv",
            ["compile", "ajv.compile"],
        ),
        ("    pub(crate) fn parse(input: &str) -> Result<()> {", "impl Parser", ["parse", "parser.parse"]),
        ("    public static List<String> names(int most) throws IOException {", "class A", ["names", "a.names"]),
        ("int main(int argc, char **argv)\n{", None, ["main"]),
        ("module Shop\n  def self.open\n", None, ["shop", "open", "shop.open"]),
        ("for (const one of all) {\n} while (true) {", None, []),
        ("const limit = 5;\nlet name = (1 + 2);\n", None, []),
        ("    def get(\n        self,\n", "class Store > def get", ["get", "store.get"]),
        ("        def inner():", "class Store > def get > if key", ["inner", "get.inner"]),
        ("print('no definition')", "def main()", []),
    ],
)
def test_definitions_are_found(code: str, heading: str | None, found: list[str]) -> None:
    assert symbols(code, heading) == found


def test_a_name_is_compared_without_case_and_in_one_spelling() -> None:
    assert [normal(name) for name in ("Store::get", "Store#get", " store.Get ")] == ["store.get"] * 3


def test_no_more_than_a_passage_can_hold() -> None:
    assert len(symbols("\n".join(f"def f{number}():" for number in range(1_000)), None)) == MOST


@pytest.mark.parametrize(
    "unit", ["(", "a(", "a ", "a<", "pub ", "{", "x = ", "(a b)", "\t", "def ", "const a:", "a: b("]
)
def test_no_text_takes_long(unit: str) -> None:
    """A passage has 1,200 characters, and a file thousands of passages."""
    text = (unit * 1_200)[:1_200]
    started = time.process_time()
    for _ in range(20):
        symbols(text, text)
    assert time.process_time() - started < 4, "should take milliseconds"
