mkdir -p release/doc backup/x
for n in one two three four; do echo "content of $n" > release/$n; done
echo guide > release/doc/guide.txt
(find release -type f | sort | xargs sha256sum) > MANIFEST
cp release/two backup/x/0001; cp release/doc/guide.txt backup/g; echo junk > backup/junk
echo damaged >> release/two; rm release/doc/guide.txt release/four; echo more > release/three; echo new > "release/extra file"
