"""Sandboxes on the machines of services. Ludus finds the providers by their entry points and never imports this."""
