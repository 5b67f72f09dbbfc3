"""Vectors of single tokens, small enough to be stored: which tokens count, and what is kept of them. Pure.

A network makes a vector of each token and pools them into one for the text. What a single word of a question is near to
is lost there; it is what late interaction compares (`search.late`). Of a stored token only the signs of its numbers
are kept, after a rotation that makes them alike and independent; the question's keep their sizes, so that what is
compared is still near to the cosine (as in asymmetric hashing; Gao and Long 2024, "RaBitQ", bound the error). Measured,
384 signs tell more than 64 numbers of a byte each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmemory.embeddings.port import Codes, Tokens

MOST = 512
"""Tokens of one text. Of longer ones every so-manieth stands for its neighbours, whose vectors know of it: what is said
late in a text is found as what is said first."""

_SEED = 20_251_122
_LARGEST = 127

_SAY_NOTHING = frozenset(
    """
    a am an and are as at be been being but by can could did do does doing for from had has have having he her hers him
    his i if in into is it its itself just me my no nor not of on or our ours she should so than that the their theirs
    them then there these they this those to too up us very was we were what when where which who whom why will with
    would you your yours d ll m re s t ve
    """.split()  # noqa: SIM905 - a column of a hundred would be no easier to read
)
"""Words of English that hold sentences together. They are nearly half of the tokens, and are near to each other in any
two texts; what is left of a text tells as much, in half the room."""

Floats = npt.NDArray[np.float32]

Flags = npt.NDArray[np.bool_]


def rotation(dimension: int) -> Floats:
    """A fixed orthogonal matrix, shape (dimension, dimension).

    The Q of a Gaussian matrix, uniformly distributed (Stewart 1980). The same on every machine and with every version:
    codes are stored, and compared with questions that are asked years later.
    """
    # `default_rng` may draw other numbers in another version of NumPy, which `RandomState` never does.
    gaussian = np.random.RandomState(_SEED).standard_normal((dimension, dimension))
    q, r = np.linalg.qr(gaussian)
    # The signs of the columns are LAPACK's choice.
    found: Floats = (q * np.sign(np.diag(r))).astype(np.float32)
    return found


class Counting(NamedTuple):
    """Which token ids are parts of `words`, and which of `numbers`; the others are signs. Shape (vocabulary,) each."""

    words: Flags
    numbers: Flags


def counting(vocabulary: Mapping[str, int], special: Iterable[int]) -> Counting:
    """What counts of a vocabulary: nothing of the `special` ids, no word that says nothing, and what holds a digit as a
    number.

    Numbers are a matter of the search by words: pieces such as `32` and `00` are near to any other number. So texts
    tell nothing of them, and in a question they are zero: near to nothing, they leave their part of it undecided.
    """
    size = max(vocabulary.values(), default=-1) + 1
    words, numbers = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
    for token, id_ in vocabulary.items():
        numbers[id_] = any(map(str.isdigit, token))
        words[id_] = any(map(str.isalpha, token)) and not numbers[id_] and token not in _SAY_NOTHING
    words[list(special)] = numbers[list(special)] = False
    return Counting(words, numbers)


def rounded(rotated: Floats) -> Tokens:
    """127 times the unit vectors of tokens, rounded; one without a direction stays zero."""
    norms = np.linalg.norm(rotated, axis=1, keepdims=True)
    unit = np.divide(rotated, norms, out=np.zeros_like(rotated), where=norms > 0)
    found: Tokens = np.rint(unit * _LARGEST).astype(np.int8)
    return found


def coded(rotated: Floats) -> Codes:
    """A bit for each number of tokens that is above zero, shape (tokens, dimension / 8)."""
    return np.packbits(rotated > 0, axis=1)


def cosines(question: Tokens, codes: Codes) -> Floats:
    """About the cosines of a text's tokens and a question's, shape (text's, question's), those below 0 as 0.

        cosine = q · sign(d) / √dimension / √(2/π)

    The unit vector of the signs has a cosine of √(2/π) with the vector itself, on average (Charikar 2002 has the
    symmetric case).
    """
    dimension = question.shape[1]
    bits = np.unpackbits(codes, axis=1, count=dimension).astype(np.float32)
    turned = question.astype(np.float32).T
    # Twice the sum over what is above zero, less the sum over all, is that over the signs.
    near = 2 * (bits @ turned) - turned.sum(axis=0)
    found: Floats = np.clip(near / (_LARGEST * np.sqrt(dimension * 2 / np.pi)), 0.0, 1.0)
    return found


def thinned(tokens: Codes) -> Codes:
    """`MOST` of them at most, evenly spread, with the first and the last."""
    if len(tokens) <= MOST:
        return tokens
    return tokens[np.linspace(0, len(tokens) - 1, MOST).round().astype(np.intp)]


def owned(cut: Sequence[slice]) -> list[slice]:
    """Which tokens of each window are told by it: all of the text once, though windows overlap.

    Those that two windows share are told by the one that knows more of what stands around them: the middle of what is
    shared divides them.
    """
    inner = [(one.stop + next_.start) // 2 for one, next_ in pairwise(cut)]
    edges = [cut[0].start, *inner, cut[-1].stop]
    return [slice(start, stop) for start, stop in pairwise(edges)]
