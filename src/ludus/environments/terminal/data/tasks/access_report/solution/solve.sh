#!/bin/bash
cd /app
(echo path,requests,errors,bytes
 awk '{ p = $4; sub(/\?.*/, "", p); n[p]++; if ($5 >= 400) e[p]++; if ($6 != "-") b[p] += $6 }
      END { for (p in n) printf "%s,%d,%d,%d\n", p, n[p], e[p], b[p] }' access.log |
   sort -t, -k2,2nr -k1,1) > report.csv
