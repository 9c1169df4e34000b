"""Games of TextArena for two players: self-play, or against a scripted opponent."""
