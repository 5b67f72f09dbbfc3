"""Prompt injection patterns in German, French and Spanish: to ignore instructions, and to hide actions from the user.

The other patterns hold the words of these languages too, where only words differ.
"""

from __future__ import annotations

from openmemory.content_policy.injection_patterns.phrases import PhraseRole, phrase

_NUTZER = r"(?:nutzer|benutzer|anwender|user)(?:in)?"

TONGUES = (
    phrase(
        "ignorier ignoriere ignoriert ignorieren vergiss vergesst vergessen missachte missachten verwirf uberschreibe",
        "",
        r"\b(?:(?:ignorier(?:e|t)?|vergiss|vergesst|missachte|verwirf|uberschreibe)(?: bitte)?"
        r"|(?:ignorieren|vergessen|missachten) sie(?: bitte)?) "
        r"(?:(?:alle|alles|samtliche|jegliche|die|deine|ihre|eure|diese|meine|bisherigen?|vorherigen?|vorigen?|obigen?"
        r"|fruheren?|vorangegangenen?|vorhergehenden?|ursprunglichen?) ){1,4}"
        r"(?:anweisungen|instruktionen|befehle|regeln|vorgaben|richtlinien|prompts?|system-?anweisungen"
        r"|system-?prompts?)\b",
    ),
    phrase(
        "vergiss vergessen ignoriere ignorieren oublie oubliez ignore ignorez olvida olvide ignora",
        "alles |tout ce|todo lo",
        r"\b(?:(?:vergiss|ignoriere|(?:vergessen|ignorieren) sie) alles (?:bisherige|vorherige|davor|zuvor|obige)"
        r"|(?:oublie|ignore)z? tout ce qui (?:precede|est ecrit)"
        r"|(?:olvid|ignor)[ae] todo lo (?:anterior|previo|de arriba))\b",
    ),
    phrase(
        "ignore ignorez oublie oubliez neglige negligez compte abstraction",
        "instruction|consigne|directive|ordres|regles",
        r"\b(?:ignorez?|oubliez?|negligez?|ne (?:tiens|tenez) (?:pas|plus|aucun) compte de"
        r"|fai(?:s|tes) abstraction de) "
        r"(?:(?:(?:les|ces|des|de) )?(?:toutes?|tous|tes|vos) (?:(?:les|ces|tes|vos) )?"
        r"(?:instructions?|consignes?|directives?|ordres|regles)\b"
        r"|(?:les|ces|des) (?:instructions?|consignes?|directives?|ordres|regles) "
        r"(?:precedent|anterieur|ci-dessus|initial|d'origine|du systeme|recues))",
    ),
    phrase(
        "instrucciones ordenes indicaciones reglas directrices comandos",
        "",
        r"\b(?:ignor(?:a|e|en|ad)|olvid(?:a|e|en|ad|ate de)|descarta|omite|desobedece|haz caso omiso de|no sigas"
        r"|no hagas caso (?:a|de)) (?:(?:todas|todos|tus|sus) (?:(?:las|los|tus|sus|estas) )?"
        r"(?:instrucciones|ordenes|indicaciones|reglas|directrices|comandos)\b"
        r"|(?:las|los|estas) (?:instrucciones|ordenes|indicaciones|reglas|directrices|comandos) "
        r"(?:anteriores|previas|de arriba|iniciales|originales|del sistema|precedentes))",
    ),
    phrase(
        "nutzer benutzer anwender nutzers benutzers anwenders nutzerin benutzerin anwenderin user users",
        "sag|erzahl|verrat|melde|informier|ohne ",
        rf"\b(?:sage?|erzahle?|verrate?|melde) (?:es |das |dies |davon )?(?:dem|der|diesem) {_NUTZER} "
        rf"(?:\w{{1,20}} ){{0,2}}nichts?\b|\binformiere (?:den|die) {_NUTZER} (?:\w{{1,20}} ){{0,2}}nicht\b"
        rf"|\bohne (?:es )?(?:den|dem|die|der) {_NUTZER} (?:\w{{1,20}} ){{0,3}}"
        r"zu (?:fragen|informieren|sagen|benachrichtigen|erzahlen|warnen|verraten)"
        r"|\bohne (?:das )?(?:wissen|(?:die )?zustimmung|einwilligung) des (?:nutzers|benutzers|anwenders|users)",
        role=PhraseRole.ADDRESSED,
    ),
    phrase(
        "utilisateur",
        "",
        r"\bne (?:le |la |l'|lui |en |rien )?"
        r"(?:(?:dis|dites|dire|previens|prevenez)|(?:revele|parle|mentionne|montre|informe)[sz]?) "
        r"(?:\w{1,20} ){0,3}(?:a )?l'utilisateur"
        r"|\bsans (?:le |en |rien )?(?:dire|demander|parler|prevenir|informer|avertir|consulter) "
        r"(?:\w{1,20} ){0,3}(?:a )?l'utilisateur",
        role=PhraseRole.ADDRESSED,
    ),
    phrase(
        "usuario",
        "",
        r"\bno (?:se )?(?:les? |lo )?(?:digas|diga|cuentes|informes|menciones|reveles|avises|muestres) "
        r"(?:\w{1,20} ){0,3}al usuario"
        r"|\bsin (?:decir|decirle|decirselo|preguntar|preguntarle|informar|avisar|notificar|consultar) "
        r"(?:\w{1,20} ){0,3}al usuario",
        role=PhraseRole.ADDRESSED,
    ),
)
