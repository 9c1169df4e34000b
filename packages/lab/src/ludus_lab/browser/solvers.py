"""Right answers for many pages, made from what the page shows: the oracle of qualification.

A solver gets the page as it was first shown, as it is now, and the number of actions so far. It returns the next
action, or None when it is done. It knows nothing that a model does not see.
"""

from __future__ import annotations

from collections.abc import Callable

from ludus_lab.browser import plans, searches
from ludus_lab.browser.view import Action, View, click


def steps(plan: Callable[[View], list[Action]]) -> Callable[[View], Action | None]:
    """A solver that decides all actions from the page as it was at first."""

    def solve(view: View) -> Action | None:
        actions = plan(View(view.first, view.first, 0))
        return actions[view.step] if view.step < len(actions) else None

    return solve


#: A solver for each page that has one.
SOLVERS: dict[str, Callable[[View], Action | None]] = {
    "ascending-numbers": steps(plans.ascending),
    "button-delay": steps(plans.sequence),
    "buy-ticket": steps(plans.ticket),
    "choose-date": searches.day,
    "choose-date-easy": searches.day,
    "choose-date-medium": searches.day,
    "choose-date-nodelay": searches.day,
    "choose-list": steps(plans.choose),
    "click-button": steps(plans.click_quoted),
    "click-button-sequence": steps(plans.sequence),
    "click-checkboxes": steps(plans.check),
    "click-checkboxes-large": steps(plans.check),
    "click-checkboxes-transfer": steps(plans.check),
    "click-collapsible": searches.collapsed,
    "click-collapsible-2": searches.opened("tab"),
    "click-collapsible-2-nodelay": searches.opened("tab"),
    "click-collapsible-nodelay": searches.collapsed,
    "click-dialog": steps(lambda view: [click(view.named("Close", "button"))]),
    "click-dialog-2": steps(lambda view: [click(view.named({"x": "Close"}.get(view.quoted[0], view.quoted[0])))]),
    "click-link": steps(plans.click_quoted),
    "click-option": steps(plans.check),
    "click-scroll-list": steps(plans.choose),
    "click-tab": steps(lambda view: [click(view.named(view.query.partition(" on ")[2].rstrip("."), "link"))]),
    "click-tab-2": searches.links,
    "click-tab-2-easy": searches.links,
    "click-tab-2-hard": searches.links,
    "click-tab-2-medium": searches.links,
    "click-test": steps(lambda view: [click(view.named("Click Me!", "button"))]),
    "click-test-2": steps(plans.sequence),
    "click-test-transfer": steps(plans.sequence),
    "drag-box": steps(plans.into_box),
    "drag-sort-numbers": searches.sort,
    "email-inbox-delete": searches.email,
    "email-inbox-forward": searches.email,
    "email-inbox-important": searches.email,
    "email-inbox-noscroll": searches.email,
    "email-inbox-reply": searches.email,
    "enter-date": steps(plans.date),
    "enter-password": steps(plans.type_quoted),
    "enter-text": steps(plans.type_quoted),
    "enter-text-2": steps(plans.type_quoted),
    "enter-text-dynamic": steps(plans.type_quoted),
    "enter-time": steps(plans.time),
    "find-greatest": steps(plans.greatest),
    "find-word": steps(plans.word),
    "focus-text": steps(plans.focus),
    "focus-text-2": steps(plans.focus),
    "form-sequence-2": steps(plans.two_fields),
    "generate-number": searches.generated,
    "guess-number": searches.guess,
    "highlight-text": steps(plans.highlight),
    "highlight-text-2": steps(plans.highlight),
    "login-user": steps(plans.log_in),
    "multi-orderings": steps(plans.movies),
    "navigate-tree": searches.folder,
    "odd-or-even": steps(plans.parity),
    "phone-book": searches.contact,
    "read-table": steps(plans.table_value),
    "read-table-2": steps(plans.table_values),
    "resize-textarea": steps(plans.narrower),
    "scroll-text": steps(plans.last_word),
    "search-engine": searches.searched,
    "simple-algebra": steps(plans.algebra),
    "simple-arithmetic": steps(plans.arithmetic),
    "social-media-all": searches.social,
    "social-media-some": searches.social,
    "stock-market": searches.stock,
    "text-transform": steps(plans.letters),
    "unicode-test": steps(plans.click_quoted),
    "use-spinner": steps(plans.spin),
}
