"""Write rules.json: the hashes of all rules, for test_claim to compare with.

python -m tests.analysis.claims.write_rules
"""

import json
from pathlib import Path

from mislabel.analysis.claims.claim import papers, rule_hashes

FILE = Path(__file__).parent / "rules.json"

if __name__ == "__main__":
    FILE.write_text(json.dumps({name: rule_hashes(name) for name in papers()}, indent=1) + "\n")
