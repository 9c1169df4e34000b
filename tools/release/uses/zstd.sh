# a request whose body is compressed with zstd is read
# without: needs a package
cat > ask.py <<'END'
import asyncio
import sys

from ludus.http.body_encoding import decode_body
from ludus.http.messages import Incoming, Refusal

try:
    from backports.zstd import compress
except ImportError:
    compress = bytes
body = compress(b'{"model": "policy"}')
incoming = Incoming({"headers": [(b"content-encoding", b"zstd")]}, None, "POST", "/")
incoming.body = body
try:
    asyncio.run(decode_body(incoming, 1000))
except Refusal as refusal:
    sys.exit(str(refusal))
assert incoming.body == b'{"model": "policy"}'
END
python ask.py
