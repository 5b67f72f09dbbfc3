import pytest

from openmemory.config.settings import LimitSettings
from openmemory.errors import Invalid, TooLarge
from openmemory.memories import validation

LIMITS = LimitSettings(text=10, metadata=40, name=5)


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u2003"])
def test_a_blank_text_is_refused(text: str):
    with pytest.raises(Invalid, match="text: must not be empty or blank"):
        validation.text(text, "text", 10, "limits.text")


def test_a_text_over_the_limit_is_refused_with_the_setting_that_limits_it():
    with pytest.raises(TooLarge, match=r"has 11 characters; the limit is 10 \(limits.text\)"):
        validation.text("x" * 11, "text", 10, "limits.text")


@pytest.mark.parametrize("text", ["a\x00b", "half \ud83d of a pair", "\udc00"])
def test_what_cannot_be_stored_is_refused(text: str):
    with pytest.raises(Invalid, match=r"NUL|surrogate"):
        validation.text(text, "text", 100, "limits.text")


@pytest.mark.parametrize("text", ["ok", " padded ", "日本語", "😀", "a\nb"])
def test_ordinary_texts_pass_unchanged(text: str):
    assert validation.text(text, "text", 10, "limits.text") == text


@pytest.mark.parametrize(
    "metadata",
    [{"k": "a\x00"}, {"a\x00": 1}, {"k": ["\ud800"]}, {"k": {"deep": "\x00"}}, {"k": "x" * 50}, {"k": object()}],
)
def test_metadata_that_cannot_be_stored_is_refused(metadata: dict):
    with pytest.raises(Invalid):
        validation.metadata(metadata, LIMITS)


def test_metadata_with_numbers_beyond_64_bits_is_weighed_as_it_is_written():
    long = {"n": int("9" * 30)}
    assert validation.metadata(long, LIMITS) is long
    with pytest.raises(TooLarge, match=r"metadata: has 41 bytes; the limit is 40 \(limits\.metadata\)"):
        validation.metadata({"n": int("9" * 35)}, LIMITS)
    with pytest.raises(TooLarge, match="nested"):
        validation.metadata({"n": nested(500, 2**70)}, LimitSettings())


def nested(levels: int, value: object) -> object:
    for _ in range(levels):
        value = [value]
    return value


def test_metadata_nested_without_end_is_refused_before_it_exhausts_the_stack():
    value: dict = {}
    for _ in range(500):
        value = {"k": value}
    with pytest.raises(TooLarge, match="nested"):
        validation.metadata(value, LimitSettings())


@pytest.mark.parametrize(("value", "fits"), [(0, False), (1, True), (5, True), (6, False), (10**30, False)])
def test_numbers_outside_the_range_are_refused_with_the_range(value: int, fits: bool):
    if fits:
        assert validation.between(value, "page", 1, 5) == value
    else:
        with pytest.raises(Invalid, match="page: must be from 1 to 5"):
            validation.between(value, "page", 1, 5)
