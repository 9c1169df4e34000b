#!/bin/bash
touch /app/other
cat > /app/sum.sh <<'END'
sum=0
for each in "$@"; do sum=$((sum + each)); done
echo $sum
END
