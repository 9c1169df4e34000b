"""The texts of the generated conversations: themes, requests, replies and the system prompt."""

from __future__ import annotations

#: Each theme: names of events, and remarks that ask for nothing.
THEMES: dict[str, tuple[list[str], list[str]]] = {
    "bakery": (
        [
            "Sourdough tasting with the new apprentice",
            "Oven inspection",
            "Flour supplier call",
            "Wedding cake consultation",
            "Window display for the weekend",
            "Interview for the early shift",
            "Recipe test: rye and caraway",
            "Hygiene training",
            "Bookkeeping with Marit",
            "Photographs for the spring menu",
        ],
        [
            "The first batch came out with the best crust we have had all month, I keep looking at it.",
            "Somebody bought forty rolls before seven today. I never found out what they were for.",
            "I have been thinking about a loaf with roasted chestnuts for the autumn. Would people like that?",
            "My apprentice shaped her first braided loaf today, and it even looked like one.",
        ],
    ),
    "theatre": (
        [
            "Lighting rehearsal for act two",
            "Costume fitting: the three sisters",
            "Reading of the new ending",
            "Budget talk with the director",
            "Stage fight practice",
            "Tour of the workshop for sponsors",
            "Sound check with the quartet",
            "Casting call: the gatekeeper",
            "Interview with the local radio",
            "Set model review",
        ],
        [
            "The fog machine set off the alarm again yesterday, so the whole cast knows the way to the car park now.",
            "Our gatekeeper has finally stopped whispering. You can hear him in the last row.",
            "I found a photograph of this stage from eighty years ago. The curtain was the same colour.",
            "Nobody says it aloud, but I believe the new ending is better than the old one.",
        ],
    ),
    "clinic": (
        [
            "Handover with the night team",
            "Vaccination drive planning",
            "Ultrasound device demonstration",
            "Case discussion: recurring headaches",
            "Supervision of the trainee nurses",
            "Pharmacy stock review",
            "Call with the insurance office",
            "First aid refresher",
            "Waiting room redesign",
            "Meeting with the patient council",
        ],
        [
            "It was quiet this morning, which nobody here dares to say in the corridor.",
            "A patient brought us a basket of plums from her garden. They will not last until noon.",
            "The new trainees ask better questions than we did at their age.",
            "I slept well for once, so today I am the person with the good ideas.",
        ],
    ),
    "school": (
        [
            "Parent talk: reading support",
            "Chemistry laboratory preparation",
            "Chess club finals",
            "Staff meeting on the timetable",
            "Museum trip briefing",
            "Mock oral exams",
            "Choir rehearsal",
            "Library inventory",
            "Tablet repair session",
            "Conversation with the school council",
        ],
        [
            "Two pupils built a bridge out of paper that carried my whole bag. I had to take a photograph.",
            "The bell has been ringing three minutes late all week, and everyone has got used to it.",
            "Someone left a poem on my desk. It rhymes, and it is about fractions.",
            "The choir sounds so good this year that the caretaker stops sweeping to listen.",
        ],
    ),
    "research": (
        [
            "Telescope time proposal",
            "Journal club: faint galaxies",
            "Detector cooling test",
            "Thesis progress with Ilse",
            "Data pipeline review",
            "Visit from the instrument builders",
            "Public lecture rehearsal",
            "Calibration run debrief",
            "Grant report drafting",
            "Coffee with the summer students",
        ],
        [
            "We had a clear sky last night for the first time in two weeks, and the detector behaved.",
            "One of the students found a mistake in a table that I published ten years ago. I am rather proud of her.",
            "I still have the sound of the cooling pump in my ears. It is an F sharp.",
            "Writing for the public is harder than writing for referees, have you noticed that?",
        ],
    ),
    "harbour": (
        [
            "Crane maintenance window",
            "Pilot boat crew briefing",
            "Customs walk-through",
            "Dredging plan review",
            "Safety drill on pier four",
            "Call with the ferry company",
            "Container tracking demonstration",
            "Port fees working group",
            "Visit of the harbour school class",
            "Weather outlook with the coast guard",
        ],
        [
            "A seal has moved in under pier four and refuses to be impressed by the cranes.",
            "The fog lifted at nine and there they were, five ships in a row like beads.",
            "My grandfather kept the tide tables by hand. I still check ours against his, for fun.",
            "They painted the pilot boat at last. It is a very serious orange.",
        ],
    ),
}

ADDING = [
    'Please add "{name}" to my calendar, {duration} minutes (event id: {id}).',
    'There is something new: "{name}" (event id: {id}). It takes {duration} minutes.',
    'Can you find {duration} minutes for "{name}"? (event id: {id})',
    'I also need a slot of {duration} minutes for "{name}", event id: {id}.',
]

CONSTRAINING = {
    "before": [
        "{name} (event id: {id}) has to be over by {first}.",
        "Could {name} (event id: {id}) end before {first}, please?",
        "I have to leave {name} (event id: {id}) at {first} at the latest, so make sure it is done by then.",
    ],
    "after": [
        "{name} (event id: {id}) cannot start before {first}.",
        "Please move {name} (event id: {id}) so that it starts at {first} or later.",
        "The room for {name} (event id: {id}) is only free after {first}.",
    ],
    "between": [
        "{name} (event id: {id}) should lie somewhere between {first} and {last}.",
        "Everyone who comes to {name} (event id: {id}) is here between {first} and {last}, so it has to fit in there.",
        "Could you keep {name} (event id: {id}) between {first} and {last}?",
    ],
    "at": [
        "{name} (event id: {id}) starts at {first} sharp.",
        "They have just told me that {name} (event id: {id}) is at {first}. Please change that.",
        "Please put {name} (event id: {id}) at exactly {first}.",
    ],
}

#: How the assistant's reply begins before the calendar: after a request, and after a remark.
SHOWING = ["", "", "Done.\n\n", "Here is your calendar:\n\n", "All set. Your day now looks like this:\n\n"]
CHATTING = [
    "That sounds lovely. Your calendar stays as it is:\n\n",
    "Thank you for telling me! Nothing has changed in your calendar:\n\n",
    "I can picture that. For reference, this is your day:\n\n",
]

SYSTEM = """You keep the user's calendar for one day and answer in a friendly way.

- The calendar is empty when the conversation begins.
- Every reply of yours shows the whole calendar as a JSON list with one object for each event. An object has \
"event_id" (the number that the user gave), "event_name" (text), "start_time" (text, HH:MM on a clock of 24 hours) and \
"duration" (number of minutes), like this: \
[{{"event_id": 40, "event_name": "Tea", "start_time": "09:15", "duration": 20}}]
- All events lie between {opens} and {closes}. Two events never overlap; one may start when another ends.
- What the user says about the time of an event stays true for the rest of the conversation. By or before a time means \
that the event has ended by then, from or after a time that it does not start earlier, between two times means both, \
and at a time means that it starts exactly then.
- If a new wish does not fit, move other events until it does, but never against a wish. Do not ask back.
- If the user only chats, reply briefly, and show the calendar as it is."""
