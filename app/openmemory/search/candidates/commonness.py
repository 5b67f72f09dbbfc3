"""The share of English texts that contain a word, from the packaged vocabulary. A small store cannot show it.

The vocabulary of the packaged model is ordered by frequency, so the place of a word gives its frequency (Zipf 1949).
"""

from __future__ import annotations

import asyncio
from functools import cache

from openmemory.index.bm25 import idf

STORE = 200
"""The number of imagined texts that are counted with those of a store. Among two memories, only they show how rare a
word is; among thousands, they show little."""

_FIRST = 1_995
"""The place in the vocabulary before its first word. Signs and single letters come before it."""

_UNKNOWN = 60_000
"""The place of a word that the vocabulary does not contain: rarer than all that it does."""

_OFFSET = 20
"""Flattens the frequencies of the most common words, as in Mandelbrot's form of the law."""

_LENGTH = 20
"""The number of words of an imagined text."""

_ENDINGS = ("", "e", "s", "ed", "ing")
"""The endings that a stemmed word may lack."""


async def prepare() -> None:
    """Loads the vocabulary, the first time, without holding the event loop."""
    if not _places.cache_info().currsize:
        await asyncio.to_thread(_places)


_OTHER_LANGUAGES = """
ich du er sie es wir ihr mein meine meinen meinem meiner dein deine unser unsere mich mir dich dir uns der das dem ein
eine einen einem einer und oder aber nicht kein keine sind bist habe hast haben wird werden wurde kann kannst muss wie
wo wer wann warum was welche welcher welches wieviel wohin woher heißt heiße heisst für von vom zum zur bei nach aus
auf über im gibt machen mache macht gerne el la los las una unos unas y o pero está están tengo tiene tienen hace se
me te nos mi mis tus su sus nuestro nuestra de del al en por con qué cuál cuáles quién quiénes cómo cuándo dónde
cuánto cuánta cuántos cuántas llama llamo que como cuando donde le les une et ou mais ne pas sont suis avons avez ont
ce cette ces mon ta tes notre votre je il nous vous ils elles des au aux dans sur avec sans quel quelle quels quelles
qui quoi où quand pourquoi combien appelle appelles lo gli uno e è sono hai abbiamo mio mia miei mie tuo tua nostro
nostra di da nel nella che cosa quale quali quando perché quanto quanta quanti chiama chiamo ti ci si non os um uma
umas não é são sou tenho temos meu minha meus minhas seu sua nosso nossa na em sem quem qual quais onde quantos chama
eu ele ela nós het een of maar niet geen heb hebt heeft hebben wordt mijn jouw ons onze ik jij hij zij wij voor naar
bij uit op aan waar wanneer waarom welke welk hoe hoeveel heet w z nie jest są mam masz mój moja moje mnie jak gdzie
kiedy kto który która jaki jaka jakie dlaczego się nazywa и в на с не я ты он она мы вы мой моя моё мои меня мне есть
как где когда кто что какой какая какое какие сколько почему зовут у по для от до
"""
"""Function words of other languages, and the verbs of their questions. Those that mean something else in English are
left out, such as "die", "hat", "war", "son" and "come"."""

_OTHERS_PLACE = 30
"""The place of such a word: as common as the usual function word of English."""


@cache
def _places() -> dict[str, int]:
    # A service with another embedder does not load the packaged one's libraries before its first search.
    from openmemory.embeddings.local import vocabulary

    places = {word: place - _FIRST for word, place in vocabulary().items() if place > _FIRST and word.isalnum()}
    return places | {word: min(_OTHERS_PLACE, places.get(word, _UNKNOWN)) for word in _OTHER_LANGUAGES.split()}


def commonness(lexeme: str) -> float:
    """The share of texts of usual length that contain a form of this lexeme, as far as the vocabulary shows."""
    places = _places()
    forms = [lexeme + ending for ending in _ENDINGS]
    if lexeme.endswith("i"):
        forms.append(f"{lexeme[:-1]}y")
    place = min((places[form] for form in forms if form in places), default=_UNKNOWN)
    return float(1 - (1 - 1 / (place + _OFFSET)) ** _LENGTH)


def smoothed_idf(documents: float, document_frequency: float, lexeme: str) -> float:
    """The idf of a lexeme that so many of the documents contain, and as many of the imagined ones as usual."""
    return idf(documents + STORE, document_frequency + STORE * commonness(lexeme))
