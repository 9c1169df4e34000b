# instruction_following tells German from English
cat > rows.jsonl <<'END'
{"id": 1, "responses_create_params": {"input": "Answer in German."}, "verifier_metadata": {"instruction_id_list": ["language:response_language"], "prompt": "Answer in German.", "kwargs": [{"language": "de"}]}}
END
echo '["Die Bienen finden ihren Weg nach Hause, weil sie die Sonne sehen."]' > german.yaml
echo '["The bees find their way home because they see the sun."]' > english.yaml
ludus collect instruction_following --input rows.jsonl --model scripted:german.yaml --output german
ludus collect instruction_following --input rows.jsonl --model scripted:english.yaml --output english
expect_reward german 1.0
expect_reward english 0.0
