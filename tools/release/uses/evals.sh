# a task of inspect-evals is found, with what it needs
# without: inspect_evals
ludus doctor inspect:inspect_evals/agentdojo
python -c "import inspect_evals"
