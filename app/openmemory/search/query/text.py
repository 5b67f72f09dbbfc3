"""Reads a query before PostgreSQL does: quoted phrases, the maximum number of lexemes, and whether it is broad. Has no
side effects."""

from __future__ import annotations

import re

MAX_PHRASES = 8
"""The maximum number of phrases in a query; others are ignored."""

_STOP_WORDS = """
a about after all am an and any are as at be been before but by can did do does for from had has have he her him his
how i if in is it its me more my no not of on or our out over she should so some than that the their them then there
these they this to under up was we were what when where which who why will with you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""English stop words, the most common ones in questions. They produce no lexeme and need no slot of a statement."""

_MEMORY_WORDS = """
anything details everything info information know list memories memory myself overview profile recall remember
remembered said say saved show stored summarise summarize summary tell things told user us
"""
_MEANS_MEMORIES = frozenset(_MEMORY_WORDS.split())
_REMNANTS = frozenset({"d", "ll", "m", "re", "s", "t", "ve"})
"""The letters that an apostrophe leaves of English words."""

_OTHER_LANGUAGES = (
    """
    alles an bin bitte das denn dich dir du ein eine einen erinnerst erinnerungen erinnerung erzähl erzähle etwas fasse
    gedächtnis gemerkt gespeichert gib habe hast ich in mein meine meinem meinen meiner mich mir noch person profil sag
    so über überblick übersicht und uns von was weiss weisst weiß weißt wer zeig zeige zu zusammen zusammenfassung
    """,
    """
    a acerca acuerdas algo conoces cuenta cuéntame de di dime el en es eso guardado guardados he las la lo los me mi mis
    muestra muéstrame mí memoria memorias perfil persona qué quién que quien recuerda recuerdas recuerdos resumen sabes
    sobre soy te tienes todo todos tu tú un una vista general yo
    """,
    """
    à ce ces connais d de dis dit du en es est fais je l la le les me mémoire mémoires moi mon ma mes montre personne
    profil qu que quoi qui raconte rappelles résumé résume retenu sais souvenirs souviens suis sur t te tout tu un une
    """,
)
_OTHERS = tuple(frozenset(words.split()) for words in _OTHER_LANGUAGES)
_UNSPACED_BROAD = re.compile(
    r"(?:私|わたし|僕|俺|自分)(?:について|のこと|に関して)(?:を|は|、)?(?:何|なに|どんなこと|教えて|知って).{0,20}|(?:私|わたし|僕|俺)は(?:誰|だれ)"
    r".{0,6}|(?:你|您)(?:都)?(?:知道|了解|记得|記得)(?:关于|關於)?我(?:的)?(?:什么|什麼|哪些|多少|一切).{0,10}|我是(?:谁|誰)"
)
_EMOJI_STYLE = "\ufe0f"

_QUOTED = re.compile(r'"([^"]+)"|“([^“”]+)”|„([^„“”]+)[“”]|«([^«»]+)»')
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_UNSPACED = re.compile(r"[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_DATE = re.compile(r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)|\d[-/.]\d\d?[-/.]\d", re.IGNORECASE)
_ADDED_BY_DATE = 5


def quoted(query: str) -> list[str]:
    """The phrases of at least two words in double quotes."""
    phrases = (next(filter(None, groups)) for groups in _QUOTED.findall(query))
    return [phrase for phrase in phrases if len(_PIECE.findall(phrase)) > 1 or _UNSPACED.search(phrase)][:MAX_PHRASES]


def lexemes(query: str) -> int:
    """The maximum number of lexemes of a query: its words without stop words, their parts, and what is added to
    them."""
    count = 0
    for token in query.split():
        pieces = _PIECE.findall(token)
        count += sum(piece.lower() not in STOP_WORDS for piece in pieces)
        # The token as a whole; for a version, also its first two numbers.
        count += (len(pieces) > 1) + (len(pieces) > 2) + ("+" in token or "#" in token)
        count += 0 if token.isascii() else len(pieces) + len(_UNSPACED.findall(token))
    return count + _ADDED_BY_DATE * len(_DATE.findall(query))


def words(query: str) -> list[str]:
    """The words of a query, in lower case, without stop words."""
    tokens = re.findall(r"[^\W_]+", query.lower())
    return [word for word in tokens if word not in STOP_WORDS and word not in _REMNANTS]


def is_unspaced(word: str) -> bool:
    """Returns True for a word of a script that does not separate words by spaces."""
    return bool(_UNSPACED.search(word))


def has_words(query: str) -> bool:
    """Returns True if the query has a letter or a digit. Otherwise it consists of signs, such as `=>` or an emoji."""
    return re.search(r"[^\W_]", query) is not None


def literal_text(query: str) -> str:
    """Returns the query as texts may contain it: without blanks around it, and without the character that asks for the
    coloured form of a sign. Texts have a sign with and without that character."""
    return query.replace(_EMOJI_STYLE, "").strip()


def bare_words(query: str) -> list[str]:
    """The words of a query, between spaces, without the punctuation around them."""
    return [word.strip(".,;:!?¿¡()\"'“”„«»…？！。、") or word for word in query.split()]


def is_broad(query: str) -> bool:
    """Returns True if the query names no subject: each of its words is a stop word or means memories as such, as in
    "what do you know about me?". Signs are a subject, but for `*` and punctuation."""
    if not has_words(query):
        return not query.strip(" \t\r\n*?!.,;:…_-")
    terms = words(query)
    if all(word in _MEANS_MEMORIES for word in terms):
        return True
    tokens = re.findall(r"[^\W_]+", query.lower())
    return (len(tokens) > 1 and any(all(word in others for word in tokens) for others in _OTHERS)) or (
        _UNSPACED_BROAD.fullmatch(query.strip(" ?!。？！.")) is not None
    )
