"""One weather tool and a constant reward."""
