#!/bin/sh
# Installs the longshore program of a release into ~/.local/bin, or where LONGSHORE_INSTALL_DIR says.
#
#   sh install.sh [--from URL-OR-FOLDER]
#
# What was downloaded is installed only if its SHA-256 is the one in SHA256SUMS.
set -eu

version="$version"
from="$repository/releases/download/v$$version"
folder="$${LONGSHORE_INSTALL_DIR:-$$HOME/.local/bin}"

while [ $$# -gt 0 ]; do
    case "$$1" in
        --from) from="$$2"; shift 2 ;;
        *) echo "install.sh: there is no option $$1" >&2; exit 2 ;;
    esac
done

case "$$(uname -s)" in
    Linux) system=linux ;;
    Darwin) system=macos ;;
    *) echo "install.sh: there is no build for $$(uname -s); see the documentation for other ways" >&2; exit 1 ;;
esac
case "$$(uname -m)" in
    x86_64 | amd64) machine=x86_64 ;;
    aarch64 | arm64) machine=aarch64 ;;
    *) echo "install.sh: there is no build for $$(uname -m)" >&2; exit 1 ;;
esac
name="longshore-$$version-$$machine-$$system"

scratch="$$(mktemp -d)"
trap 'rm -rf "$$scratch"' EXIT
get() {
    case "$$from" in
        http://* | https://*) curl --proto '=https' --tlsv1.2 -fsSL "$$from/$$1" -o "$$scratch/$$1" ;;
        *) cp "$$from/$$1" "$$scratch/$$1" ;;
    esac || { echo "install.sh: $$from/$$1 cannot be had" >&2; exit 1; }
}
get SHA256SUMS
get "$$name.tar.gz"

expected="$$(sed -n "s/^\([0-9a-f]\{64\}\)  $$name\.tar\.gz$$/\1/p" "$$scratch/SHA256SUMS")"
if command -v sha256sum >/dev/null; then
    actual="$$(sha256sum "$$scratch/$$name.tar.gz" | cut -d' ' -f1)"
else
    actual="$$(shasum -a 256 "$$scratch/$$name.tar.gz" | cut -d' ' -f1)"
fi
if [ -z "$$expected" ] || [ "$$expected" != "$$actual" ]; then
    echo "install.sh: $$name.tar.gz is not what SHA256SUMS says; nothing was installed" >&2
    exit 1
fi

tar -xzf "$$scratch/$$name.tar.gz" -C "$$scratch"
mkdir -p "$$folder"
# Renamed into place, so that a running program is not written over.
cp "$$scratch/$$name/longshore" "$$folder/.longshore.new"
chmod 755 "$$folder/.longshore.new"
mv "$$folder/.longshore.new" "$$folder/longshore"
echo "installed $$folder/longshore"
case ":$$PATH:" in
    *":$$folder:"*) ;;
    *) echo "add $$folder to your PATH to call it by its name" ;;
esac
