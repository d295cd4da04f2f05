#!/usr/bin/env python3
"""Preprocessor of mdBook: points links that leave docs/ to the repository, so that pages work in both places.

mdBook runs it, by book.toml. The repository's URL is in packaging/owner.json.
"""

import json
import posixpath
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")


def rewritten(text, path, repository):
    folder = posixpath.dirname(f"docs/{path}")

    def target(match):
        inside = posixpath.normpath(posixpath.join(folder, match[1]))
        if inside.startswith("docs/") and inside != "docs/SUMMARY.md":
            # mdBook makes index.html of README.md, and leaves links to it as they are.
            return re.sub(r"(^|/)README\.md$", r"\1index.md", match[1]) + (match[2] or "")
        kind = "tree" if (ROOT / inside).is_dir() else "blob"
        return f"{repository}/{kind}/main/{inside}{match[2] or ''}"

    return LINK.sub(target, text)


def visit(items, repository):
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter:
            path = chapter.get("source_path") or chapter.get("path")
            if path:
                chapter["content"] = rewritten(chapter["content"], path, repository)
            visit(chapter["sub_items"], repository)


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    repository = json.loads((ROOT / "packaging/owner.json").read_text())["repository"]
    # "sections" until mdBook 0.4, "items" from 0.5.
    visit(book.get("items") or book.get("sections"), repository)
    json.dump(book, sys.stdout)


if __name__ == "__main__":
    main()
