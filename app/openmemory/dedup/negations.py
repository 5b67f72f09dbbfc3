"""Finds what a text denies, and compares it with what another text denies. Pure functions.

A text is cut into clauses. What a clause denies are the words after its negation, or those before it if none follow
("Er raucht nicht"). Where words are not separated, as in Japanese, only the number of negations counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import NamedTuple

from openmemory.dedup.english_words import GRAMMAR, words

_DENYING = """
    avoid avoids avoided avoiding refuse refuses refused dislike dislikes disliked hate hates hated detest detests lack
    lacks stop stops stopped stopping quit quits cancelled canceled cancels unable disable disables disabled forbid
    forbids forbidden exclude excludes excluded skip skips skipped against
"""

_OTHER_LANGUAGES = """
    nicht nichts kein keine keinen keinem keiner keines nie niemals niemand nirgends ohne weder
    ne pas jamais rien aucun aucune sans
    nunca jamás ningún ninguna ninguno nada sin tampoco
    não nem nenhum nenhuma ninguém sem
    non mai nessun nessuno nessuna niente nulla senza neanche
    niet geen nooit niets niemand zonder
    inte icke ingen inget inga aldrig utan ikke intet aldri uten uden
    nie nigdy bez nikt nic brak
    není nejsou nemá nelze nikdy žádný žádná žádné
    не нет ни никогда никто ничего без нельзя немає ніколи
    değil yok hiç asla
    ei eivät emme ette älä
    nem nincs soha sem
    δεν δε μην μη όχι ποτέ χωρίς
    לא אין בלי אף
    لا ليس ليست لم لن غير بدون
    tidak bukan jangan tanpa belum
    không chưa đừng
"""

NEGATIONS = GRAMMAR | words(_DENYING + _OTHER_LANGUAGES)
"""Words that deny something. English contractions (`n't`) and French elisions (`n'est`) are known by their form."""

_UNSEPARATED = re.compile(
    "ない|なく|なかっ|ません|なし|無し|ぬ(?!い)"
    "|[不没沒未无無非勿]|别"
    "|[않없]|아니|못(?=[하해했합])"
    "|ไม่|มิได้|อย่า|ห้าม"
    "|नहीं|मत(?!ल)"
)
"""Negations in scripts without blanks between words, or with letters that `\\w` does not match."""

_PART = re.compile(r"[^\W_]+(?:'[^\W\d_]+)?|[.,;:!?](?!\w)|[\n。、，；：！？،؛।]")
_BREAKS = words("but except while whereas aber sondern mais pero sino ma però maar men но")

_FIRST = 40
"""The negations of a text that are compared one by one. The number of all counts."""


class Negations(NamedTuple):
    """The number of clauses with a negation, and the content words that each of the first of them denies."""

    clauses: int
    denied: tuple[frozenset[str], ...]

    def differ(self, other: Negations) -> bool:
        """Returns True if one text denies something that the other does not. In doubt they differ."""
        if self.clauses != other.clauses:
            return True
        return any(
            mine and theirs and not any(one & each for each in theirs)
            for mine, theirs in ((self.denied, other.denied), (other.denied, self.denied))
            for one in mine
        )


def negations(text: str, content: Collection[str], canonical: Callable[[str], str]) -> Negations:
    """Reads what a text in its normal form denies. `content`: its content words in the form that `canonical` gives."""
    count, denied = len(_UNSEPARATED.findall(text)), list[frozenset[str]]()
    clause, at = list[str](), -1
    for word in [*(part.casefold() for part in _PART.findall(text)), "."]:
        if word[0].isalnum() and word not in _BREAKS:
            if at < 0 and is_negation(word):
                at = len(clause)
            clause.append(word)
            continue
        if at >= 0:
            count += 1
            if len(denied) < _FIRST:
                after, whole = (
                    frozenset(canonical(each) for each in some if not is_negation(each)).intersection(content)
                    for some in (clause[at:], clause)
                )
                denied.append(after or whole)
        clause, at = [], -1
    return Negations(count, tuple(one for one in denied if one))


def is_negation(word: str) -> bool:
    """Returns True if a word in lower case denies something."""
    return word in NEGATIONS or word.endswith("n't") or (word.startswith("n'") and len(word) > 3)
