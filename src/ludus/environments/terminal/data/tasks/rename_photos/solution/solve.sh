#!/bin/bash
cd /app/photos
export LC_ALL=C
for old in *; do
  case "$old" in
    IMG_????????_??????.jpg) d=${old:4:8}; new="${d:0:4}-${d:4:2}-${d:6:2}_${old:13:6}";;
    DSC????????-??????.JPG) d=${old:3:8}; new="${d:4:4}-${d:2:2}-${d:0:2}_${old:12:6}";;
    ????-??-??\ ??.??.??.jpg) new="${old:0:10}_${old:11:2}${old:14:2}${old:17:2}";;
    *) continue;;
  esac
  target="$new.jpg"; n=2
  while [ -e "$target" ]; do target="${new}_$n.jpg"; n=$((n+1)); done
  mv -- "$old" "$target"
done
