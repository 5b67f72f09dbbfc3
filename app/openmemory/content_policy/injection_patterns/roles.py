"""Patterns that give an assistant another role, in all languages, and patterns that address any reading model."""

from __future__ import annotations

from openmemory.content_policy.injection_patterns.phrases import PhraseRole, phrase

_BECOME = (
    r"you are (?:now|chatgpt|no longer|going to (?:act|pretend|be)|in)|you're now|you will now (?:act|be|become)"
    r"|from now on,? you(?: are| will|'re|'ll| act)|pretend (?:to be|that you|you)|role-?play as|assume the role of"
    r"|du bist (?:jetzt|nun|ab jetzt|ab sofort|fortan)|ab (?:jetzt|sofort) bist du|tu es (?:maintenant|desormais)"
    r"|vous etes (?:maintenant|desormais)|ahora eres|eres ahora|a partir de ahora eres"
)
_HEADS = (
    "you are|you're|from now on|act as|pretend|play as|you will now|role of|du bist|bist du|tu es|vous etes|eres|enter"
    "|activate|enable|switch to"
)
_FREE = (
    r"\b(?:dan\b(?= mode|,|\.|:|$| who| and| which)|do anything now|jailbroken|jailbreak mode"
    r"|(?:unrestricted|unfiltered) (?:mode|ai|assistant|model|chatbot)|uncensored|god mode|evil (?:mode|ai|twin)"
    r"|(?:bound|restricted|limited|constrained) by (?:any|the|your|these|rules|polic\w{1,4}|guidelines)"
    r"|(?:no|without|free (?:of|from)|ohne|sans|sin) (?:(?:any|all|your|the|ethical|content|safety|moral|longer|alle"
    r"|jegliche|aucune?|ningun[ao]?) ){0,3}(?:restrictions?|rules|limits|limitations|filters?|guidelines|censorship"
    r"|constraints|safeguards|einschrankungen|regeln|beschrankungen|grenzen|limites?|regles|filtres?|censure"
    r"|restricciones|reglas|filtros|censura)\b)"
)
_ASSISTANT = (
    r"\b(?:ai|assistant|chatbot|language model|llm|bot|hacker|linux terminal|shell|system administrator|sysadmin"
    r"|(?:developer|debug|admin|maintenance) mode|root|assistent|ki|asistente|ia)\b"
)
_COMMANDED = (
    r"\b(?:you (?:must|will|shall|only|always|never|can now|obey|do not|have no|answer|comply|execute)|always|never"
    r"|do not|don't|obeys?|only (?:respond|reply|answer|obey)|(?:respond|reply|answer) only|reveal|execute|comply"
    r"|ignores?|whatever i|without question|du (?:musst|sollst|darfst)|gehorche?|befolge|immer|niemals|toujours|jamais"
    r"|tu dois|siempre|nunca|debes)\b"
)

ROLES = (
    phrase(
        "dan anything jailbroken jailbreak unrestricted unfiltered uncensored god evil bound restricted limited "
        "constrained restrictions restriction rules limits limitations filter filters guidelines censorship "
        "constraints safeguards einschrankungen regeln beschrankungen grenzen limite limites regle regles filtre "
        "filtres censure restricciones reglas filtros censura",
        _HEADS,
        rf"\b(?:{_BECOME}|act as|enter|activate|enable|switch to) ",
        _FREE,
        role=PhraseRole.ADDRESSED,
        within=100,
    ),
    phrase(
        "ai assistant chatbot model llm bot hacker terminal shell administrator sysadmin mode root assistent ki "
        "asistente ia",
        _HEADS,
        rf"\b(?:{_BECOME}) ",
        _ASSISTANT,
        _COMMANDED,
        role=PhraseRole.ADDRESSED,
        within=120,
    ),
    phrase(
        "reading processing parsing summarising summarizing ingesting",
        "ing this",
        r"\b(?:assistants?|ais?|llms?|language models?|chatbots?|ai agents?) (?:(?:that|who|which) (?:is|are) )?"
        r"(?:reading|processing|parsing|summari[sz]ing|ingesting) this\b",
        role=PhraseRole.ANYHOW,
    ),
    phrase(
        "ai llm model chatbot",
        "if you are",
        r"\bif you are (?:an?|the) (?:ai|llm|large language model|language model|ai assistant|ai agent|chatbot"
        r"|ai model)\b(?! (?:engineer|researcher|developer|startup|company|team))",
        role=PhraseRole.ANYHOW,
    ),
)  # fmt: skip
