"""What lies on disk: journals, stored rollouts, the identity of a run and receipts."""
