"""Questions about pictures that code draws."""
