"""HTTP both ways: the application our servers are made of, and the client that talks to them."""
