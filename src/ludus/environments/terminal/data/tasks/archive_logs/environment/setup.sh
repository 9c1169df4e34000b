mkdir -p logs/web logs/db
put() { printf '%s\n' "$1" > "logs/$1"; touch -d "$2" "logs/$1"; }
put web/a.log 2024-02-29
put web/b.log 2024-03-02
put db/c.log 2023-12-31
put db/c.txt 2023-12-31
put "db/slow queries.log" 2024-01-15
put new.log 2024-05-01
