"""Any environment with Gymnasium's interface, played in text."""
