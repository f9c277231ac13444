"""Pages say what is there: links, anchors and modules exist, and a term of the glossary has one
meaning, defined where it says."""

import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted(p for where in ("*.md", "docs/*.md", "benchmarks/**/*.md", "examples/**/*.md")
               for p in ROOT.glob(where))
FOLDERS = ("aotc", "runtime_c", "benchmarks", "tests", "examples", ".ci")
ROW = re.compile(r"\| (?P<term>.+?) \| (?P<says>.+) \| \[`(?P<name>[^`]+)`\]\((?P<link>[^)]+)\) \|")


def prose(page):
    return re.sub(r"```.*?```", "", page.read_text(), flags=re.S)


def anchors(page):
    """What a heading is linked to as: its letters, digits, hyphens and spaces."""
    heads = re.findall(r"^#+ (.*)$", prose(page), re.M)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h).lower() for h in heads]
    return {re.sub(r"[^\w\- ]", "", h).replace(" ", "-") for h in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    wrong = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        file, _, anchor = link.partition("#")
        there = page.parent / file if file else page
        if not link.startswith("http") and not (
                there.exists() and (not anchor or anchor in anchors(there))):
            wrong.append(link)
    assert wrong == []


@pytest.fixture(scope="module")
def files():
    """Paths of all files, each behind a slash."""
    return ["/" + str(p.relative_to(ROOT)) for d in FOLDERS for p in (ROOT / d).rglob("*")
            if p.is_file()]


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda p: p.name)
def test_modules_and_folders_that_a_page_names_are_there(page, files):
    """Words in capitals stand for any name."""
    named = [w for code in re.findall(r"`([^`\n]+)`", prose(page))
             for w in re.findall(r"(?<![\w./*-])[\w./]*\w\.(?:py|j2|h|c|cu|cpp)\b(?!\()", code)
             if not re.search(r"[A-Z]{3,}", w) and w != "model.h"]
    folders = [w for w in re.findall(r"`((?:aotc|runtime_c|tests|benchmarks)/[\w/]+)`", prose(page))
               if not re.search(r"[A-Z]{3,}", w)]
    assert [w for w in named if not any(f.endswith("/" + w) for f in files)] == []
    assert [w for w in folders if not (ROOT / w).exists()] == []


def resolved(name):
    """True for a dotted name of a module of aotc, or of what it has."""
    parts = name.split(".")
    for i in range(len(parts), 0, -1):
        module = ".".join(("aotc", *parts[:i]))
        if (ROOT / module.replace(".", "/")).is_dir() or (
                ROOT / (module.replace(".", "/") + ".py")).is_file():
            value = import_module(module)
            return all((value := getattr(value, x, None)) is not None for x in parts[i:])
    return False


def test_dotted_names_are_there():
    tops = {p.stem for p in (ROOT / "aotc").iterdir()}
    named = {n for page in ROOT.glob("docs/*.md")
             for n in re.findall(r"`(?:aotc\.)?([a-z_]\w*(?:\.\w+)+)`", prose(page))
             if n.split(".")[0] in tops and n.split(".")[-1] != "py"}
    assert len(named) > 10 and [n for n in named if not resolved(n)] == []


def terms():
    return [m.groupdict() for m in map(ROW.match, (ROOT / "docs/glossary.md").read_text()
                                       .splitlines()) if m]


def test_a_term_has_one_meaning():
    rows = [line for line in (ROOT / "docs/glossary.md").read_text().splitlines()
            if line.startswith("|") and not re.match(r"\|(---| word )", line)]
    assert len(terms()) == len(rows), "a row without a term, a meaning or a module"
    words = Counter(w.strip().lower() for t in terms() for w in t["term"].split(","))
    assert [w for w, n in words.items() if n > 1] == []
    assert [w for w in words if "(" in w] == [], "a word of its own, no second meaning in brackets"


@pytest.mark.parametrize("row", terms(), ids=lambda t: t["term"])
def test_a_term_is_defined_where_it_says(row):
    """The module speaks of it, and has the identifiers that its line names."""
    file = ROOT / "docs" / row["link"]
    assert file.is_file() and row["link"].endswith("/" + row["name"])
    text = file.read_text()
    code = re.findall(r"`([^`]+)`", row["term"] + row["says"])
    assert [w for c in code for w in re.findall(r"[A-Za-z_]\w*", c)
            if not re.search(rf"\b{w}\b", text)] == []
    last = row["term"].split(",")[0].split()[-1].strip("`").lower()
    assert last[:5] in text.lower(), f"{file.name} never says {last}"
