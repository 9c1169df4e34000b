# the families of models whose answers can be read are known
# without: is not installed
cat > families.py <<'END'
import sys

from ludus.errors import MissingExtra, UserError
from ludus.models.families import FamilyReader

try:
    FamilyReader("nobody", None)
except MissingExtra as missing:
    sys.exit(str(missing))
except UserError as error:
    assert "llama-3" in str(error)
END
python families.py
