# the spans of a rollout arrive at a receiver of OTLP over HTTP
# without: pip install ludus-telemetry
echo '["The answer is \\boxed{A}."]' > script.yaml
cat > receiver.py <<'END'
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

received = []


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        received.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()


server = HTTPServer(("127.0.0.1", 0), Receiver)
threading.Thread(target=server.serve_forever, daemon=True).start()
variables = {
    **os.environ,
    "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
    "OTEL_EXPORTER_OTLP_COMPRESSION": "none",
}
command = "ludus collect mcqa --model scripted:script.yaml --limit 1 --otel --output run".split()
if subprocess.run(command, env=variables).returncode:
    sys.exit(1)
assert b"invoke_agent mcqa" in b"".join(received), received
END
python receiver.py
