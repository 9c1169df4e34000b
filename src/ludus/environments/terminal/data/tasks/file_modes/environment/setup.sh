mkdir -p site/bin site/keys
printf '#!/bin/sh\necho hi\n' > site/bin/run
printf 'echo no\n' > site/bin/readme
printf '#!/usr/bin/env python3\n' > site/deploy.py
printf 'import this\n' > site/lib.py
printf 'secret\n' > site/keys/a.key
printf '#!not a script\n' > site/b.pem
printf 'x' > 'site/a file'
chmod 777 site/keys site/lib.py site/keys/a.key; chmod 600 site/deploy.py
