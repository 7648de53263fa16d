"""What to cite for each policy: papers.bib has the entries."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

#: The papers of each policy, the one that proposed it first.
CITED = {
    "co": ["cabai"], "ctas": ["cabai"], "tas": ["garivier16"], "racing": ["garivier16", "cabai"],
    "d-lucb": ["kaufmann13"], "uniform": [], "top-two": ["you23", "jourdan23", "qin24"], "cheapest": [],
    "thompson": ["shang20", "russo16"], "eb-tci": ["jourdan22", "jourdan23epsilon", "you23"],
    "at2": ["bandyopadhyay24"], "fws": ["wang21"], "lma": ["menard19", "poiani24"], "dkm": ["degenne19"],
    "ugape": ["gabillon12"], "successive-rejects": ["audibert10"], "sequential-halving": ["karnin13", "li24"],
    "continuous-rejects": ["wang23"], "ocba": ["chen00"],
}  # fmt: skip


def bibtex(policy: str) -> str:
    """The BibTeX entries of the papers that proposed a policy; empty for your own, and where there is none.

    >>> print(bibtex("at2(challenger=tci)"))
    @inproceedings{bandyopadhyay24,
      author = {Bandyopadhyay, Agniv and Juneja, Sandeep and Agrawal, Shubhada},
      title = {Optimal Top-Two Method for Best Arm Identification and Fluid Analysis},
      year = {2024},
      booktitle = {NeurIPS}
    }
    """
    keys = CITED.get(str(policy).partition("(")[0], [])
    return "\n".join(papers()[key] for key in keys)


@cache
def papers() -> dict[str, str]:
    """The entries of papers.bib, one per paragraph, by key."""
    entries = files("cabai.policies").joinpath("papers.bib").read_text(encoding="utf-8").strip().split("\n\n")
    return {entry[entry.index("{") + 1 : entry.index(",")]: entry for entry in entries}
