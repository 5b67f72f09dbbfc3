"""Classifies memories by rules: which side of a person they are about, such as identity, work, health or plans.

The rules are words of a few languages, and the categories and the kind of a memory. No model is called. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import IntEnum
from typing import NamedTuple

MAX_CHARACTERS = 300
"""The number of characters of a text that are searched for words: the beginning of a memory names its subject."""


class Aspect(IntEnum):
    """A side of a person, in the order of an overview."""

    IDENTITY = 0
    PEOPLE = 1
    WORK = 2
    HOME = 3
    HEALTH = 4
    PREFERENCES = 5
    PLANS = 6
    OTHER = 7


class PersonalAspect(NamedTuple):
    """The side of a person that a memory is about. `weight`: how much it belongs into an overview, 0 to 1."""

    aspect: Aspect
    weight: float


class _Rule(NamedTuple):
    aspect: Aspect
    weight: float
    words: re.Pattern[str]


def _rule(aspect: Aspect, weight: float, latin: str, unspaced: str = "") -> _Rule:
    words = rf"\b(?:{' '.join(latin.split())})\b" + (f"|{unspaced}" if unspaced else "")
    return _Rule(aspect, weight, re.compile(words, re.IGNORECASE))


_RULES = (
    _rule(
        Aspect.IDENTITY, 1.0,
        r"(?:my|full|user'?s|first|last) name is|name:|i am called|call me|goes by|mein name|ich hei(?:ß|ss)e"
        r"|me llamo|mi nombre|je m'appelle|mon nom|mi chiamo|meu nome",
        r"名前は|我叫|我的名字",
    ),
    _rule(
        Aspect.PEOPLE, 1.0,
        r"(?:my|our|user'?s|his|her) (?:wife|husband|partner|girlfriend|boyfriend|fianc[ée]e?|spouse)|married to"
        r"|meine? (?:frau|mann|partnerin|partner|freundin|freund|verlobter?)|mi (?:esposa|esposo|marido|mujer|pareja"
        r"|novia|novio)|(?:ma|mon) (?:femme|mari|compagne|compagnon|copine|copain)",
        r"(?:妻|夫|彼女|彼氏|主人)(?:は|の|が)|我(?:的)?(?:妻子|丈夫|老婆|老公)",
    ),
    _rule(
        Aspect.HEALTH, 1.0,
        r"allerg(?:y|ic|ies|isch|ie|ien|ique|ia|ias)|alérgic[oa]|alergia|diabet\w{0,6}|asthma|asma|intoleran\w{0,6}"
        r"|epilep\w{0,6}|pregnant|schwanger|embarazada|enceinte",
        r"アレルギー|过敏|糖尿病",
    ),
    _rule(
        Aspect.WORK, 1.0,
        r"(?:i|user|she|he) (?:\w{1,10} )?(?:works?|am working|worked) (?:as|at|for)|works? as an?"
        r"|(?:my|user'?s) (?:new )?job|a new job (?:at|with|as)"
        r"|employed (?:at|by)|my (?:employer|profession|boss)|ich arbeite|arbeitet? (?:als|bei)"
        r"|mein (?:beruf|job|arbeitgeber|chef)|trabajo (?:como|en|para)|mi (?:trabajo|jefe|jefa)"
        r"|je travaille|mon travail",
        r"(?:で|に)(?:働|勤)|仕事は|我在.{1,12}工作",
    ),
    _rule(
        Aspect.HOME, 1.0,
        r"(?:i|we|user|she|he) (?:\w{1,10} )?lives? (?:in|at|near)|(?:i|user|she|he) (?:\w{1,10} )?moved to"
        r"|my (?:flat|apartment|house|home|address)|ich wohne|wir wohnen|umgezogen"
        r"|ich bin \w{1,20} (?:\w{1,20} )?gezogen"
        r"|meine? (?:wohnung|haus|adresse)|vivo en|vivimos en|me (?:he )?mud(?:é|ado)"
        r"|mi (?:casa|piso|dirección)|j'habite|nous habitons|déménagé|ma maison",
        r"私は.{1,12}に住ん|引っ越|我住在|搬到",
    ),
    _rule(
        Aspect.PEOPLE, 0.8,
        r"(?:my|our|user'?s|his|her) (?:kids|children|sons?|daughters?|baby|parents|mother|father|mum|mom|dad|brothers?"
        r"|sisters?|family)|meine? (?:kinder|sohn|söhne|töchter|tochter|eltern|mutter|vater|mama|papa|bruder|schwester"
        r"|familie)|mis? (?:hij[oa]s?|padres|madre|padre|herman[oa]s?|familia)|(?:ma|mon|mes) (?:enfants?|fils|fille"
        r"|parents|mère|père|frère|sœur|famille)",
        r"(?:娘|息子|子供|母|父|兄|弟|姉|妹|家族)(?:は|の|が)|我(?:的)?(?:儿子|女儿|孩子|妈妈|爸爸|父母|哥哥|弟弟|姐姐|妹妹)",
    ),
    _rule(
        Aspect.IDENTITY, 0.8,
        r"\d{1,3} years old|years of age|my birthday|born (?:in|on)|user'?s birthday|pronouns"
        r"|native (?:speaker|language)"
        r"|jahre alt|mein geburtstag|geboren|tengo \d{1,3} años|mi cumpleaños|nací|j'ai \d{1,3} ans|mon anniversaire",
        r"誕生日は|歳です|我的生日|岁",
    ),
    _rule(
        Aspect.HEALTH, 0.7,
        r"vegetarian|vegan|celiac|coeliac|gluten|blood pressure|medication|migraines?|vegetarisch|vegetarier(?:in)?"
        r"|veganer(?:in)?|bluthochdruck|vegetarian[oa]|vegan[oa]|végétarien(?:ne)?|my (?:doctor|dentist|therapist)",
        r"ベジタリアン|菜食|素食",
    ),
    _rule(
        Aspect.PREFERENCES, 0.7,
        r"prefers?|favou?rite|i (?:really )?(?:dis)?like|i (?:love|hate)|(?:likes|dislikes|loves|hates)|can't stand"
        r"|please (?:always )?(?:answer|reply|write|respond)|lieblings\w{1,20}|ich (?:mag|liebe|hasse|bevorzuge)"
        r"|lieber|bitte (?:antworte|schreib\w{0,3})|(?:no )?me (?:gusta|gustan|encanta)|prefiero|favorit[oa]"
        r"|je préfère|j'aime|je déteste|préféré(?:e)?",
        r"(?:が|は)(?:好き|嫌い|大好き)|我(?:不)?喜欢|(?:を|は)飲みます",
    ),
    _rule(
        Aspect.PLANS, 0.6,
        r"(?:i|we) (?:am|are) (?:going|flying|travelling|traveling|moving)|(?:i|user) (?:want|plan|hope|intend)s? to"
        r"|my goal|ich (?:will|möchte|plane)|wir (?:fliegen|fahren|planen)|quiero|vamos a|je veux|nous allons",
        r"来年|来月|予定|つもり|明年|打算",
    ),
    _rule(
        Aspect.PEOPLE, 0.5,
        r"(?:my|our|user'?s|his|her) (?:grand\w{1,10}|aunt|uncle|cousin|nieces?|nephews?|godson|goddaughter|best friend"
        r"|friends?|cat|dog|puppy|pets?)|(?:cat|dog|puppy) (?:named|called)|oma|opa"
        r"|meine? (?:patenkind|neffe|nichte|katze|hund)"
        r"|mi (?:ahijad[oa]|abuel[oa]|prim[oa]|sobrin[oa]|gat[oa]|perr[oa])",
        r"(?:友人|友達|祖母|祖父|犬|猫)(?:は|の|が)|我(?:的)?(?:朋友|狗|猫)",
    ),
    _rule(Aspect.WORK, 0.5, r"works (?:at|for)|(?:i|user|she|he) (?:joined|started at)"),
    _rule(Aspect.HOME, 0.5, r"lives in|wohnt in|vive en|habite à"),
)  # fmt: skip
"""The rules, the more telling ones first."""

_CATEGORIES = {
    "personal": PersonalAspect(Aspect.IDENTITY, 0.4),
    "relationships": PersonalAspect(Aspect.PEOPLE, 0.4),
    "work": PersonalAspect(Aspect.WORK, 0.4),
    "health": PersonalAspect(Aspect.HEALTH, 0.4),
    "preferences": PersonalAspect(Aspect.PREFERENCES, 0.4),
    "preference": PersonalAspect(Aspect.PREFERENCES, 0.6),
    "goals": PersonalAspect(Aspect.PLANS, 0.4),
    "travel": PersonalAspect(Aspect.PLANS, 0.4),
    "education": PersonalAspect(Aspect.WORK, 0.3),
}
"""The categories and kinds that classify a memory if its words do not."""

PERSONAL_CATEGORIES = tuple(sorted(_CATEGORIES))

_OTHER = PersonalAspect(Aspect.OTHER, 0.2)
_FIRST_PERSON = re.compile(
    r"\b(?:I|[Mm]y|[Mm]ine|[Ii]ch|[Mm]ein(?:e|en|em|er)?|[Mm]i(?:s|ch|r)?|[Yy]o|[Jj]e|[Mm](?:on|a|es)|[Mm]e|User(?:'s)?)\b"
    r"|私|僕|我"
)


def aspect_of(text: str, groups: Collection[str], *, project: bool) -> PersonalAspect | None:
    """Returns the side of the person that a memory is about; None if it is about something else, such as a project.

    `groups`: its categories and its kind. `project`: it is in the namespace of a project, where only a text in the
    first person is about a person.
    """
    text = text[:MAX_CHARACTERS]
    if project and not _FIRST_PERSON.search(text):
        return None
    for rule in _RULES:
        if rule.words.search(text):
            return PersonalAspect(rule.aspect, rule.weight)
    matches = [_CATEGORIES[group] for group in groups if group in _CATEGORIES]
    if matches:
        return max(matches, key=lambda one: one.weight)
    return _OTHER if _FIRST_PERSON.search(text) else None
