# the charts of a collection are written for MLflow
# without: pip install ludus-telemetry
export MLFLOW_ALLOW_FILE_STORE=true
echo '["The answer is \\boxed{A}."]' > script.yaml
ludus collect mcqa --model scripted:script.yaml --limit 2 --log-to "mlflow:file://$PWD/charts" --output run
find charts -name mean | grep -q reward/mean
