"""Files on disk: journals, stored rollouts, run identity, receipts."""
