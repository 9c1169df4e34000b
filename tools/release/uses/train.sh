# TRL gets every token of the scripted rollouts, and a model of transformers answers a question of mcqa
# without: pip install ludus-transformers
ludus conformance trl
cat > tiny.py <<'END'
from ludus.train.conformance.tiny import tiny_model, tiny_tokenizer

tiny_model().save_pretrained("tiny")
tiny_tokenizer().save_pretrained("tiny")
END
python tiny.py
ludus collect mcqa --model transformers:tiny --limit 1 --set model.max_output_tokens=8 --output run
expect_completed run 1
python -c 'import accelerate, datasets, gguf'
