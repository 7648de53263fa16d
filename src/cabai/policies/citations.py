"""What to cite for each policy."""

from __future__ import annotations

PAPERS = {
    "cabai": ("misc", "Kanarios, Kellen and Zhang, Qining and Ying, Lei", "Cost Aware Best Arm Identification", 2024,
              "eprint = {2402.16710}, archiveprefix = {arXiv}"),
    "garivier16": ("inproceedings", "Garivier, Aurélien and Kaufmann, Emilie",
                   "Optimal Best Arm Identification with Fixed Confidence", 2016, "booktitle = {COLT}"),
    "kaufmann13": ("inproceedings", "Kaufmann, Emilie and Kalyanakrishnan, Shivaram",
                   "Information Complexity in Bandit Subset Selection", 2013, "booktitle = {COLT}"),
    "you23": ("inproceedings", "You, Wei and Qin, Chao and Wang, Zihao and Yang, Shuoguang",
              "Information-Directed Selection for Top-Two Algorithms", 2023, "booktitle = {COLT}"),
    "qin24": ("misc", "Qin, Chao and Russo, Daniel", "Optimizing Adaptive Experiments: A Unified Approach to Regret "
              "Minimization and Best-Arm Identification", 2024, "eprint = {2402.10592}, archiveprefix = {arXiv}"),
    "jourdan23": ("inproceedings", "Jourdan, Marc and Degenne, Rémy", "Non-Asymptotic Analysis of a UCB-based Top Two "
                  "Algorithm", 2023, "booktitle = {NeurIPS}"),
    "shang20": ("inproceedings", "Shang, Xuedong and de Heide, Rianne and Ménard, Pierre and Kaufmann, Emilie and "
                "Valko, Michal", "Fixed-Confidence Guarantees for Bayesian Best-Arm Identification", 2020,
                "booktitle = {AISTATS}"),
    "russo16": ("inproceedings", "Russo, Daniel", "Simple Bayesian Algorithms for Best Arm Identification", 2016,
                "booktitle = {COLT}"),
    "jourdan22": ("inproceedings", "Jourdan, Marc and Degenne, Rémy and Baudry, Dorian and de Heide, Rianne and "
                  "Kaufmann, Emilie", "Top Two Algorithms Revisited", 2022, "booktitle = {NeurIPS}"),
    "jourdan23epsilon": ("inproceedings", "Jourdan, Marc and Degenne, Rémy and Kaufmann, Emilie",
                         r"An $\varepsilon$-Best-Arm Identification Algorithm for Fixed-Confidence and Beyond", 2023,
                         "booktitle = {NeurIPS}"),
    "bandyopadhyay24": ("inproceedings", "Bandyopadhyay, Agniv and Juneja, Sandeep and Agrawal, Shubhada",
                        "Optimal Top-Two Method for Best Arm Identification and Fluid Analysis", 2024,
                        "booktitle = {NeurIPS}"),
    "wang21": ("inproceedings", "Wang, Po-An and Tzeng, Ruo-Chun and Proutiere, Alexandre",
               "Fast Pure Exploration via Frank-Wolfe", 2021, "booktitle = {NeurIPS}"),
    "menard19": ("misc", "Ménard, Pierre", "Gradient Ascent for Active Exploration in Bandit Problems", 2019,
                 "eprint = {1905.08165}, archiveprefix = {arXiv}"),
    "poiani24": ("inproceedings", "Poiani, Riccardo and Degenne, Rémy and Kaufmann, Emilie and Metelli, Alberto Maria "
                 "and Restelli, Marcello", "Optimal Multi-Fidelity Best-Arm Identification", 2024,
                 "booktitle = {NeurIPS}"),
    "degenne19": ("inproceedings", "Degenne, Rémy and Koolen, Wouter M. and Ménard, Pierre",
                  "Non-Asymptotic Pure Exploration by Solving Games", 2019, "booktitle = {NeurIPS}"),
    "gabillon12": ("inproceedings", "Gabillon, Victor and Ghavamzadeh, Mohammad and Lazaric, Alessandro",
                   "Best Arm Identification: A Unified Approach to Fixed Budget and Fixed Confidence", 2012,
                   "booktitle = {NeurIPS}"),
    "audibert10": ("inproceedings", "Audibert, Jean-Yves and Bubeck, Sébastien and Munos, Rémi",
                   "Best Arm Identification in Multi-Armed Bandits", 2010, "booktitle = {COLT}"),
    "karnin13": ("inproceedings", "Karnin, Zohar and Koren, Tomer and Somekh, Oren",
                 "Almost Optimal Exploration in Multi-Armed Bandits", 2013, "booktitle = {ICML}"),
    "li24": ("inproceedings", "Li, Zitian and Cheung, Wang Chi",
             "Best Arm Identification with Resource Constraints", 2024, "booktitle = {AISTATS}"),
    "wang23": ("inproceedings", "Wang, Po-An and Tzeng, Ruo-Chun and Proutiere, Alexandre",
               "Best Arm Identification with Fixed Budget: A Large Deviation Perspective", 2023,
               "booktitle = {NeurIPS}"),
    "chen00": ("article", "Chen, Chun-Hung and Lin, Jianwu and Yücesan, Enver and Chick, Stephen E.",
               "Simulation Budget Allocation for Further Enhancing the Efficiency of Ordinal Optimization", 2000,
               "journal = {Discrete Event Dynamic Systems}"),
}  # fmt: skip
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
    entries = []
    for key in CITED.get(str(policy).partition("(")[0], []):
        kind, author, title, year, where = PAPERS[key]
        lines = [f"author = {{{author}}}", f"title = {{{title}}}", f"year = {{{year}}}", *where.split(", ")]
        entries.append(f"@{kind}{{{key},\n  " + ",\n  ".join(lines) + "\n}")
    return "\n".join(entries)
