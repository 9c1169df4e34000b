#!/bin/bash
python3 -c 'import tabulate; print(tabulate.tabulate([["a", "b"]], tablefmt="plain"))' > /app/table.txt
