"""English word lists for `paraphrases`, grouped by their effect on the comparison of two memories."""

from __future__ import annotations


def words(some: str) -> frozenset[str]:
    """The words of a list with blanks between them."""
    return frozenset(some.split())


FUNCTION = words(
    """
    a an the this that these those it its he him his she her hers they them their theirs we us our ours i me my mine you
    your yours user users user's himself herself themselves myself who whom whose which what there here
    is are am was were be been being do does did done doing have has had having will shall can get gets got gotten
    i'm i've i'd he's she's it's they're we're we've
    of in on at to for by with from as into onto about and or so very really quite also too just then when while where
    how if than over under s t 's up out off via per own currently now still always usually generally typically
    till until should ought shall must instead
    please remember note fact person someone people thing things something make makes made
    """
)
"""Words without content of their own. Who acts is compared separately."""

GRAMMAR = words(
    "not no never none nothing nobody neither nor without cannot cant dont doesnt didnt wont isnt arent wasnt werent "
    "shouldnt wouldnt couldnt hasnt havent hadnt mustnt aint"
)
"""Negations without any other content."""

LIMITING = words(
    """
    only solely merely except unless rarely seldom hardly barely sometimes occasionally less fewer least almost nearly
    half partly partially mostly unlike
    """
)
"""Words that limit a statement."""

UNCERTAIN = words(
    """
    plan plans planned planning might may could would want wants wanted hope hopes hoping hoped consider
    considers considering considered thinking maybe perhaps probably possibly trying intend intends
    intended wish wishes wished dream dreams dreamed wonder wonders unsure uncertain undecided if proposed proposes
    suggests suggested applied applying soon eventually someday
    """
)
"""Words for plans, wishes and guesses, which are not facts."""

FORMER = words("formerly previously former ex once earlier anymore longer past ago originally")
"""Words for something that is over."""

CHANGE = words(
    """
    moved switched migrated replaced renamed sold instead became changed anymore
    umgezogen gewechselt stattdessen ersetzt umbenannt cambiado cambió mudado mudó déménagé remplacé trasferito
    """
)
"""Words of a text that changes what another one says."""

ROLES = words(
    """
    brother sister mother father mum mom dad parent parents wife husband spouse son daughter child children kid kids
    uncle aunt cousin nephew niece grandmother grandfather grandma grandpa boss manager colleague coworker friend
    neighbor neighbour roommate flatmate girlfriend boyfriend fiance fiancee partner team teammate client customer
    landlord tenant teacher student dog cat twin ex-wife ex-husband stepfather stepmother
    """
)
"""Persons, other than the user, that a memory may be about."""

ORDERING = ("than", "over", "before", "after", "then", "from", "to", "into", "reports", "instead", "above", "below")
"""Words whose left and right side must not be swapped."""

RELATIONS = words("to from with for by on at in out of into without against about under over inside outside near until")
"""Prepositions that relate the following words to the rest."""

AGENT = words("by on with at")
"""Prepositions that may introduce the agent at the end of a sentence."""

CONTRARY = tuple({one, other} for one, other in map(str.split, ("to from", "with for", "to out", "of to", "into from")))
"""Pairs of prepositions that contradict each other before the same word."""

USER = words("user i me we us he him she her they them")
"""Pronouns for the user, or for the person a memory is about, as subject or object."""

NAMING = words(
    """
    is was has had likes loves hates prefers lives lived works worked wants needs uses used plays played plans owns
    moved went said says told and bought sold started studies studied speaks knows teaches taught manages reports
    runs drives drinks eats enjoys thinks met married will can does did never always should wrote writes leads owes
    helps helped hired beat visited called joined left gave got keeps takes brought doesn't isn't
    """
)
"""Verbs. A capitalised word before one of them at the beginning of a sentence is the subject."""

_SAME = """
    like love enjoy adore fond fan enjoyable loves enjoys appreciate
    prefer preference favor favour preferred
    favorite favourite
    live reside residence home lives living based dwell
    work job employed employment working career
    employer company firm
    buy bought purchase purchased buying
    begin start began begun started launch commence
    big large huge
    car automobile
    phone mobile cellphone smartphone
    kid child children kids
    movie film
    photo picture image photograph
    bike bicycle cycling cycle biking
    quick fast rapid speedy quickly
    reply answer response respond
    use utilize utilise employ using used
    need require requires necessity must needs
    speak talk
    study learn studying learning
    allergic allergy allergies
    mom mother mum
    dad father
    apartment flat
    vacation holiday
    doctor physician
    repo repository
    db database
    config configuration configure
    docs documentation
    app application
    prod production
    env environment
    auth authentication
    postgres postgresql
    js javascript
    k8s kubernetes
    run running runs ran jog jogging
    write wrote written writing
    drink drank drunk drinks drinking
    eat ate eaten eating consume
    take took taken taking
    meet met meeting meetings
    teach taught
    sleep slept sleeping
    drive drove driven driving
    swim swam swimming
    keep kept
    hold held
    store save stored saved
    happy glad
    finish complete end completed finished
    deploy deployment deployed release ship
    colleague coworker
    city town
    road street
    shop store
    gym workout exercise
    gift present
    coffee espresso
    language lang
    short brief concise succinct
    detailed thorough
    morning mornings
    evening evenings
    name called named
    celebrate celebrates
    wake wakes woke
    cook cooking cooks
    read reading reads
    play playing plays played
    hike hiking hikes
    travel traveling travelling trip travels
    error mistake
    bug defect
    fix repair fixed
    weekly week
    daily day everyday
    monthly month
    yearly annual annually year
    neighbor neighbour
    color colour
    gray grey
    tv television
    fridge refrigerator
    bill invoice
    wedding married marriage marry
    birth born birthday
    """

SYNONYMS = {word: line.split()[0] for line in reversed(_SAME.strip().splitlines()) for word in line.split()}
"""Maps each word to the representative of its synonyms."""

_ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]
_CARDINALS = [
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen",
    "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
]  # fmt: skip

NUMBERS = (
    {word: str(number) for number, word in enumerate(_CARDINALS, 2)}
    | {word: f"{number} th" for number, word in enumerate(_ORDINALS, 1)}
    | {"twice": "2", "both": "2", "dozen": "12", "thirty": "30", "forty": "40", "fifty": "50", "sixty": "60"}
    | {"seventy": "70", "eighty": "80", "ninety": "90", "hundred": "100", "thousand": "1000", "million": "1000000"}
)
"""Maps number words to the form that `similarity` compares."""

_UNITS = """
    kg kgs kilo kilos kilogram kilograms
    g gram grams
    lb lbs pound pounds
    km kms kilometer kilometers kilometre kilometres
    m meter meters metre metres
    mi mile miles
    cm centimeter centimeters centimetre centimetres
    h hr hrs hour hours
    min mins minute minutes
    s sec secs second seconds
    ms millisecond milliseconds
    day days
    week weeks
    month months
    year years
    mb megabyte megabytes
    gb gigabyte gigabytes
    tb terabyte terabytes
    usd $ dollar dollars
    eur € euro euros
    gbp £
    jpy ¥ yen
    inr ₹ rupees
    % percent
    am
    pm
    th st nd rd
    l liter liters litre litres
    ml milliliters
    space spaces
    """

UNITS = {word: line.split()[0] for line in _UNITS.strip().splitlines() for word in line.split()}
"""Maps units that may be separated from their number to one spelling."""

_APART = """
    always usual often frequent | sometimes occasional | rare seldom hard | never
    daily day | weekly week | monthly month | yearly | hourly hour | quarterly
    every all everyone everything | most | some several few | none nobody
    more most | less fewer least
    before | after
    like love enjoy | dislike hate
    increase raise grow rise | decrease lower reduce shrink fall
    enable activate | disable deactivate
    open | close
    buy purchase | sell sold
    start begin join | stop quit leave left end finish
    accept agree approve | reject refuse decline disagree
    left | right
    north northern | south southern | east eastern | west western
    up top upper | down bottom
    early earlier earliest | late later latest
    hot warm | cold iced cool
    big large | small tiny little
    long | short brief concise
    light | dark
    high higher | low lower
    fast quick | slow
    cheap | expensive
    old | new young
    public | private
    synchronous sync | asynchronous async
    internal | external
    minimum min | maximum max
    summer | winter | spring | autumn fall
    morning | noon lunch | afternoon | evening | night midnight
    breakfast | lunch | dinner supper
    monday | tuesday | wednesday | thursday | friday | saturday | sunday | weekday weekdays | weekend weekends
    january | february | march | april | may | june | july | august | september | october | november | december
    red | blue | green | yellow | black | white | purple | orange | pink | brown | gray grey
    coffee espresso | tea | beer | wine | water | milk | juice | soda
    dog puppy | cat kitten | horse | rabbit | bird parrot | hamster | fish | turtle
    he him his | she her hers
    brother | sister
    mother mom mum | father dad
    wife | husband
    son | daughter
    vegan | vegetarian | pescatarian | omnivore
    tabs tab | spaces space
    single | married | divorced | engaged | widowed
    import imported importing | export exported exporting
    upload uploaded | download downloaded
    production prod | staging | development dev | test
    frontend | backend
    pass passed succeed succeeded | fail failed
    win won | lose lost
    lend lent | borrow borrowed
    arrive arrival arrived | depart departure departed departing
    male man | female woman
    indoor indoors | outdoor outdoors
    remote remotely | office onsite
    aisle | window
    sweet | salty savory | spicy | sour
    left-handed | right-handed
    add added | remove removed delete deleted
    merge | rebase | squash
    """

APART = tuple(tuple(words(part) for part in line.split("|")) for line in _APART.strip().splitlines() if line.strip())
"""Lines of word sets that exclude each other. Words within one set do not."""
