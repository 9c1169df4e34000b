"""English words that help to find the end of a sentence: what Punkt would have learned from newspapers.

They decide close calls only. Most sentences end with a word that is in none of the lists; there the period is enough.
"""

from __future__ import annotations


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


_TITLES = "adm col dr gen lt maj messrs mr mrs ms prof rep reps sen st"
_COMPANIES = "bros cie co corp cos inc jr ltd sr"
_DAYS_AND_MONTHS = "tues wed fri jan feb aug sep sept oct nov dec"
_STATES = "ala ariz calif colo conn ct fla ga ill kan ky mich minn nev ok okla ore pa tenn va vt wash wis w.va"
_PLACES = "d.c l.a n.c n.d n.h n.j n.m n.y r.i s.a s.c u.k u.n u.s u.s.a u.s.s.r"
_LETTERS = "c d e f g h k l m n p r s t v w"
_INITIALS = """
    a.a a.c a.g a.h a.s a.t b.f c.v d.h d.w e.f e.h e.l e.m f.g f.j g.d g.f g.k h.c h.f h.m j.b j.c j.j j.k j.p j.r
    l.f l.p m.j r.a r.h r.j r.k r.t s.g s.s t.j w.c w.r w.w
"""
_OTHERS = "a.d a.m ave b.v chg ft m.b.a mg n.v p.m ph.d s.p.a sw vs yr"

#: Abbreviations without their last period, in lower case. A period after an abbreviation ends a sentence only if the
#: next word opens one. "e.g." and "etc." are missing because Punkt's English model does not know them either.
ABBREVIATIONS = _words(_TITLES, _COMPANIES, _DAYS_AND_MONTHS, _STATES, _PLACES, _LETTERS, _INITIALS, _OTHERS)

#: Words that are capitalised only at the start of a sentence, or that start a sentence far more often than by chance.
SENTENCE_OPENERS = _words(
    """
    above according almost along already although always among anybody anyone anything ask behind being better
    between birds both but call called came copyright despite does dogs done early either else enough even except
    finally fish he hence her here hers him however i if in indeed inside instead into it kids least lets many
    mean meanwhile mine moreover most nevertheless nonetheless nor nothing please put rain right sales same
    separately seven similarly since snow so some someone sometimes soon still such ten thank the them there
    therefore these they things think this though through thus together tomorrow trees try under upon us very wait
    walk went were when whenever whether which while without yes yesterday yet your
    """
)

#: Words that are common both in lower case and in titles: their capital shows neither a new sentence nor a name.
ORDINARY_WORDS = _words(
    """
    a about after again against all alone also am an and another any are around as at away b back be because been
    before began below best big bring by can cats children c clearly come could d day days did do down during each end
    every everybody everyone everything fall far few first five food for four from further get give go good great
    had has have having his hope how is its itself just keep know last late later left less let life like little
    long look love made make may maybe me might more much must my near never new next nine no nobody none not now
    of off often old on once one only open or other others our out over own people perhaps quite rather really red run s
    said say second see she should show six somebody something start stop sun take than that their then thing
    those three time to today too two until up use was water we well what whatever where who whose why will wind
    with work world would you young z
    """,
    """
    accepted action actions add agent agents answer answered answers argument arguments array asked asks await
    awaited base begins box calendar calls cannot case cause change changed check checked child city class close
    code collect collection collections command compare compared compares completed content conversation copy count
    counter counts customer cut data deadline default description different differs distribution earn empty ends
    entry environment environments episode equal error event exactly exception expected extra failed fails failure
    false field fields file files find fit float found function game generated gets given gives group head hidden
    hint hold holds import included input inspect install instructions item items job judge judged keeps kept key
    kind known letter limit limits line lines list lists local mark mask match math meaning message messages method
    missing model models name named names need needs neither number numbers object objects observation offers opened
    opens option optional order outcome output page part parts pass path pattern per plain play plays point policy
    prepare process prompt property public question questions raise raised raises read reads reason reasoning
    receipt record recorded reference refused repeats reply request requests resources response responses rest
    result results return returned returns reward rewards row rows runs says scored search seconds seed sees service
    session set sets setting settings several share shared short shown shows stage starts state step steps stops
    stored stream strict sum tables takes task tasks test tests text times token tool tools true turn turns twice
    type unchanged unknown unless used user users uses value values verdict whole word words works write written
    wrong wrote yield
    """,
)
