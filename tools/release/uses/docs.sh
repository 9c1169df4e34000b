# the documentation site is built from the source archive
# without: No module named sphinx
python "$SOURCE/docs/_ext/site_build.py" "$PWD/site"
test -s site/index.html
