"""OpenMemory's own categories: descriptions, example sentences and indicative words. Pure data."""

from __future__ import annotations

import re
from typing import NamedTuple


class Subject(NamedTuple):
    """A category as the classifier uses it.

    `examples`: typical sentences, which are compared with a memory in addition to `description`. `words`: one pattern
    of words that indicate the category, or None.
    """

    name: str
    description: str
    examples: tuple[str, ...] = ()
    words: re.Pattern[str] | None = None

    @property
    def phrases(self) -> tuple[str, ...]:
        """The texts that are embedded for the category."""
        return (self.description, *self.examples)


_PARTS = re.compile(r"[,.;:()\n]+")
_MAX_WORDS = 3
"""The maximum number of words of a part of a description that is searched for in memories."""
_MAX_TERMS = 20
_PLURAL = re.compile(r"(?<=[sxz])es$|(?<=[cs]h)es$|(?<!s)s$")


def described(name: str, description: str) -> Subject:
    """Builds a category from a user's description. Each line is also a phrase of its own, so that example sentences can
    be given. The name and the short parts of an enumeration ("hives, honey") indicate the category if a memory contains
    them."""
    lines = [line.strip() for line in description.splitlines() if line.strip()]
    parts = (" ".join(part.split()) for part in (name, *_PARTS.split(description)))
    terms = list(dict.fromkeys(part.lower() for part in parts if len(part) > 2 and part.count(" ") < _MAX_WORDS))
    either = "|".join(map(_in_any_number, terms[:_MAX_TERMS]))
    words = re.compile(rf"(?<!\w)(?:{either})(?!\w)", re.IGNORECASE) if either else None
    return Subject(name, " ".join(lines), tuple(lines) if len(lines) > 1 else (), words)


def _in_any_number(term: str) -> str:
    """A pattern for the singular and plural of an English word. Words of other languages may match with an s too."""
    return re.escape(_PLURAL.sub("", term)) + "(?:es?|s|'s)?" if len(term) > 3 else re.escape(term)


def _subject(name: str, description: str, examples: str, words: str = "") -> Subject:
    pattern = re.compile(rf"\b(?:{words})\b", re.IGNORECASE) if words else None
    return Subject(name, description, tuple(line.strip() for line in examples.strip().splitlines()), pattern)


SUBJECTS = (
    _subject(
        "personal",
        "Who the person is: name, age, birthday, home, origin, languages, pets, habits, character.",
        """
        My name is Anna and I am 34 years old
        I live in a small flat in Hamburg
        I was born in Brazil and grew up in Spain
        I have a dog called Rex
        My birthday is on the third of March
        I speak Polish and French
        I usually get up at six in the morning
        I am left-handed and rather shy
        We moved to a new house last year
        """,
        r"my birthday|my name is|i was born|born (?:in|on)|i am \d+ years old|grew up|native (?:speaker|language)",
    ),
    _subject(
        "relationships",
        "Family, partner, friends, neighbours and colleagues as people: who they are and how one gets on with them.",
        """
        My sister Julia is getting married
        I have two children, a boy and a girl
        My best friend since school is Mark
        My wife and I met at university
        My parents are divorced
        I had an argument with my brother
        Our grandmother lives with us
        My boyfriend and I celebrate our anniversary
        I get along well with my neighbour
        """,
        r"my (?:wife|husband|girlfriend|boyfriend|partner|fianc[ée]e?|best friend|(?:grand)?(?:mother|father)"
        r"|mom|mum|dad|(?:older |younger |little |big )?(?:sister|brother)|son|daughter|kids|children|niece|nephew"
        r"|aunt|uncle|cousin|parents|in-laws)",
    ),
    _subject(
        "preferences",
        "What the person likes, dislikes, prefers or wants done in a certain way: tastes, favourites, answers.",
        """
        I prefer tea over coffee
        My favourite colour is green
        I like short answers without explanations
        I can't stand loud music
        I would rather have dark mode everywhere
        I love spicy food
        Please always answer in German
        I dislike phone calls and prefer messages
        I prefer tabs over spaces
        """,
        r"i prefer|prefers?|my favou?rite|i (?:dis)?like|i love|i hate|can't stand|would rather",
    ),
    _subject(
        "health",
        "Body and mind: illness, allergies, medicine, doctors, diet, fitness, sleep, stress.",
        """
        I am allergic to penicillin
        I take pills for high blood pressure
        I have an appointment with the dentist
        I go running three times a week to stay fit
        My back has been hurting for weeks
        I have trouble sleeping at night
        I am on a low carb diet to lose weight
        I broke my arm and need physiotherapy
        I see a therapist because of anxiety
        """,
        r"allerg(?:y|ic|ies)|doctor|dentist|medication|diagnos(?:ed|is)|blood pressure|physiotherap\w+|surgery"
        r"|vaccin\w+|migraines?|asthma|diabet\w+|symptoms?|prescri\w+|therapist|vitamin \w+|cholesterol|calories",
    ),
    _subject(
        "travel",
        "Trips, holidays, flights, hotels, visas, places visited or to be visited.",
        """
        I am flying to Rome in June
        We booked a hotel by the sea for our vacation
        My passport expires next year
        I want to visit Iceland one day
        We drove through Norway with a camper van
        I always take an aisle seat on flights
        The train from Paris to Lyon takes two hours
        I need a visa for India
        Our itinerary for Thailand has five stops
        """,
        r"flights?|hotel|passport|visa|itinerary|airport|vacation|hostel|airbnb|boarding|backpack(?:ing|ed)",
    ),
    _subject(
        "work",
        "Job, employer, career, colleagues, meetings, tasks at work, salary talks, applications.",
        """
        I work as a nurse in a hospital
        My manager wants the report by Friday
        I have a job interview next week
        Our team meets every Monday at ten
        I was promoted to head of department
        I started at a new company in May
        I work from home two days a week
        My colleague takes over my shift
        I am looking for a new position in marketing
        """,
        r"my (?:boss|manager|job|colleagues?|coworkers?|team lead)|works? (?:as|at|for)|job interview|promoted"
        r"|promotion|resume|employer",
    ),
    _subject(
        "education",
        "Learning: school, university, courses, exams, degrees, languages being learned, books for study.",
        """
        I study biology at the university
        I have an exam in statistics on Tuesday
        I am taking an online course on photography
        I got my master's degree in 2015
        I am learning Japanese with flash cards
        My thesis is about climate models
        The lecture starts at nine
        She is in the fourth grade at school
        I practise the piano with a teacher
        """,
        r"exams?|thesis|university|semester|lectures?|homework|degree|bachelor'?s|master'?s|ph\.?d|tuition|scholarship"
        r"|(?:i'm|am|is|started) (?:learning|studying)",
    ),
    _subject(
        "projects",
        "Things being built or done over time: what a project is, plans, decisions, architecture, state.",
        """
        The project is a web shop written in Django
        We decided to use PostgreSQL as the database of the app
        I am building a shed in the garden
        The first release is planned for April
        The repository is split into frontend and backend
        The next milestone of the renovation is the kitchen
        Our side project is an app for recipes
        The API of the project returns JSON
        The prototype is done and testing comes next
        """,
        r"(?:the|our|my|side|this) project|milestone|roadmap|prototype|repositor(?:y|ies)|repo|codebase",
    ),
    _subject(
        "ai, ml & technology",
        "Artificial intelligence, machine learning, software, programming, gadgets, computers and science of them.",
        """
        Large language models predict the next token
        I trained a neural network to recognise images
        Python 3.13 has a new interpreter
        I fine-tuned a model on my own data
        The new graphics card has 24 GB of memory
        Vector databases find things by their embeddings
        Rust is faster than JavaScript
        I use ChatGPT and Claude every day
        Docker containers run on a Kubernetes cluster
        """,
        r"machine learning|llms?|neural networks?|gpt\S*|chatgpt|claude|embeddings?|fine-?tun\w+|transformers?|pytorch"
        r"|tensorflow|kubernetes|typescript|javascript|gpus?|language models?|deep learning",
    ),
    _subject(
        "technical support",
        "Trouble with devices or software and how it was solved: errors, crashes, settings, installation, repair.",
        """
        The printer does not connect to the wifi
        The app crashes with an error when it starts
        Restarting the router fixed the internet connection
        How do I reset my password
        The laptop's screen stays black after the update
        The installation fails because a driver is missing
        Clearing the cache solved the login problem
        My phone's battery drains too fast
        The server returns an error 500 after the deployment
        """,
        r"crash(?:es|ed)?|error (?:code|message|\d+)|reinstall\w*|reboot\w*|troubleshoot\w*|factory reset|bluetooth"
        r"|wi-?fi|router|printer|blue screen|drivers? (?:is|was|are) missing",
    ),
    _subject(
        "finance",
        "Money: budget, income, savings, bank, loans, taxes, investments, insurance, bills.",
        """
        I save 500 euros every month
        My mortgage runs for twenty years
        I invest in index funds
        The tax return is due in July
        My monthly budget for food is 400 dollars
        I owe my bank a loan for the car
        I pay the rent on the first of the month
        My pension plan is with an insurance company
        I lost money with bitcoin
        """,
        r"mortgage|savings|budget|invest(?:s|ed|ing|ments?)?|tax(?:es)?|loan|salary|pension|401k|ira|dividends?"
        r"|bank account|credit card|interest rate|stocks?|etfs?|bitcoin|crypto",
    ),
    _subject(
        "shopping",
        "Things to buy or bought: orders, prices, sizes, shops, gifts, groceries, returns.",
        """
        I want to buy a new vacuum cleaner
        I ordered running shoes online
        My shoe size is 42
        The shopping list has milk, eggs and bread
        The jacket was on sale for half the price
        I am going to return the headphones
        I need a gift for the wedding
        I get my vegetables at the market
        The package arrives tomorrow
        """,
        r"shopping|groceries|ordered|on sale|shoe size|discount|refund|coupon|amazon|ikea|bought|wants? to buy",
    ),
    _subject(
        "legal",
        "Law: contracts, lawyers, courts, rights, permits, licences, wills, custody, compliance.",
        """
        My lawyer is going through the contract
        The court hearing is in September
        The lease says that pets are not allowed
        I am applying for a residence permit
        We signed a non-disclosure agreement
        The will names my brother as the heir
        They sued the landlord for damages
        The licence of the library is MIT
        The privacy policy has to follow the GDPR
        """,
        r"lawyer|attorney|court|lawsuit|sued|contract|gdpr|non-disclosure|nda|custody|trademark|patent|copyright|lease"
        r"|legal|notary|terms of service",
    ),
    _subject(
        "entertainment",
        "Films, series, music, games, books for pleasure, sport to watch, concerts, hobbies, parties.",
        """
        I am watching a crime series on television
        My band plays on Saturday night
        I finished a fantasy novel
        I play chess online with friends
        We have tickets for a concert
        The film won an Oscar
        I collect old comics
        Our football club won the match
        I spent the weekend with a video game
        """,
        r"movies?|films?|netflix|concert|novels?|video games?|playlist|podcasts?|anime|spotify|tv show|board games?"
        r"|playstation|nintendo|xbox|album",
    ),
    _subject(
        "messages",
        "E-mails, letters, chats and calls: what was written or said to whom, what is to be answered or sent.",
        """
        I have to reply to the email from Peter
        She sent me a message on WhatsApp
        Draft a letter to the landlord
        He left a voicemail yesterday
        Forward the invitation to all members
        The newsletter goes out every Thursday
        I told him by text that I will be late
        There are three unread mails in the inbox
        Sign my emails with kind regards
        """,
        r"e-?mail(?:s|ed)?|voicemail|whatsapp|telegram|inbox|text message|newsletter|texted|slack message|reply to",
    ),
    _subject(
        "customer support",
        "Service for customers: their questions, complaints, tickets, refunds and how they are handled.",
        """
        The customer complained about a late delivery
        Ticket 1234 was escalated to the second level
        Customers wait two days for an answer of the support
        The client asks for a refund of the subscription
        Our help desk is open from nine to five
        I called the hotline of the airline about my luggage
        The caller could not log in to the customer account
        We offer a voucher to unhappy customers
        Support told the user how to cancel the plan
        """,
        r"customers?|support tickets?|tickets? #?\d+|help ?desk|hotline|escalated|complain(?:t|ed|ts)",
    ),
    _subject(
        "product feedback",
        "What people think of a product: praise, criticism, wishes for features, reviews, bugs they report.",
        """
        The new design of the app is confusing
        Users ask for a dark mode
        It would be great if the search had filters
        I gave the blender one star because it is loud
        The checkout needs too many clicks
        People love the new dashboard
        The feature I miss most is an export to PDF
        In the survey testers said that the menu is hard to find
        The review praises the battery life
        """,
        r"feature requests?|feedback|usability|user survey|beta testers?|reviews? (?:say|said|praise)"
        r"|it would be (?:great|nice)|onboarding flow",
    ),
    _subject(
        "news",
        "What happens in the world: politics, elections, economy, disasters, announcements, headlines.",
        """
        The parliament passed a new law
        There was an earthquake in Turkey
        The election takes place in November
        The central bank raised interest rates
        According to the newspaper the strike continues
        The company announced layoffs of ten thousand people
        The president visited China
        Scientists report the warmest summer on record
        The team won the world championship yesterday
        """,
        r"headlines?|election|parliament|president|minister|earthquake|breaking news|according to reuters"
        r"|senate|ceasefire",
    ),
    _subject(
        "organization",
        "Keeping order: calendar, appointments, to-do lists, reminders, routines, notes, tidying, where things are.",
        """
        Remind me to water the plants on Sunday
        The meeting was moved to three o'clock
        My to-do list has five open points
        The spare key is in the drawer
        I plan the week every Sunday evening
        The bins are emptied on Wednesdays
        I keep my notes sorted by tags in folders
        The documents are in the blue binder
        Put the appointment into my calendar
        """,
        r"remind(?:er|ers)?|to-?do list|calendar|appointments?|rescheduled|schedule|checklist|agenda|declutter\w*",
    ),
    _subject(
        "goals",
        "What the person wants to reach: resolutions, ambitions, targets, plans for life, progress towards them.",
        """
        I want to run a marathon next year
        My goal is to read twenty books this year
        I am trying to quit smoking
        In five years I want to have my own company
        My new year's resolution is to eat less sugar
        I hope to become fluent in Italian
        I aim to save enough for a house
        I dream of writing a novel
        My target is ten thousand steps a day
        """,
        r"(?:my|our) (?:\w+ )?(?:goal|target|aim|resolution|ambition|dream)|aims? to|hopes? to"
        r"|by the end of (?:the|this) year|want to become|bucket list",
    ),
)
"""The categories in OpenMemory's order, with names in lower case."""

NAMES = tuple(subject.name for subject in SUBJECTS)
