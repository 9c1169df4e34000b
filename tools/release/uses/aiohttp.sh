# a model is asked through aiohttp
cat > model.py <<'END'
import json
from http.server import BaseHTTPRequestHandler, HTTPServer


class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = {"choices": [{"message": {"role": "assistant", "content": "\\boxed{A}"}, "finish_reason": "stop"}]}
        sent = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)


server = HTTPServer(("127.0.0.1", 0), Model)
print(server.server_port, file=open("port.new", "w"))
__import__("os").rename("port.new", "port")
server.serve_forever()
END
python model.py & trap "kill $!" EXIT
while [ ! -e port ]; do sleep 0.1; done
ludus collect mcqa --model "http://127.0.0.1:$(cat port)/v1#m" --set model.api=chat --set model.http=aiohttp --limit 2 --output run
expect_completed run 2
