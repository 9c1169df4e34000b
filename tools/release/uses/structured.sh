# structured_outputs accepts what fits the schema, and nothing else
echo "['{\"name\": \"Basil\", \"height_cm\": 45, \"edible\": true}']" > right.yaml
echo "['{\"name\": \"Basil\", \"height_cm\": -45, \"edible\": true}']" > wrong.yaml
ludus collect structured_outputs --model scripted:right.yaml --limit 1 --output right
ludus collect structured_outputs --model scripted:wrong.yaml --limit 1 --output wrong
expect_reward right 1.0
expect_reward wrong 0.0
