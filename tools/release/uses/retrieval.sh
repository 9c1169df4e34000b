# the embeddings inside the wheel rank passages
# without: pip install ludus-lab
mkdir pages
echo '<html><head><title>T</title></head><body><p>The dog chased a ball through the whole garden.</p></body></html>' > pages/a.html
echo '<html><head><title>T</title></head><body><p>Boil the pasta in salted water for nine minutes.</p></body></html>' > pages/b.html
python -c '
from pathlib import Path
from ludus_lab.retrieval.ranking import open_library
assert open_library(Path("pages"), "embeddings").search("cooking spaghetti", 1)[0].document == "b.html"
'
