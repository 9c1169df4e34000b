"""Stand-ins for what runs elsewhere: on a server, in another framework."""
