# `ludus profile --plot png` draws the pass rates
echo '["The answer is \\boxed{A}."]' > script.yaml
ludus collect mcqa --model scripted:script.yaml --limit 2 --output run
ludus profile run --output profile --plot png
head -c 4 profile/pass_rates.png | grep -q PNG
