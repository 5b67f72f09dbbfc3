"""English prompt injection patterns."""

from __future__ import annotations

from openmemory.content_policy.injection_patterns.phrases import PhraseRole, phrase

_NO_LONGER = (
    r"\b(?:ignore|disregard|forget(?: about)?|override|overrule|bypass|discard|neglect|pay no attention to|set aside"
    r"|stop (?:following|obeying)"
    r"|(?:do not|don't|dont|never|no longer) (?:follow|obey|adhere to|comply with|listen to)) "
)
_TURNING = (
    "ignore disregard forget override overrule bypass discard neglect attention aside following follow obey obeying "
    "adhere comply listen"
)
_WHOSE = (
    r"(?:previous|previously|prior|above|earlier|preceding|former|foregoing|past|existing|original|initial|system|your"
    r"|safety|security|developer|ethical|built-in|openai's?|anthropic's?)"
)
_ANY = (
    r"(?:all|any|every|each|of|the|my|our|these|those|this|that|other|and|or|given|stated|current|old|default|custom)"
)
_RULES = r"(?:rules?|orders|commands?|directions?|prompts?|constraints?|restrictions?|polic(?:y|ies)|training|filters?)"
_ENDS = r"(?=$| ?[.,;:!)\"']| (?:and|but|instead)\b)"

_INSTEAD = (
    phrase(
        _TURNING,
        "instruct|directive|guideline|programming|guardrail|safeguard",
        rf"{_NO_LONGER}(?:{_ANY} ){{0,4}}(?:(?:{_WHOSE}|all|any|every) )(?:(?:{_ANY}|{_WHOSE}) ){{0,4}}"
        r"(?:instructions?|instructs|directives?|guidelines?|programming|guardrails?|safeguards?)\b",
    ),
    phrase(
        _TURNING,
        "rule|order|command|direction|prompt|constraint|restriction|polic|training|filter|context|message|conversation",
        rf"{_NO_LONGER}(?:{_ANY} ){{0,4}}{_WHOSE} (?:(?:{_ANY}|{_WHOSE}) ){{0,4}}"
        rf"(?:{_RULES}\b|(?:context|messages?|conversation){_ENDS})",
    ),
    phrase(
        _TURNING,
        "above|before|earlier|previously|so far",
        rf"{_NO_LONGER}(?:{_ANY} ){{0,4}}(?:instructions?|directives?|guidelines?|{_RULES})\b"
        r"(?: [a-z']{1,12}){0,5}? (?:above|before|earlier|previously|so far)\b",
    ),
    phrase(
        "ignore disregard",
        "the user",
        r"\b(?:ignore|disregard) (?:what|whatever|everything|anything) the user\b",
    ),
    phrase(
        "ignore disregard forget",
        "above|you were|you have been|you've been|you know|said before|before this",
        r"\b(?:ignore|disregard|forget) (?:(?:all|everything|anything|any|whatever|what|of|the|text|content|is|was|that"
        r"|written|i) ){0,6}(?:above|before this|said before|you know"
        r"|(?:you (?:were|have been)|you've been) (?:told|taught|given|instructed|trained)"
        rf"(?: (?:to do|before|earlier|so far))?){_ENDS}",
    ),
    phrase(
        "instructions instruction directive directives objective prompt",
        "new |real |actual |updated |true ",
        r"\b(?:here are|these are|follow|obey|execute|your) (?:your |these |the |my )?(?:new|real|actual|updated|true) "
        r"(?:system )?(?:instructions?|directives?|prompt|objective)(?: (?:is|are|instead|only|from)\b| ?[:.!])",
    ),
    phrase(
        "override",
        "",
        r"\b(?:system|admin|administrator|developer|root|security|safety|priority) override"
        r"(?: ?[:!)\]-]| (?:enabled|engaged|activated|initiated|accepted|code)\b)",
        role=PhraseRole.ANYHOW,
    ),
    phrase("system", "new system", r"\bnew system (?:prompt|message|instructions?) ?[:=\]]", role=PhraseRole.ANYHOW),
)
"""Instructions to ignore earlier instructions."""

_LEAKED = (
    phrase(
        "prompt message instruction instructions",
        "prompt|system message|system instruction|instructions|developer message&your|the ",
        r"\b(?:reveal|show|print|output|repeat|display|leak|tell|give|share|expose|dump|write|send|disclose|recite"
        r"|paste|return|what (?:is|are|was|were)|override|replace|summari[sz]e|translate|include|append) "
        r"(?:me |us |back |out |to me )?(?:all of |all |exactly |verbatim )?"
        r"(?:your|the (?:full|entire|hidden|initial|original|complete|secret|exact)|secret|hidden) "
        r"(?:(?:full|entire|hidden|initial|original|complete|secret|internal|exact|current|own) ){0,4}"
        r"(?:system (?:prompt|message|instructions?)|(?:initial|original|hidden) (?:prompt|instructions)"
        r"|developer message|prompt|instructions)\b(?! (?:for|on|to|manual|book)\b)",
    ),
    phrase(
        "repeat print output reveal recite",
        "above|before this",
        r"\b(?:repeat|print|output|reveal|recite) (?:back )?"
        r"(?:everything|all|all of the text|the words|the text|all text|all the words) (?:that is |written )?"
        r"(?:above|before this)\b",
    ),
)
"""Instructions to reveal the system prompt."""

_USER = r"(?:the |your )?(?:end )?users?\b(?!'| (?:which|whether|why|how|their|his|her)\b)"

_SECRETLY = (
    phrase(
        "user users",
        "not |n't |dont |never ",
        r"\b(?:do not|don't|dont|never|(?:you )?must not"
        r"|you (?:should not|may not|can not|cannot|shouldn't|mustn't)) (?:ever )?"
        rf"(?:(?:tell|inform|notify|alert|warn) {_USER}"
        r"|(?:reveal|mention|disclose|show|say|admit|explain)"
        rf"(?: (?:this|it|that|any of this|anything|these \w{{1,20}}|a word))?(?: about this)? to {_USER}"
        rf"|let {_USER} (?:know|see|notice|find out|realize|realise)"
        rf"|ask {_USER} for (?:confirmation|permission|approval|consent))",
        role=PhraseRole.ADDRESSED,
    ),
    phrase(
        "without",
        "user",
        rf"\bwithout (?:(?:telling|asking|informing|notifying|alerting|warning|consulting) {_USER}"
        rf"|(?:mentioning|showing|revealing) (?:this|it|that) to {_USER}|(?:confirming|checking) with (?:the )?user"
        r"|(?:the )?users?'s? (?:knowledge|consent|permission|approval|confirmation))",
        role=PhraseRole.ADDRESSED,
    ),
    phrase(
        "user",
        "from the user",
        r"\b(?:hide|conceal|keep|withhold) (?:this|it|that|these|those|everything|all of this"
        r"|the (?:fact|action|change|instructions?|message|result)) (?:secret |hidden |a secret |concealed |away )?"
        r"from the user\b",
        role=PhraseRole.ADDRESSED,
    ),
)
"""Instructions to act without the user's knowledge."""

_SEND = (
    r"\b(?:send|post|upload|forward|transmit|leak|submit|e?mail|deliver|copy|ship|report|schicke?|sende|envoie|envoyez"
    r"|envia|manda) "
)
_PRIVATE = (
    r"\b(?:conversation|chat (?:history|log|transcript)|(?:message|search|browsing) history|memories"
    r"|user(?:'s|s'|s)? (?:\w{1,20} ){0,2}(?:data|info\w{0,8}|details|messages?|files|contacts|emails?|name|address"
    r"|passwords?|api keys?|tokens?|credentials|secrets?|keys?|history|memories)|everything (?:you|above|in )"
    r"|all (?:\w{1,20} ){0,3}(?:data|secrets|passwords|tokens|keys|credentials|messages)|environment variables"
    r"|ssh keys?|private keys?|system prompt|erinnerungen|gesprach|gesprachsverlauf|passworter|unterhaltung|souvenirs"
    r"|mots de passe|conversacion|recuerdos|contrasenas)\b"
)
_ADDRESS = r"\bhttps?:/|\bhxxps?:|\bftp:/|\bwebhook\b|\b[\w.-]{1,64}@[\w-]{1,64}\."

_TAKEN = (
    phrase(
        "send post upload forward transmit leak submit email mail deliver copy ship report schick schicke sende envoie "
        "envoyez envia manda",
        "http|hxxp|ftp:|webhook|@",
        _SEND,
        _PRIVATE,
        _ADDRESS,
        within=100,
    ),
    phrase(
        "user users",
        "user's |users |users' &key|password|token|credential|secret|card|security|details",
        r"\b(?:include|insert|add|append|embed|attach|reveal|output|print|give|share|paste|expose|leak|disclose|extract"
        r"|exfiltrate) (?:me |us |also )?(?:(?:the|any|all|of) ){0,4}users?(?:'s|'|s')? (?:\w{1,20} ){0,2}"
        r"(?:api(?:-| )?keys?|passwords?|access tokens?|tokens?|credentials|secrets|credit card|private keys?"
        r"|social security|bank details)",
    ),
    phrase("exfiltrate", "", r"\bexfiltrate (?:all|any|the|every|user|data|this|it)\b"),
    phrase(
        "memories memory",
        "delete_memories|delete_all_memories|update_memory",
        r"\b(?:call|invoke|run|execute|trigger|use) (?:the )?(?:(?:mcp )?tool |function )?['\"`]?"
        r"(?:delete_all_memories|delete_memories|update_memory)\b",
    ),
)
"""Instructions to exfiltrate or destroy the user's data."""

ENGLISH = (*_INSTEAD, *_LEAKED, *_SECRETLY, *_TAKEN)
