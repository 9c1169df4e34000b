"""What the `qualify.py` of an environment is made of: attacks on graders, scripted judges, meaningless arguments."""
