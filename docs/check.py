#!/usr/bin/env python3
"""Checks the prose of README.md and docs/: sentence length, sentence openings, and terms with a standard replacement.

It also checks that the README is short above its details, that docs/SUMMARY.md has every page, and that the messages in
docs/guides/troubleshooting.md are messages of the program.

Usage: docs/check.py [--list] [FILE ...]

Without files it checks README.md, the README of the chart and every page below docs/, except generated pages and pages for developers. It prints one line
per mistake and a summary, and exits with 1 if a limit is exceeded. `--list` also prints the long sentences and openings that are
within the limits.

Code blocks, inline code, tables, headings, HTML and generated sections do not count as sentences. Terms are searched in tables and
headings, too. It needs Python 3.10 and nothing else.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Share of sentences with more than LONG words, and share of sentences that open with one of OPENINGS, over all pages together.
LONG, LONG_SHARE = 30, 0.03
OPENINGS, OPENING_SHARE = ("What", "Who", "Whom", "Whose", "Where", "Of", "Nobody", "Whoever", "Whatever"), 0.01

# Generated from the program, or written for developers of Longshore.
EXEMPT = ("docs/protocol.md", "docs/dev/")

# A pattern, and the term to use instead.
TERMS = [
    (r"answer(s|ed|ing)?\b", "response, respond, return"),
    (r"turn(s|ed|ing)? away", "reject, deny"),
    (r"(take|takes|taken|took|taking) (up again|on\b)", "resume; apply, reload"),
    (r"read again", "reload"),
    (r"outd(o|oes|id|one)\b", "override, take precedence over"),
    (r"signs? of life", "keep-alive, heartbeat"),
    (r"processor time", "CPU time"),
    (r"strangers?\b", "unauthenticated clients"),
    (r"(nobody|somebody|everybody)\b", "name the user, client or caller"),
    (r"(whoever|whomever)\b", "name the user, client or caller"),
    (r"(is|are|was|were) told\b", "is notified, is reported"),
    (r"authorities\b", "CA certificates"),
    (r"standing streams?\b", "long-lived stream"),
    (r"inflat(e|es|ed|ing)\b", "decompress"),
    (r"notices?\b", "notification"),
    (r"proofs?\b", "authentication method, credential"),
    (r"pictures?\b", "image"),
    (r"(is|are) no (valid |JSON|URL|such|longer a\b)", "is not a ..."),
    (r"at once\b", "immediately; concurrently"),
    (r"(a|its|their|the) life\b", "maximum age, TTL, lifetime"),
    (r"anew\b", "again"),
    (r"asks? nobody\b", "does not authenticate"),
]
# Terms of standards that look like one of the above.
ALLOWED = re.compile(r"DPoP proofs?|proof[- ]of[- ]possession|PKCE proof|proof key", re.IGNORECASE)


# Words of the README above its details, code and tables included.
README_WORDS = 700


def whole():
    """Mistakes of the documents as a whole."""
    mistakes = []
    above = (ROOT / "README.md").read_text(encoding="utf-8").partition("<details>")[0]
    if README_WORDS < len(above.split()):
        mistakes.append(f"README.md: {len(above.split())} words above the details; at most {README_WORDS}")
    summary = (ROOT / "docs/SUMMARY.md").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").as_posix()
        if name != "SUMMARY.md" and f"]({name})" not in summary:
            mistakes.append(f"docs/{name}: not in docs/SUMMARY.md")
    # Literals that continue on the next line are joined, as the compiler does.
    sources = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "crates").rglob("*.rs")))
    sources = re.sub(r"\\\n\s*", "", sources)
    guide = "docs/guides/troubleshooting.md"
    for number, line in enumerate((ROOT / guide).read_text(encoding="utf-8").split("\n"), 1):
        heading = re.fullmatch(r"### `(.+)`", line)
        for part in heading[1].split("…") if heading else ():
            if part.strip() and part.strip() not in sources:
                mistakes.append(f"{guide}:{number}: the program has no message {part.strip()!r}; copy the present one")
    return mistakes


def pages(arguments):
    if arguments:
        return [Path(name).resolve() for name in arguments]
    found = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    for folder in ("conformance", "examples", "fuzz", "helm", "interop", "loadtest"):
        readmes = sorted((ROOT / folder).rglob("README.md"))
        found += [page for page in readmes if "node_modules" not in page.parts]
    return [page for page in found if not relative(page).startswith(EXEMPT)]


def relative(page):
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else str(page)


def blank(match):
    """Keeps the line numbers of what follows."""
    return "\n" * match.group().count("\n")


def without_code(text):
    text = re.sub(r"<!-- (?:what follows is )?generated.*?<!-- end of.*?-->", blank, text, flags=re.S)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.S)
    text = re.sub(r"^([ \t]*)(```+|~~~+)[^\n]*\n.*?^[ \t]*\2[ \t]*$", blank, text, flags=re.S | re.M)
    text = re.sub(r"`[^`\n]+(?:\n[^`\n]+)?`", lambda match: "CODE" + blank(match), text)
    text = re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"<[a-z/][^>]*>", blank, text)


def paragraphs(text):
    """Blocks of prose with the line on which each begins."""
    block, first = [], 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        stripped = line.strip()
        is_item = re.match(r"([-*+]|\d+\.)\s", stripped)
        is_other = not stripped or stripped.startswith(("|", "#")) or re.fullmatch(r"[-=*_ ]{3,}", stripped)
        if (is_other or is_item) and block:
            yield first, " ".join(block)
            block = []
        if is_other:
            continue
        if not block:
            first = number
        block.append(re.sub(r"^(([-*+]|\d+\.)\s+|>\s?)", "", stripped))


def sentences(paragraph):
    paragraph = re.sub(r"[*_]{1,3}(?=\w)|(?<=[\w.!?:)])[*_]{1,3}", "", paragraph)
    paragraph = re.sub(r"\b(e\.g|i\.e|etc|vs|approx)\.", r"\1", paragraph)
    return [part for part in re.split(r"(?<=[.!?])[\")]?\s+(?=[\"(]?[A-Z0-9])", paragraph) if re.search(r"[A-Za-z]{2}", part)]


def main():
    arguments = [argument for argument in sys.argv[1:] if argument != "--list"]
    is_listing = "--list" in sys.argv[1:]
    total, long, openings, terms = 0, [], [], []
    figures = []
    for page in pages(arguments):
        name = relative(page)
        text = without_code(page.read_text(encoding="utf-8"))
        for number, line in enumerate(text.split("\n"), 1):
            for pattern, better in TERMS:
                for match in re.finditer(rf"\b{pattern}", ALLOWED.sub("", line), re.IGNORECASE):
                    terms.append(f"{name}:{number}: \"{match.group()}\": write {better}")
        before = total, len(long), len(openings)
        for number, paragraph in paragraphs(text):
            for sentence in sentences(paragraph):
                total += 1
                count = len(re.findall(r"[\w'’./:-]*\w[\w'’./:-]*", sentence))
                if LONG < count:
                    long.append(f"{name}:{number}: {count} words: {sentence[:110]}")
                # A question as a heading of a paragraph is fine.
                if sentence.split(maxsplit=1)[0].strip("\"(") in OPENINGS and not sentence.endswith("?"):
                    openings.append(f"{name}:{number}: opens with a relative clause: {sentence[:110]}")
        figures.append((name, total - before[0], len(long) - before[1], len(openings) - before[2]))
    is_too_long = LONG_SHARE * total < len(long)
    is_too_open = OPENING_SHARE * total < len(openings)
    if is_listing:
        for name, count, longs, opened in figures:
            print(f"{name}: {count} sentences, {longs} long, {opened} opening with a relative clause")
    others = [] if arguments else whole()
    for line in others + terms + (long if is_too_long or is_listing else []) + (openings if is_too_open or is_listing else []):
        print(line)
    share = lambda part: 100 * part / max(total, 1)
    print(
        f"{total} sentences; more than {LONG} words: {len(long)} ({share(len(long)):.1f} %, at most {100 * LONG_SHARE:.0f} %); "
        f"relative openings: {len(openings)} ({share(len(openings)):.1f} %, at most {100 * OPENING_SHARE:.0f} %); "
        f"terms to replace: {len(terms)} (at most 0)"
    )
    return 1 if others or terms or is_too_long or is_too_open else 0


if __name__ == "__main__":
    sys.exit(main())
