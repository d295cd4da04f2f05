#!/usr/bin/env python3
"""Checks that every link inside documents leads somewhere.

Usage: docs/links.py [FOLDER]

Without a folder it checks the Markdown files of the repository: files and headings. With the folder of a built site it checks the
links between its pages. Links to other servers are not followed. Markdown below `src` and `macros` is included in doc comments, so
its links to items of the API are left to rustdoc.
"""

import html
import re
import sys
import urllib.parse
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = {"target", "node_modules", ".cache", ".git"}
IN_DOC_COMMENTS = {"src", "macros", "crates"}


class Page(HTMLParser):
    """The names and the links of a page."""

    def __init__(self, text):
        super().__init__()
        self.names, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if value is None:
                continue
            if name == "id" or (tag == "a" and name == "name"):
                self.names.add(value)
            elif name in ("href", "src"):
                self.links.append(value)


def slug(heading):
    """The anchor of a heading, as Git hosts and mdBook make it."""
    heading = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    heading = re.sub(r"<[^>]*>", "", heading)
    return re.sub(r"[^\w\- ]", "", heading.strip().lower().replace("`", "")).replace(" ", "-")


def markdown(text):
    text = re.sub(r"^([ \t]*)(```+|~~~+)[^\n]*\n.*?^[ \t]*\2[ \t]*$", "", text, flags=re.S | re.M)
    names, seen = set(), {}
    for heading in re.findall(r"^#{1,6} +(.+?) *$", text, flags=re.M):
        name = slug(heading)
        count = seen[name] = seen.get(name, -1) + 1
        names.add(f"{name}-{count}" if count else name)
    # What is in backticks is code.
    plain = re.sub(r"`[^`\n]*`", "", text)
    return names, re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", plain)


def read(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        page = Page(text)
        return page.names, [html.unescape(link) for link in page.links]
    return markdown(text)


def main():
    folder = Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT
    pattern = "*.html" if sys.argv[1:] else "*.md"
    # The names of folders above do not matter: the site itself is below target/.
    paths = [path for path in sorted(folder.rglob(pattern)) if not SKIPPED & set(path.relative_to(folder).parts)]
    pages = {path.resolve(): read(path) for path in paths}
    wrong, count = [], 0
    for path, (names, links) in pages.items():
        # mdBook links its search and 404 pages from the root of a server.
        if path.name == "404.html":
            continue
        of_the_api = path.relative_to(folder).parts[0] in IN_DOC_COMMENTS
        for link in links:
            if of_the_api and "::" in link:
                continue
            if re.match(r"[a-z][a-z0-9+.-]*:|//", link) or (pattern == "*.html" and link.startswith("/")):
                continue
            count += 1
            file, _, name = link.partition("#")
            file = urllib.parse.unquote(file.partition("?")[0])
            name = urllib.parse.unquote(name)
            target = (path.parent / file).resolve() if file else path
            if target.is_dir() and (target / "index.html") in pages:
                target /= "index.html"
            if not target.exists():
                wrong.append(f"{path.relative_to(folder)}: {link} does not exist")
            elif name and target in pages and name not in pages[target][0]:
                wrong.append(f"{path.relative_to(folder)}: {link}: the page has no such heading")
    print("\n".join(wrong + [f"{len(pages)} pages, {count} links, {len(wrong)} wrong"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
