# a shell in a sandbox repairs a repository, and pytest runs the hidden tests
cat > rows.jsonl <<'END'
{"instance_id": "adder", "problem_statement": "add(2, 3) is -1.", "files": {"adder.py": "def add(a, b):\n    return a - b\n"}, "test_patch": "diff --git a/test_adder.py b/test_adder.py\nnew file mode 100644\n--- /dev/null\n+++ b/test_adder.py\n@@ -0,0 +1,5 @@\n+from adder import add\n+\n+\n+def test_sums():\n+    assert add(2, 3) == 5\n", "FAIL_TO_PASS": ["test_adder.py::test_sums"]}
END
cat > script.yaml <<'END'
- {call: bash, arguments: {command: "sed -i 's/a - b/a + b/' adder.py"}}
- Done.
END
ludus collect mini_swe_agent --input rows.jsonl --model scripted:script.yaml --output run
expect_reward run 1.0
