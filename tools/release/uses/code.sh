# a function that imports numpy, scipy and pandas passes its hidden tests in the sandbox of code_tests
# without: the mean reward of run is 0.0 instead of 1.0
cat > rows.jsonl <<'END'
{"task_id": "mean", "prompt": "def mean(values):\n    \"\"\"The mean.\"\"\"\n", "entry_point": "mean", "test": "def check(candidate):\n    assert candidate([1, 2, 6]) == 3\n"}
END
cat > script.yaml <<'END'
- |
  ```python
  import numpy, pandas, scipy.stats

  def mean(values):
      means = {float(numpy.mean(values)), float(pandas.Series(values).mean()), float(scipy.stats.describe(values).mean)}
      return means.pop() if len(means) == 1 else None
  ```
END
ludus collect code_tests --input rows.jsonl --model scripted:script.yaml --output run
expect_reward run 1.0
