"""The optimal cost shares w*, for compiled code.

Let 1 be the leader. For each rival a and u = N_1/N_a, the pooled mean is m = (u mu_1 + mu_a)/(u + 1); write
D_1 = d(mu_1, m), D_a = d(mu_a, m). The optimum makes all pairs equally hard and balances the cost of the two sides:

    h_a(u_a) = u_a / (u_a D_1 + D_a) = z   for every rival a      (z = 1/y*)
    Phi = sum over a of (c_a/c_1) D_1/D_a = 1

Both h_a (affine for gaussian: (1 + u) 2v/gap²) and f = Phi^(-1/2) as a function of z are nearly linear, so Newton's
method converges in a few steps; the unknowns (z, u_2, ..., u_K) meet only through z, so a joint step costs O(K).
Derivatives:

    h' = D_a / (u D_1 + D_a)²,    (D_1/D_a)' = -gap² (u D_1 + D_a) / (V(m) (1 + u)³ D_a²).

`allocate` writes w* to arms[a].share and returns the hardness T* = z (c_1 + sum c_a/u_a). It keeps z in run.memo and
the u in arms[a].memo, and starts from them the next time: then 1 to 3 steps do.
"""

from __future__ import annotations

import math

import numpy as np

from cabai.compiled import kernel
from cabai.compiled.divergence import divergence, variance_at
from cabai.families import GAUSSIAN

JOINT_STEPS = 12  # the joint method has met its goal long before, or never will


@kernel(python=True)
def allocate(arms, run, rules):
    """Fill arms[a].share with the optimal cost shares for the arms' means and costs; return the hardness.

    A tie for the best has no finite hardness: the tied arms share in proportion to sqrt(cost).
    """
    leader = run.leader
    for a in range(len(arms)):
        if a != leader and arms[a].mean == arms[leader].mean:
            return share_among_tied(arms, leader)
    if rules.family == GAUSSIAN:
        z = solve_gaussian(arms, leader, run.memo, rules)
    else:
        warm = run.memo > 0.0 and arms[leader].memo == 0.0  # else there is no last time, or another leader then
        z = solve_jointly(arms, leader, run.memo, rules) if warm else 0.0
        if z == 0.0:
            z = solve_jointly(arms, leader, first_guess(arms, leader, rules), rules)
        if z == 0.0:
            z = solve_nested(arms, leader, rules)
    run.memo = z
    arms[leader].memo = 0.0
    total = arms[leader].cost
    for a in range(len(arms)):
        if a != leader:
            arms[a].share = arms[a].cost / arms[a].memo
            total += arms[a].share
    arms[leader].share = arms[leader].cost
    for a in range(len(arms)):
        arms[a].share /= total
    return z * total


@kernel
def share_among_tied(arms, leader):
    best = arms[leader].mean
    total = 0.0
    for a in range(len(arms)):
        arms[a].share = math.sqrt(arms[a].cost) if arms[a].mean == best else 0.0
        total += arms[a].share
    for a in range(len(arms)):
        arms[a].share /= total
    return np.inf


@kernel
def solve_gaussian(arms, leader, z, rules):
    """u_a = z D_a - 1 with D_a = gap²/2v, so one unknown is left. f is concave: Newton from below never overshoots."""
    best, cost = arms[leader].mean, arms[leader].cost
    nearest = np.inf
    for a in range(len(arms)):
        if a != leader:
            gap = best - arms[a].mean
            arms[a].memo = gap * gap / (2.0 * rules.variance)  # D_a, until the end
            nearest = min(nearest, arms[a].memo)
    if not z * nearest > 1.0:
        z = lowest_gaussian(arms, leader)
    for _ in range(100):
        phi = slope = 0.0
        for a in range(len(arms)):
            if a != leader:
                u = z * arms[a].memo - 1.0
                term = arms[a].cost / (cost * u * u)
                phi += term
                slope += term * arms[a].memo / u
        root = math.sqrt(phi)
        new = z + (root - 1.0) * phi / slope  # f + f' step = 1
        if not new * nearest > 1.0:
            new = lowest_gaussian(arms, leader)
        moved = abs(new - z) * nearest / (z * nearest - 1.0)
        z = new
        if moved <= rules.tolerance:
            break
    for a in range(len(arms)):
        if a != leader:
            arms[a].memo = z * arms[a].memo - 1.0
    return z


@kernel
def lowest_gaussian(arms, leader):
    """The largest of the z that one rival alone would ask for: never above the solution."""
    z = 0.0
    for a in range(len(arms)):
        if a != leader:
            z = max(z, (1.0 + math.sqrt(arms[a].cost / arms[leader].cost)) / arms[a].memo)
    return z


@kernel
def halves(arms, leader, a, u, rules):
    """D_1, D_a and V(m) where the leader has u pulls for one of rival a."""
    best, rival = arms[leader].mean, arms[a].mean
    part = 1.0 / (1.0 + u)
    rest = u * part if u < 1e300 else 1.0
    gap = best - rival
    m = best * rest + rival * part
    complement = (1.0 - best) * rest + (1.0 - rival) * part
    d_1 = divergence(rules.family, rules.variance, best, gap * part, m, complement)
    d_a = divergence(rules.family, rules.variance, rival, -gap * rest, m, complement)
    return d_1, d_a, variance_at(rules.family, rules.variance, m, complement)


@kernel
def first_guess(arms, leader, rules):
    """A start near the solution: h_a is about 1/d(mu_1, mu_a) + u/d(mu_a, mu_1), its value at 0 and slope far out."""
    best, cost = arms[leader].mean, arms[leader].cost
    z = 0.0
    for a in range(len(arms)):
        if a != leader:
            mean = arms[a].mean
            gap = best - mean
            forth = divergence(rules.family, rules.variance, best, gap, mean, 1.0 - mean)
            back = divergence(rules.family, rules.variance, mean, -gap, best, 1.0 - best)
            if not back < np.inf:  # the best mean is at the edge of the family: take the slope at u = 1 instead
                d_1, d_a, _ = halves(arms, leader, a, 1.0, rules)
                back = (d_1 + d_a) * (d_1 + d_a) / d_a
            arms[a].memo_1, arms[a].memo_2 = 1.0 / forth, back
            z = max(z, 1.0 / forth + math.sqrt(arms[a].cost / cost) / back)
    for a in range(len(arms)):
        if a != leader:
            arms[a].memo = (z - arms[a].memo_1) * arms[a].memo_2
    return z


@kernel
def solve_jointly(arms, leader, z, rules):
    """Newton's method on (z, u) together, from z and arms[a].memo; 0 if it does not settle."""
    cost = arms[leader].cost
    for _ in range(JOINT_STEPS):
        phi = drift = slope = 0.0
        for a in range(len(arms)):
            if a != leader:
                u = arms[a].memo
                d_1, d_a, variance = halves(arms, leader, a, u, rules)
                whole = u * d_1 + d_a
                gap = arms[leader].mean - arms[a].mean
                part = gap / (1.0 + u)
                weight = arms[a].cost / cost
                steepness = -weight * part * part * whole / (variance * (1.0 + u) * d_a * d_a)
                per_z = whole * whole / d_a  # 1/h'
                missing = z * per_z - u * whole / d_a  # (z - h)/h'
                phi += weight * d_1 / d_a
                drift += steepness * missing
                slope += steepness * per_z
                arms[a].memo_1, arms[a].memo_2 = missing, per_z
        # f + f' dz = 1 with f = Phi^(-1/2)
        step = (2.0 * phi * (1.0 - math.sqrt(phi)) - drift) / slope
        if not abs(step) < np.inf:
            return 0.0
        moved = 0.0
        for a in range(len(arms)):
            if a != leader:
                change = arms[a].memo_1 + step * arms[a].memo_2
                u = arms[a].memo
                moved = max(moved, abs(change) / u)
                arms[a].memo = u + change if u + change > 0.125 * u else 0.125 * u
        z += step
        if not z > 0.0:
            return 0.0
        if moved <= rules.tolerance:
            return z
    return 0.0


@kernel
def solve_nested(arms, leader, rules):
    """The method that cannot fail: bisect on z, kept honest by Newton, and within it solve each h_a(u_a) = z.

    Phi falls from infinity to 0 as z grows from its least value, max 1/d(mu_1, mu_a); the unknown is how far above.
    The search starts at max h_a(1), which has the scale of z: far below, a u can be too small for a double.
    """
    least = above = 0.0
    for a in range(len(arms)):
        if a != leader:
            mean = arms[a].mean
            best = arms[leader].mean
            forth = divergence(rules.family, rules.variance, best, best - mean, mean, 1.0 - mean)
            least = max(least, 1.0 / forth)
            d_1, d_a, _ = halves(arms, leader, a, 1.0, rules)
            above = max(above, 1.0 / (d_1 + d_a))
            arms[a].memo = 1.0
    low, high = 0.0, np.inf
    for _ in range(400):
        phi, slope = nested_phi(arms, leader, least + above, rules)
        if not phi <= 1.0:  # or nan, where a u was too small
            low = above
        else:
            high = above
        new = above + 2.0 * phi * (1.0 - math.sqrt(phi)) / slope
        if not low < new < high:
            if high == np.inf:
                new = 4.0 * above
            elif low == 0.0:
                new = 0.25 * above
            else:
                new = math.sqrt(low) * math.sqrt(high)
        moved = abs(new - above) / above
        above = new
        if moved <= 1e-15 or not low < above < high:
            break
    nested_phi(arms, leader, least + above, rules)
    return least + above


@kernel
def nested_phi(arms, leader, z, rules):
    """Phi at z and its derivative, the u_a solved to the last digit (they are left in arms[a].memo)."""
    cost = arms[leader].cost
    phi = slope = 0.0
    for a in range(len(arms)):
        if a != leader:
            low, high = 0.0, np.inf
            u = arms[a].memo if arms[a].memo > 0.0 else 1.0
            for _ in range(400):
                d_1, d_a, _ = halves(arms, leader, a, u, rules)
                whole = u * d_1 + d_a
                missing = (z * whole - u) * whole / d_a  # (z - h)/h'
                if missing > 0.0:
                    low = u
                else:
                    high = u
                new = u + missing
                if not low < new < high:
                    if high == np.inf:
                        new = 4.0 * u
                    elif low == 0.0:
                        new = 0.25 * u
                    else:
                        new = math.sqrt(low) * math.sqrt(high)
                moved = abs(new - u) / u
                u = new
                if moved <= 1e-15 or not low < u < high:
                    break
            arms[a].memo = u
            d_1, d_a, variance = halves(arms, leader, a, u, rules)
            whole = u * d_1 + d_a
            part = (arms[leader].mean - arms[a].mean) / (1.0 + u)
            weight = arms[a].cost / cost
            phi += weight * d_1 / d_a
            slope -= weight * part * part * whole / (variance * (1.0 + u) * d_a * d_a) * whole * whole / d_a
    return phi, slope
