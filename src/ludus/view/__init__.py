"""The viewer: a local web page over runs, live while they are written."""
