"""The same three classes over HTTP: resources, agents and models as servers, with a head that says where they are."""
