"""The names and texts from which our own tables and tasks are made."""

from __future__ import annotations

DOMAIN = "harbourlight.example"

PEOPLE = (
    "Alma Reyes, Bashir Noor, Celine Aubert, Dana Whitlock, Emeka Obi, Freya Lindqvist, Goran Petrovic, Hana Sugimoto,"
    " Ines Carvalho, Jonas Becker, Keira Doyle, Liang Zhao, Mirela Popescu, Nikhil Rao, Oksana Bondar, Paulo Teixeira"
).split(", ")

#: Indices in PEOPLE: those who have tasks on the boards, and those who have customers.
DEVELOPERS = range(1, 11)
SELLERS = range(11, 16)

TOPICS = (
    "the harbour tour app, the spring catalogue, the ferry timetable, the ticket printer, the lighthouse exhibition,"
    " the new intranet, the supplier contract, the winter schedule, the customer survey, the office move,"
    " the safety training, the loyalty programme, the audio guide, the budget for next year, the dock cameras"
).split(", ")
SUBJECTS = ("Question about {}", "News about {}", "Next steps for {}", "A problem with {}", "Numbers for {}")
BODIES = (
    "Hello Robin, could you have a look at {} this week? I would like to know what you think before I go on.",
    "Hi Robin, {} took longer than I thought, but we are nearly there. I will write again when it is done.",
    "Dear Robin, there is something about {} that we should talk over. When would it suit you?",
    "Robin, here is where we stand with {}: half of it is finished, the rest needs a decision from you.",
    "Hello Robin, thanks for your help with {}. The others were glad about it too.",
)
REPLIES = (
    "Thank you, I will look at it tomorrow morning.",
    "That sounds good. Please go ahead.",
    "Let us talk about this on Monday.",
    "Could you send me the details?",
    "I am sorry, I have no time for this before next week.",
    "Well done, and thanks to everybody.",
)
NOTES = ("Lunch on Friday", "Desk plan", "Parking", "Visitors next week", "Printer on the second floor", "Team photo")
NOTE_BODIES = (
    "Are you in? Please tell me by noon.",
    "Please have a look at it and tell me what you think.",
    "Can you take care of this?",
    "I will be away until Wednesday.",
    "Everything is ready now.",
)

MEETINGS = (
    "Weekly planning, Design review, Budget round, Sales call, Release check, Onboarding, One to one, Retrospective,"
    " Supplier meeting, Data review, Campaign planning, Support handover, Security briefing, Roadmap talk"
).split(", ")
NEW_MEETINGS = (
    "Pier inspection, Quarter kickoff, Pricing workshop, Interview, Press talk, Map walkthrough, Contract talk,"
    " Training plan, Lessons learned, Harbour breakfast"
).split(", ")

VERBS = ("Fix", "Redesign", "Test", "Document", "Speed up", "Translate", "Clean up", "Extend")
PARTS = (
    "the sign-in page, the search field, the ticket export, the seat map, the payment form, the photo gallery,"
    " the route planner, the newsletter, the admin console, the error pages, the mobile menu, the backup job"
).split(", ")
NEW_TASKS = (
    "Renew the certificates, Write the release notes, Draw the new icons, Archive the old reports, Update the imprint,"
    " Measure the start-up time, Plan the server move, Sort the feedback, Check the colour contrast"
).split(", ")

CUSTOMER_FIRST = "Abel Brigid Cosmo Delphine Edgar Farah Gideon Helga Isak Jolanta Kasimir Leonie Magnus Nora".split()
CUSTOMER_LAST = "Ashdown Bellweather Castellan Drummond Eastgate Fairweather Grantham Hollis Ivers Juniper".split()
CUSTOMER_FIRMS = "brightmoor copperfield deepwell elmstead foxglove greywater highmarch ironbridge".split()
CONTACTS = (
    "Spoke on the phone.",
    "Sent the price list.",
    "Was on holiday.",
    "Visited the showroom.",
    "Asked for time.",
)


def address(person: str) -> str:
    """The address of a colleague."""
    return f"{person.lower().replace(' ', '.')}@{DOMAIN}"
