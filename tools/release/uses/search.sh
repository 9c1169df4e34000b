# the text of a web page is found, and its menu left out
cat > page.py <<'END'
from ludus.environments.google_search.extraction import require_extraction, text_of

require_extraction()
sentence = "The lighthouse of the island was built in 1889 by two brothers who never agreed on its height."
page = f"<html><body><nav><a href=/>Home</a></nav><article><h1>Lighthouse</h1><p>{sentence * 3}</p></article></body></html>"
text = text_of(page.encode(), "", "text/html; charset=utf-8", 100_000)
assert sentence in text and "Home" not in text, text
END
python page.py
