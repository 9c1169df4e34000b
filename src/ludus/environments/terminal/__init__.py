"""Work at a shell: tasks in Harbor's layout, judged by their own test scripts."""
