"""What runs inside the sandbox: the tests in one process, the model's program in another, and what passes between them.

The text of these modules is sent into the sandbox, so they import nothing but the standard library and each other.
"""
