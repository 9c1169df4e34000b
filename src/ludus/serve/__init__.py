"""Resources, agents and models as HTTP servers, with a head server that lists their URLs."""
