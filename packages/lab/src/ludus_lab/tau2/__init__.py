"""Service desks of an airline, a shop and a phone company, with a policy and a user who may act too."""
