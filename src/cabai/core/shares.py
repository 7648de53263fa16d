"""The optimal cost shares w*.

Let 1 be the leader. For each rival a and u = N_1/N_a, the pooled mean is m = (u mu_1 + mu_a)/(u + 1); write
D_1 = d(mu_1, m), D_a = d(mu_a, m). The optimum makes all pairs equally hard and balances the cost of the two sides:

    h_a(u_a) = u_a / (u_a D_1 + D_a) = z   for every rival a      (z = 1/y*)
    Phi = sum over a of (c_a/c_1) D_1/D_a = 1

Both h_a (affine for gaussian: (1 + u) 2v/gap²) and F = Phi^(-1/2) as a function of z are nearly linear, so Newton's
method converges in a few steps. The unknowns (z, u_2, ..., u_K) interact only through z, so a joint step costs O(K).
D_1 and D_a need logarithms, but their derivatives need no more. So it is cheaper to correct each step for curvature
(Chebyshev's method, of third order) than to take another step. With W = u D_1 + D_a and s = gap² / (V(m) (1 + u)³),

    D_1' = -s,   D_a' = u s,   W' = D_1,   h' = D_a / W²,   (D_1/D_a)' = -s W / D_a²,
    h''/(2h') = -f,   f = e - k/2,   e = D_1/W,   k = u s/D_a.

Let Newton's step be dz for z and change_a for u_a. Its second-order error in h_a = z and in F = 1 is corrected by a
further step dz2 for z, and f_a change_a² + dz2/h' for u_a, where

    dz2 sum of w_a (D_1/D_a)'/h' = 3 Phi (1 - sqrt Phi)² + sum of w_a b_a change_a²,     w_a = c_a/c_1,
    b = -(D_1/D_a)''/2 + (D_1/D_a)' h''/(2h')
      = (D_1/D_a)' (3 (k - e) + (3 + V'(m) gap / ((1 + u) V(m))) / (1 + u)) / 2.

The remaining error, relative to u, is about the product of change and correction: at most twice that in 10^5 random
states in which the change was at most a quarter of u (and of z: after a near tie, z may be so far off that the changes
of u are only rounding errors).

`allocate` writes w* to arms[a].share and returns the hardness T* = z (c_1 + sum c_a/u_a). It keeps z in run.z and u in
arms[a].u and starts from them the next time, when 1 or 2 steps are enough.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cabai.core.state import Layout, Record, Records, record
from cabai.families import Family
from cabai.families.slots import divergence, variance_at, variance_slope
from cabai.support.specialise import apart, slot, specialised

NEAR = 0.25  # relative change of u and z up to which the error estimate holds
JOINT_STEPS = 12  # by then the joint method has converged, or it never will
# The fields that callers of `allocate` need, with their initial values.
ARM_MEMORY = {"u": 0.0}  # N_1/N_a at the last solution; 0 for its leader
RUN_MEMORY = {"z": 0.0}
ARM_SCRATCH = {"share": 0.0, "change": 0.0, "per_z": 0.0, "f": 0.0, "wb": 0.0}


def allocate(arms, run, rules):
    """Fill arms[a].share with the optimal cost shares for the arms' means and costs; return the hardness.

    If the best mean is tied, the hardness is infinite, and the tied arms get shares proportional to sqrt(cost).
    """
    lower_rivals(arms, run, rules)
    leader = arms[run.leader]
    tied = 0.0
    for a in range(len(arms)):
        arm = arms[a]
        arm.share = math.sqrt(arm.cost) if arm.mean == leader.mean else 0.0
        tied += arm.share
    if tied > leader.share:
        z, total = np.inf, tied
    else:
        z = solve_shares(arms, run, rules)
        run.z = z
        leader.u = 0.0
        leader.share = total = leader.cost
        for a in range(len(arms)):
            if a != run.leader:
                arm = arms[a]
                arm.share = arm.cost / arm.u
                total += arm.share
    for a in range(len(arms)):
        arms[a].share /= total
    restore_rivals(arms, run)
    return z * total


@slot
def lower_rivals(arms, run, rules):
    """Does nothing, unless `cabai.core.within` replaces it for an epsilon."""


@slot
def restore_rivals(arms, run):
    """Undo `lower_rivals`."""


@slot
def solve_shares(arms, run, rules):
    """Find arms[a].u for every rival; return z."""
    z = 0.0
    if run.z > 0.0 and arms[run.leader].u == 0.0:  # there is a previous solution, with the same leader
        z = solve_jointly(arms, run, rules, run.z)
    if z == 0.0:
        z = solve_jointly(arms, run, rules, first_guess(arms, run, rules))
    if z == 0.0:
        z = solve_nested(arms, run, rules)
    return z


def halves(leader, arm, u, rules):
    """D_1, D_a, m and 1 - m if the leader has u pulls for each pull of a rival."""
    part = 1.0 / (1.0 + u)
    rest = u * part if u < 1e300 else 1.0
    gap = leader.mean - arm.mean
    m = leader.mean * rest + arm.mean * part
    complement = (1.0 - leader.mean) * rest + (1.0 - arm.mean) * part
    d_1 = divergence(rules, leader.mean, gap * part, m, complement)
    d_a = divergence(rules, arm.mean, -gap * rest, m, complement)
    return d_1, d_a, m, complement


@apart
def rare_halves(leader, arm, u, rules):
    """`halves` for functions that are rarely called. Inlining it there would dominate the compile time."""
    return halves(leader, arm, u, rules)


@apart
def first_guess(arms, run, rules):
    """A start near the solution: h_a is about 1/d(mu_1, mu_a) + u/d(mu_a, mu_1), from its value at 0 and its slope at
    infinity."""
    leader = arms[run.leader]
    z = 0.0
    for a in range(len(arms)):
        if a != run.leader:
            arm = arms[a]
            forth, _, _, _ = rare_halves(leader, arm, 0.0, rules)  # at u = 0, D_1 = d(mu_1, mu_a)
            _, back, _, _ = rare_halves(leader, arm, np.inf, rules)  # and at infinity, D_a = d(mu_a, mu_1)
            if not back < np.inf:  # the best mean is at the edge of the family: take the slope at u = 1 instead
                d_1, d_a, _, _ = rare_halves(leader, arm, 1.0, rules)
                back = (d_1 + d_a) * (d_1 + d_a) / d_a
            arm.u, arm.per_z = 1.0 / forth, back  # h_a(0), until the end, and 1/h' far out
            z = max(z, arm.u + math.sqrt(arm.cost / leader.cost) / back)
    for a in range(len(arms)):
        if a != run.leader:
            arms[a].u = (z - arms[a].u) * arms[a].per_z
    return z


@apart
def solve_jointly(arms, run, rules, z):
    """Chebyshev's method on (z, u) jointly, starting from z and arms[a].u; 0 if it does not converge."""
    leader = arms[run.leader]
    per_cost = 1.0 / leader.cost
    for _ in range(JOINT_STEPS):
        phi = drift = slope = 0.0
        for a in range(len(arms)):
            if a != run.leader:
                arm = arms[a]
                u = arm.u
                d_1, d_a, m, complement = halves(leader, arm, u, rules)
                part, gap = 1.0 / (1.0 + u), leader.mean - arm.mean
                slope_m = gap * part * part / variance_at(rules, m, complement)  # m'/V(m)
                s = gap * part * slope_m
                W, per_d_a = u * d_1 + d_a, 1.0 / d_a
                e, k = d_1 / W, u * s * per_d_a
                w = arm.cost * per_cost
                fall = -w * s * W * per_d_a * per_d_a  # w (D_1/D_a)'
                per_z = W * W * per_d_a  # 1/h'
                missing = (z * W - u) * W * per_d_a  # (z - h)/h'
                phi += w * d_1 * per_d_a
                drift += fall * missing
                slope += fall * per_z
                arm.change, arm.per_z, arm.f = missing, per_z, e - 0.5 * k
                arm.wb = 0.5 * fall * (3.0 * (k - e + part) + variance_slope(rules, m) * slope_m)
        missed, per_slope = 1.0 - math.sqrt(phi), 1.0 / slope
        step = (2.0 * phi * missed - drift) * per_slope  # F + F' dz = 1 with F = Phi^(-1/2)
        if not abs(step) < np.inf:
            return 0.0
        second = 3.0 * phi * missed * missed
        for a in range(len(arms)):
            if a != run.leader:
                arm = arms[a]
                arm.change += step * arm.per_z  # Newton's change of u
                second += arm.wb * arm.change * arm.change
        further = second * per_slope
        moved = corrected = 0.0
        for a in range(len(arms)):
            if a != run.leader:
                arm = arms[a]
                u, change = arm.u, arm.change
                correction = arm.f * change * change + further * arm.per_z
                moved = max(moved, abs(change) / u)
                corrected = max(corrected, abs(correction) / u)
                arm.u = max(u + change + correction, 0.125 * u)
        z += step + further
        if not z > 0.0:
            return 0.0
        if moved * corrected <= rules.tolerance and moved <= NEAR and abs(step) <= NEAR * z:
            return z
    return 0.0


@apart
def solve_nested(arms, run, rules):
    """A slow method that always converges: bisect z and, for each z, every u_a.

    Phi falls from infinity to 0 as z grows from its smallest value, max 1/d(mu_1, mu_a); the unknown is z minus that.
    Bisection is on a logarithmic scale, down to the last digit.
    """
    leader = arms[run.leader]
    least = above = 0.0
    for a in range(len(arms)):
        if a != run.leader:
            forth, _, _, _ = rare_halves(leader, arms[a], 0.0, rules)
            d_1, d_a, _, _ = rare_halves(leader, arms[a], 1.0, rules)
            least = max(least, 1.0 / forth)
            above = max(above, 1.0 / (d_1 + d_a))  # h_a(1), which has the scale of z
    low, high = 0.0, np.inf
    for _ in range(3000):
        phi = 0.0
        for a in range(len(arms)):
            if a != run.leader:
                arm = arms[a]
                arm.u = solve_rival(leader, arm, least + above, rules)
                d_1, d_a, _, _ = rare_halves(leader, arm, arm.u, rules)
                phi += arm.cost / leader.cost * d_1 / d_a
        if not phi <= 1.0:  # or nan, if a u was too small
            low = above
        else:
            high = above
        above = between(low, high, above)
        if not low < above < high:
            break
    return least + above


@apart
def solve_rival(leader, arm, z, rules):
    """The u with h_a(u) = z."""
    low, high, u = 0.0, np.inf, 1.0
    for _ in range(3000):
        d_1, d_a, _, _ = rare_halves(leader, arm, u, rules)
        if z * (u * d_1 + d_a) > u:  # h < z
            low = u
        else:
            high = u
        u = between(low, high, u)
        if not low < u < high:
            break
    return u


def between(low, high, last):
    """The middle of a bracket on a logarithmic scale; four times further out if the bracket has only one end."""
    if high == np.inf:
        return 4.0 * last
    if low == 0.0:
        return 0.25 * last
    return math.sqrt(low) * math.sqrt(high)


def solve(
    family: Family, means: NDArray[np.float64], costs: NDArray[np.float64], best: int, tolerance: float = 1e-16
) -> tuple[float, NDArray[np.float64]]:
    """The hardness T* and the optimal cost shares w* for known means and costs; not finite if these are too extreme."""
    layout = Layout.of(({}, family.parameters), (ARM_MEMORY | ARM_SCRATCH, RUN_MEMORY, {}))
    arms, run = layout.start(len(means), ARM_MEMORY | ARM_SCRATCH, RUN_MEMORY)
    rules = record(layout.rules)
    for name, value in (family.parameters | {"tolerance": tolerance}).items():
        rules[name] = value
    arms["mean"], arms["cost"], run["leader"] = means, costs, best
    with np.errstate(all="ignore"):
        hardness = specialised(allocate, family.binding)(Records(arms), Record(run), Record(rules))
    return float(hardness), arms["share"].copy()
