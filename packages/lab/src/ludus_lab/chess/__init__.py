"""Chess against Stockfish, from any position."""
