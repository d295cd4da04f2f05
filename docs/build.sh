#!/usr/bin/env bash
# Builds the documentation as a site into target/book, and checks the links inside it.
#
# It needs Python 3.10. mdBook is installed with Cargo into target/mdbook if it is not in PATH; MDBOOK names another program.
set -euo pipefail
cd "$(dirname "$0")/.."

target=${CARGO_TARGET_DIR:-target}
mdbook=${MDBOOK:-$(command -v mdbook || echo "$target/mdbook/bin/mdbook")}
if ! command -v "$mdbook" >/dev/null; then
  cargo install mdbook --version 0.5.4 --locked --no-default-features --features search --root "$target/mdbook"
fi

"$mdbook" build
# Scripts stand beside the pages and are not part of the site.
rm -f target/book/*.py target/book/*.sh
python3 docs/links.py target/book
