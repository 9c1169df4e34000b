"""One warm process that plays samples of one Inspect task. Models and sandboxes are on the other end of its socket."""
