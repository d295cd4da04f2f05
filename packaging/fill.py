#!/usr/bin/env python3
"""Writes the names that only an owner can give into every file that has them.

    packaging/fill.py --owner NAME --contact ADDRESS

The files say OWNER, and OWNER@example.com, until then. `git diff` shows what was written.
"""

import argparse
import pathlib

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILES = [
    "packaging/owner.json",
    "Cargo.toml",
    "helm/longshore/Chart.yaml",
    "helm/artifacthub-repo.yml",
    "SECURITY.md",
    "CODE_OF_CONDUCT.md",
    ".github/ISSUE_TEMPLATE/config.yml",
]

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--owner", required=True, help="account or organization that the repository belongs to")
parser.add_argument("--contact", required=True, help="mail address for reports of vulnerabilities and of conduct")
options = parser.parse_args()

for name in FILES:
    path = ROOT / name
    text = path.read_text()
    filled = text.replace("OWNER@example.com", options.contact).replace("OWNER", options.owner)
    if filled != text:
        path.write_text(filled)
        print(name)
