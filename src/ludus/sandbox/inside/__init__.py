"""What runs inside a sandbox: a supervisor, its modules sent through a socket to a bare interpreter.

These files import nothing of ours but each other, and keep no secret: the expected output of a program never comes in
here.
"""
