"""Words that tell if a memory replaces an earlier one, in the languages of `LANGUAGES`.

The lists are small: each word must be common, and mean a change (or what speaks against one) in most sentences. Words
of all languages are looked for in every text, so none may mean something else in another language.
"""

from __future__ import annotations

LANGUAGES = "en", "de", "fr", "es", "it", "pt", "nl"


def _phrases(words: str) -> dict[str, list[tuple[str, ...]]]:
    """The phrases of a list that commas separate, each as its words, by their first words."""
    phrases: dict[str, list[tuple[str, ...]]] = {}
    for phrase in sorted({tuple(phrase.casefold().split()) for phrase in words.split(",") if phrase.strip()}):
        phrases.setdefault(phrase[0], []).append(phrase)
    return phrases


def _set(words: str) -> frozenset[str]:
    return frozenset(words.casefold().split())


CHANGED = _phrases(
    """
    moved, moving, relocated, switched, migrated, changed, replaced, replaces, renamed, sold, swapped, upgraded,
    downgraded, rewritten, rewrote, took over, takes over, taken over, stepped down, promoted, postponed, pushed
    back, rescheduled, brought forward, raised, increased, reduced, lowered, cut to, goes up to, went up to,
    extended to, changed our minds, changed my mind, instead, in favour of, in favor of, gave up, given up, dropped,
    removed, got divorced, divorced, got married, got engaged, broke up, transferred, renewed, exchanged, moved
    offices, separated, died, passed away, retired, joined, left, got hired, started at, started working, started
    drinking, started school, turned, moved in, correction, actually, got a new, got promoted, new job, new flat,
    gave notice, given notice, downsized, installed, had a baby, enabled again, disabled, gezogen, umgezogen, ziehe,
    gewechselt, umgestiegen, ersetzt, umbenannt, verkauft, geschieden, getrennt, geheiratet, verlobt, verstorben,
    gestorben, gekündigt, aufgehört, verschoben, erhöht, gesenkt, übernommen, abgelöst, statt, stattdessen,
    geändert, befördert, versetzt, erneuert, neuen job, neue stelle, neue wohnung, déménagé, changé, remplacé,
    renommé, renommée, vendu, divorcé, marié, mariée, quitté, reporté, arrêté, muté, renouvelé, résilié, nouvel
    emploi, au lieu de, mudé, cambié, reemplazado, renombrado, vendí, divorciado, casé, dejé, aplazado,
    nuevo trabajo, en vez de, en lugar de, trasferito, trasferita, cambiato, sostituito, rinominato,
    venduto, divorziato, sposato, lasciato, rimandato, invece, mudei, mudei-me, troquei, substituí, renomeado,
    vendi, divorciei, casei, deixei, adiado, passou para, em vez de, verhuisd, overgestapt, vervangen, hernoemd,
    verkocht, gescheiden, getrouwd, gestopt, verzet, in plaats van
    """
)
"""Phrases that say that something became another."""

NOW = _phrases(
    """
    now, nowadays, these days, from now on, from next, as of, since, again, my new, our new, any more, anymore,
    no longer, not any longer, back on, is back, am back, currently, at present, stop, quit, cancelled,
    canceled, closed, had to stop, only, their own, jetzt, nun, mittlerweile, inzwischen, neuerdings, ab sofort,
    ab jetzt, seit, wieder, nicht mehr, kein mehr, nur noch, mein neuer, meine neue, mein neues, unser neuer,
    unsere neue, maintenant, désormais, depuis, dorénavant, ne plus, mon nouveau, ma nouvelle, à nouveau, plus de,
    ahora, desde, ya no, mi nuevo, mi nueva, de nuevo, otra vez, adesso, ora, ormai, da quando, non più, mio nuovo,
    mia nuova, di nuovo, agora, já não, não mais, meu novo, minha nova, de novo, nu, voortaan, sinds, niet meer,
    mijn nieuwe, weer
    """
)
"""Phrases that say that something holds from a time on, or no longer."""

ENDED = _phrases(
    """
    no longer, any more, anymore, not any longer, stop, stopped, quit, cancelled, canceled, closed, has closed,
    sold, died, gave up, dropped, removed, divorced, stepped down, retired, nicht mehr, aufgehört, verkauft,
    gekündigt, ya no, dejé, ne plus, non più, já não, niet meer, gestopt
    """
)
"""Phrases that say that something is over."""

ADDING = _phrases(
    """
    also, too, as well, another, additionally, in addition, besides, second, likewise, both, auch, außerdem,
    zusätzlich, ebenfalls, noch ein, noch eine, aussi, également, en plus, también, además, anche, inoltre, também,
    além disso, ook, daarnaast, bovendien
    """
)
"""Phrases that say that something is added."""

PLANNED = _phrases(
    """
    might, may, maybe, perhaps, would like, would love, thinking about, thinking of, considering, wants to, want to,
    plan to, planning to, plans to, hope to, hoping to, dream of, wish, could, should we, whether, if, discussed,
    next year, vielleicht, würde, würden, möchte, überlege, überlegen, plane, will nach, peut-être, aimerais,
    voudrais, envisage, quizás, tal vez, gustaría, quisiera, pienso, forse, vorrei, piacerebbe, talvez, gostaria,
    misschien, zou, overweeg
    """
)
"""Phrases of plans, wishes and guesses."""

FORMER = _phrases(
    """
    used to, before that, before, previously, formerly, former, earlier, back then, at the time, ago, once, in the
    past, as a child, früher, vorher, zuvor, damals, ehemals, einst, avant, autrefois, auparavant, jadis, antes,
    solía, antiguamente, anteriormente, prima, una volta, in passato, antigamente, costumava, vroeger, eerder,
    destijds
    """
)
"""Phrases of what was, and of questions about it."""

HAPPENED = _set(
    """
    visited met read watched bought paid ordered booked ate had ran went took saw heard talked failed slept cooked
    attended found lost discussed gegessen gekauft gelesen gesehen getroffen besucht gelaufen mangé acheté vu
    rencontré visité comí compré vi leí mangiato comprato visto letto comi comprei gegeten gekocht gezien gelezen
    today yesterday tonight morning gestern heute hier ayer hoy ieri oggi ontem hoje gisteren vandaag
    """
)
"""Words of what happened once. Such a sentence stays true."""

MANY = _set(
    """
    like likes love loves enjoy enjoys hate know knows speak speaks play plays collect read watched visited have has
    support supports supported exports export volunteer stand studied took met talked allergic mag mögen spreche
    spricht spiele spielt habe hat aime aimes parle joue ai gusta gustan hablo juego tengo piace piacciono parlo
    gioco ho falo gosto tenho hou spreek speel heb been own owns needs need wants
    """
)
"""Verbs that hold of many things at a time."""

_ONCE = """
    live lives living lived moved relocated home reside based wohne wohnt wohnen lebe lebt gezogen umgezogen habite
    habitons déménagé vivo vive viven mudé abito abita trasferito trasferita moro mora mudei mudei-me woon woont
    verhuisd | work works job employed employer joined hired started arbeite arbeitet travaille trabajo trabaja
    lavoro lavora trabalho trabalha werk werkt barista librarian nurse teacher engineer | called name named renamed
    heißt umbenannt appelle renommé llama llamo renombrado chiama rinominato chamo renomeado heet hernoemd | port
    listens runs | favourite favorite prefer prefers go-to lieblingsfarbe lieblings préféré préférée favorito
    favorita preferito preferita favoriete | single married engaged divorced widowed husband wife verheiratet
    geschieden ledig verlobt célibataire marié mariée divorcé soltero casado casé divorciado sposato divorziato
    casei getrouwd gescheiden | vegetarian vegan meat keto diet vegetarier fleisch viande carne | drive drives car
    golf fahre auto voiture coche macchina carro | manager boss lead chef chefin jefe jefa capo baas ceo reports |
    dentist doctor therapist hausarzt zahnarzt médecin docteur médico dottore arts | deadline due release relaunch
    expire expires expira scade |
    meeting meets standup stand-up review teammeeting réunion reunión riunione reunião vergadering | phone mobile
    handynummer telefonnummer email number | version upgraded minimum requires postgresql python ubuntu | rent
    budget price costs dose limit rate weigh size | use uses using switched migrated replaced nutzen nutze verwende
    umgestiegen utilise uso cambié | drink drinks coffee kaffee café smoke smokes fumo fuma | open closed opens shut
    paid unpaid enabled disabled
    """

HOLDS_ONCE = tuple(map(_set, _ONCE.split("|")))
"""Groups of words of which each tells about something that one has once at a time."""

USER = _set(
    """
    i i'm i've i'd we we're we've user users me us ich wir je j' nous yo nosotros io noi eu nós ik wij vivo trabajo
    uso habito abito lavoro moro trabalho mudei mudei-me
    """
)
"""Words for the user who speaks, or is spoken of. In some languages a verb alone says it."""

POSSESSIVE = _set(
    """
    my our mein meine meiner unser unsere mon ma mes notre nos mi mis nuestro nuestra mio mia nostro nostra meu
    minha nosso nossa mijn onze ons
    """
)
"""Words for what is the user's."""

PEOPLE = _set(
    """
    brother sister mother father mum mom dad parents wife husband son daughter uncle aunt cousin nephew niece
    grandmother grandfather grandma grandpa colleague coworker friend neighbour neighbor neighbours neighbors
    girlfriend boyfriend partner partnerin compagnon compagne pareja novio novia compagno compagna namorado namorada
    roommate flatmate twin stepfather stepmother kids children bruder schwester mutter vater
    frau mann sohn tochter onkel tante cousine oma opa kollege kollegin freund freundin nachbar nachbarin frère sœur
    mère père femme mari fils fille oncle hermano hermana madre padre esposa esposo hijo hija tío tía fratello
    sorella moglie marito figlio figlia zio zia irmão irmã mãe pai mulher marido filho filha broer zus moeder vader
    vrouw zoon dochter oom
    """
)
"""People whom a sentence may be about in place of the user."""

DETERMINERS = _set(
    """
    the a an this that these those der die das den dem ein eine einen einem le la les un une des du el los las una
    unos il lo gli i o os as um uma de het een of for in on at to and our my your his her its their new old always
    use please stop actually only own l' von zu seit ab mein meine unser unsere mon ma mes notre mi mis nuestro
    nuestra mio mia meu minha mijn onze neue neuer nueva nuevo nouveau nouvelle
    """
)
"""Words that do not say what a sentence is about."""

COPULAS = _set(
    """
    is are was were am ist sind war bin est sont était es son era soy è sono é são sou zijn ben heißt
    """
)
"""Forms of "to be"."""

WAS = _set("was were war était era")
"""Those of them that tell of what happened."""

AMOUNTS = _set(
    """
    one two three four five six seven eight nine ten twelve twenty once twice zwei drei vier fünf sechs sieben acht neun
    zehn zwölf deux trois quatre cinq six sept huit neuf dix dos tres cuatro cinco seis siete ocho nueve diez due tre
    quattro cinque sei sette otto nove dieci dois duas três quatro sete oito dez twee drie vijf zes zeven negen tien
    """
)
"""Amounts that are written as words."""

DO = _set("do does did")
"""Forms of the verb that English adds to deny."""

ASKING = _set(
    """
    what which who whom whose where when why how should do does did is are can could was wo wer wann wie warum où
    qui quand quel quelle comment quién dónde cuándo cómo qué chi dove quando come onde quem como waar wanneer
    """
)
"""Words that begin questions."""

TIMES = _set(
    """
    monday tuesday wednesday thursday friday saturday sunday january february march april may june july august
    september october november december montag dienstag mittwoch donnerstag freitag samstag sonntag januar februar
    märz mai juni juli oktober dezember lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miércoles
    jueves viernes sábado domingo first second third fourth fifth week
    """
)
"""Days, months and ordinals. At the beginning of a sentence they say which one it is about."""

SINCE = _set(
    """
    since from seit ab depuis dès desde da sinds vanaf
    """
)
"""Words before the time from which something holds."""

COUNTED = _set(
    """
    number no nr part chapter step page item note entry lesson episode round test example case question kind meeting
    letter copy line task row record message memory volume issue day
    nummer teil kapitel schritt seite punkt notiz eintrag lektion folge runde beispiel fall frage brief aufgabe zeile
    nachricht tag numéro partie chapitre étape leçon exemple lettre tâche ligne jour número parte capítulo paso página
    nota lección ejemplo carta tarea línea día hoofdstuk stap bladzijde les voorbeeld brief taak regel dag
    """
)
"""Words after which a number says which one of a series a text is about: "part 3", if no form of "to be" stands
before."""
