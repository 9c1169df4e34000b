# `ludus show --browse` draws the list of runs in a terminal, and ends with q
echo '["The answer is \\boxed{A}."]' > script.yaml
ludus collect mcqa --model scripted:script.yaml --limit 2 --output runs/first
cat > terminal.py <<'END'
import os
import pty
import sys

child, terminal = pty.fork()
if child == 0:
    os.environ["TERM"] = "xterm-256color"
    os.execvp("ludus", ["ludus", "show", "runs", "--browse"])
drawn = b""
pressed = False
while True:
    try:
        drawn += os.read(terminal, 65536)
    except OSError:  # the other end is closed
        break
    if b"mcqa" in drawn and not pressed:
        pressed = bool(os.write(terminal, b"q"))
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
if not pressed:
    sys.stderr.write(drawn.decode(errors="replace"))
sys.exit(code or not pressed)
END
python terminal.py
