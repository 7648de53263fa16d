// The compiled limit: cabai's simulation loop, policies and random streams in plain C++, for bench_engine.py.
//
// Same formulas, in the same order, as src/cabai/kernels, src/cabai/policies and src/cabai/simulation, so that
// decisions can be compared trajectory by trajectory; only what a benchmark does not need is left out (thresholds other
// than `paper`, random costs, limits other than pulls). Family and policy are template parameters, so that everything
// can be inlined.

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace {

enum Family { GAUSSIAN, BERNOULLI, POISSON };
enum Policy { CO, CTAS, TAS, DLUCB, UNIFORM };

const double INF = std::numeric_limits<double>::infinity();

inline double larger(double x, double y) { return y > x ? y : x; }

struct Arm {
    int64_t pulls;
    double rewards, costs, mean, cost;
    bool in_play;
    double share, memo, memo_1, memo_2, bend, twist;
    double true_mean, true_cost, spread;
    uint64_t stream;
};

struct Rules {
    double variance, level, exploration, slack, tolerance;
    const double *edge, *height;  // the ziggurat
    double tail;
};

// --- random numbers -----------------------------------------------------------------------------------------------

const uint64_t GOLDEN = 0x9E3779B97F4A7C15;

inline uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

inline double unit(uint64_t bits) { return double(bits >> 11) * (1.0 / 9007199254740992.0); }

inline double next_unit(uint64_t &stream) { return unit(mix(stream += GOLDEN)); }

inline double normal(uint64_t &stream, const Rules &rules) {
    for (;;) {
        const uint64_t bits = mix(stream += GOLDEN);
        const int layer = bits & 0xFF;
        const double sign = 1.0 - 2.0 * double((bits >> 8) & 1);
        double x = unit(bits) * rules.edge[layer];
        if (x < rules.edge[layer + 1]) return sign * x;
        double u = next_unit(stream);
        if (layer == 0) {
            for (;; u = next_unit(stream)) {
                const double v = next_unit(stream);
                x = -std::log(1.0 - u) / rules.tail;
                if (-2.0 * std::log(1.0 - v) > x * x) return sign * (rules.tail + x);
            }
        } else if (rules.height[layer] + u * (rules.height[layer + 1] - rules.height[layer]) < std::exp(-0.5 * x * x)) {
            return sign * x;
        }
    }
}

template <Family F> inline double draw(Arm &arm, const Rules &rules) {
    if (F == GAUSSIAN) return arm.true_mean + arm.spread * normal(arm.stream, rules);
    double u = next_unit(arm.stream);
    if (F == BERNOULLI) return u < arm.true_mean ? 1.0 : 0.0;
    double count = 0.0, probability = arm.spread;
    while (u >= probability && count < 200.0) {
        u -= probability;
        count += 1.0;
        probability *= arm.true_mean / count;
    }
    return count;
}

// --- divergences --------------------------------------------------------------------------------------------------

inline double psi(double u) {
    if (std::fabs(u) < 0.03)
        return u * u * (1. / 2 - u * (1. / 6 - u * (1. / 12 - u * (1. / 20 - u * (1. / 30 - u * (
            1. / 42 - u * (1. / 56 - u * (1. / 72 - u * (1. / 90 - u / 110)))))))));
    if (u <= -1.0) return 1.0;
    return (1.0 + u) * std::log(1.0 + u) - u;
}

template <Family F> inline double divergence(double variance, double difference, double q, double complement) {
    if (F == GAUSSIAN) return difference * difference / (2.0 * variance);
    if (difference == 0.0) return 0.0;
    if (F == BERNOULLI) {
        const double above = q > 0.0 ? q * psi(difference / q) : INF;
        const double below = complement > 0.0 ? complement * psi(-difference / complement) : INF;
        return above + below;
    }
    return q > 0.0 ? q * psi(difference / q) : INF;
}

template <Family F> inline double variance_at(double variance, double q, double complement) {
    return F == GAUSSIAN ? variance : F == BERNOULLI ? q * complement : q;
}

template <Family F> inline double variance_slope(double q) {
    return F == GAUSSIAN ? 0.0 : F == BERNOULLI ? 1.0 - 2.0 * q : 1.0;
}

template <Family F> double end_of_interval(double mean, double level, double side) {
    if (level <= 0.0) return mean;
    const double goal = std::sqrt(2.0 * level);
    double near = 0.0, far = side < 0.0 ? mean : F == BERNOULLI ? 1.0 - mean : INF;
    double distance = goal * std::sqrt(variance_at<F>(1.0, mean, 1.0 - mean));
    if (mean <= 0.0 || !(0.0 < distance && distance < far)) distance = far < INF ? 0.5 * far : mean + level + goal;
    for (int i = 0; i < 200; i++) {
        const double q = mean + side * distance;
        const double root = std::sqrt(2.0 * divergence<F>(1.0, -side * distance, q, 1.0 - q));
        (root < goal ? near : far) = distance;
        const double step = (goal - root) * root * variance_at<F>(1.0, q, 1.0 - q) / distance;
        double next = distance + step;
        if (near < next && next < far) {
            if (std::fabs(step) <= 1e-8 * distance) return mean + side * next;
        } else {
            next = far < INF ? 0.5 * (near + far) : 2.0 * distance;
            if (!(near < next && next < far)) return mean + side * next;
        }
        distance = next;
    }
    return mean + side * distance;
}

// The end of the interval below a mean, where it is more than 8 times smaller.
template <Family F> double far_end(double mean, double level) {
    double s = std::log(8.0);
    for (int i = 0; i < 40; i++) {
        const double before = s;
        if (F == POISSON)
            s = level / mean - std::expm1(-s);
        else if (mean < 1.0)
            s = (level - (1.0 - mean) * (std::log1p(-mean) - std::log1p(-mean * std::exp(-s)))) / mean;
        else
            s = level;
        if (std::fabs(s - before) <= 1e-15 * s) break;
    }
    return mean * std::exp(-s);
}

template <Family F> inline double upper_end(double variance, double mean, double level) {
    if (F == GAUSSIAN) return mean + std::sqrt(2.0 * variance * level);
    if (F == BERNOULLI) {
        if (mean >= 1.0) return 1.0;
        const double far = (1.0 - mean) / 8.0;
        if (level > divergence<F>(variance, mean - 1.0 + far, 1.0 - far, far))
            return 1.0 - far_end<F>(1.0 - mean, level);
    }
    return end_of_interval<F>(mean, level, 1.0);
}

template <Family F> inline double lower_end(double variance, double mean, double level) {
    if (F == GAUSSIAN) return mean - std::sqrt(2.0 * variance * level);
    if (mean <= 0.0) return 0.0;
    const double far = mean / 8.0;
    if (level > divergence<F>(variance, mean - far, far, 1.0 - far)) return far_end<F>(mean, level);
    return end_of_interval<F>(mean, level, -1.0);
}

// --- one trajectory -----------------------------------------------------------------------------------------------

template <Family F, Policy P> struct Trajectory {
    static const bool cost_blind = P == TAS || P == DLUCB || P == UNIFORM;
    const int K;
    const Rules &rules;
    Arm *const arms;
    int64_t t;
    double spent, paid, z;
    int last, leader, left, rival, note;

    Trajectory(std::vector<Arm> &state, const Rules &given) : K(int(state.size())), rules(given), arms(state.data()) {}

    void begin(uint64_t seed, uint64_t trajectory) {
        uint64_t start = mix(mix(mix(seed + GOLDEN) + trajectory * GOLDEN) + GOLDEN);
        for (int a = 0; a < K; a++) {
            Arm &arm = arms[a];
            arm.stream = mix(start += GOLDEN);
            start += GOLDEN;  // the stream of costs
            arm.pulls = 0;
            arm.rewards = arm.costs = arm.memo = 0.0;
            arm.in_play = true;
        }
        t = 0, spent = paid = z = 0.0, last = leader = rival = note = -1, left = K;
        for (int a = 0; a < K; a++) pull(a);
    }

    void pull(int a) {
        Arm &arm = arms[a];
        const double charged = cost_blind ? 1.0 : arm.true_cost;
        arm.pulls++;
        arm.rewards += draw<F>(arm, rules);
        arm.costs += charged;
        arm.mean = arm.rewards / double(arm.pulls);
        arm.cost = arm.costs / double(arm.pulls);
        t++, spent += charged, paid += arm.true_cost, last = a;
        find_leader(a);
    }

    void find_leader(int changed) {
        const double mean = arms[changed].mean;
        if (leader < 0) {
            leader = changed;
        } else if (changed != leader) {
            if (mean > arms[leader].mean || (mean == arms[leader].mean && changed < leader)) leader = changed;
        } else {
            leader = -1;
            for (int a = 0; a < K; a++) {
                const bool known = arms[a].in_play && arms[a].pulls > 0;
                if (known && (leader < 0 || arms[a].mean > arms[leader].mean)) leader = a;
            }
        }
    }

    double required() const { return rules.level + std::log(double(t)); }

    bool beats(const Arm &b, const Arm &a) const {
        const double z = evidence(b, a);
        return z > rules.level && z > required();
    }

    double evidence(const Arm &a, const Arm &b) const {
        const double gap = a.mean - b.mean;
        if (!(gap > 0.0)) return 0.0;
        const double n_a = double(a.pulls), n_b = double(b.pulls), n = n_a + n_b;
        if (F == GAUSSIAN) return (n_a * gap) * (n_b * gap) / (2.0 * rules.variance * n);
        const double m = (n_a * a.mean + n_b * b.mean) / n;
        const double complement = (n_a * (1.0 - a.mean) + n_b * (1.0 - b.mean)) / n;
        return n_a * divergence<F>(rules.variance, gap * (n_b / n), m, complement)
             + n_b * divergence<F>(rules.variance, -gap * (n_a / n), m, complement);
    }

    // CO

    bool stop_co() {
        int first = 0, end = K;
        if (leader == note && last != leader) first = last, end = last + 1;
        note = leader;
        for (int a = first; a < end; a++)
            if (a != leader && arms[a].in_play && beats(arms[leader], arms[a])) {
                arms[a].in_play = false;
                left--;
            }
        return left == 1;
    }

    int choose_co() const {
        int chosen = -1;
        double smallest = INF;
        for (int a = 0; a < K; a++)
            if (arms[a].in_play) {
                const double weight = arms[a].costs * double(arms[a].pulls);
                if (weight < smallest) chosen = a, smallest = weight;
            }
        return chosen;
    }

    // CTAS and TAS

    bool stop_by_evidence() {
        if (rival >= 0 && rival != leader && !beats(arms[leader], arms[rival])) return false;
        for (int a = 0; a < K; a++)
            if (a != leader && !beats(arms[leader], arms[a])) {
                rival = a;
                return false;
            }
        return true;
    }

    int choose_tracking() {
        int least = 0;
        for (int a = 0; a < K; a++)
            if (arms[a].pulls < arms[least].pulls) least = a;
        if (double(arms[least].pulls) < rules.exploration * std::sqrt(double(t)) - rules.slack) return least;
        allocate();
        int chosen = -1;
        double largest = -INF;
        for (int a = 0; a < K; a++) {
            const double lag = spent * arms[a].share - arms[a].costs;
            if (lag > largest) chosen = a, largest = lag;
        }
        return chosen;
    }

    void allocate() {
        const double best = arms[leader].mean;
        for (int a = 0; a < K; a++)
            if (a != leader && arms[a].mean == best) return share_among_tied();
        if (F == GAUSSIAN) {
            z = solve_gaussian();
        } else {
            double solved = z > 0.0 && arms[leader].memo == 0.0 ? solve_jointly(z) : 0.0;
            if (solved == 0.0) solved = solve_jointly(first_guess());
            z = solved == 0.0 ? solve_nested() : solved;
        }
        arms[leader].memo = 0.0;
        double total = arms[leader].cost;
        for (int a = 0; a < K; a++)
            if (a != leader) total += arms[a].share = arms[a].cost / arms[a].memo;
        arms[leader].share = arms[leader].cost;
        for (int a = 0; a < K; a++) arms[a].share /= total;
    }

    void share_among_tied() {
        const double best = arms[leader].mean;
        double total = 0.0;
        for (int a = 0; a < K; a++) total += arms[a].share = arms[a].mean == best ? std::sqrt(arms[a].cost) : 0.0;
        for (int a = 0; a < K; a++) arms[a].share /= total;
    }

    double solve_gaussian() {
        const double best = arms[leader].mean, half = 0.5 / rules.variance, per_cost = 1.0 / arms[leader].cost;
        double nearest = INF, z = this->z;
        for (int a = 0; a < K; a++)
            if (a != leader) {
                const double gap = best - arms[a].mean;
                arms[a].memo = gap * gap * half;
                nearest = arms[a].memo < nearest ? arms[a].memo : nearest;
            }
        for (int i = 0; i < 100; i++) {
            if (!(z * nearest > 1.0)) z = lowest_gaussian(per_cost);
            double phi = 0.0, slope = 0.0;
            for (int a = 0; a < K; a++)
                if (a != leader) {
                    const double x = 1.0 / (z * arms[a].memo - 1.0), term = arms[a].cost * per_cost * x * x;
                    phi += term;
                    slope += term * x * arms[a].memo;
                }
            const double step = (std::sqrt(phi) - 1.0) * phi / slope;
            const double moved = std::fabs(step) * nearest / (z * nearest - 1.0);
            z += step;
            if (moved * moved <= rules.tolerance && z * nearest > 1.0) break;
        }
        for (int a = 0; a < K; a++)
            if (a != leader) arms[a].memo = z * arms[a].memo - 1.0;
        return z;
    }

    double lowest_gaussian(double per_cost) const {
        double z = 0.0;
        for (int a = 0; a < K; a++)
            if (a != leader) z = larger(z, (1.0 + std::sqrt(arms[a].cost * per_cost)) / arms[a].memo);
        return z;
    }

    struct Halves {
        double d_1, d_a, m, complement;
    };

    Halves halves(const Arm &a, double u) const {
        const double best = arms[leader].mean, gap = best - a.mean;
        const double part = 1.0 / (1.0 + u), rest = u < 1e300 ? u * part : 1.0;
        const double m = best * rest + a.mean * part, complement = (1.0 - best) * rest + (1.0 - a.mean) * part;
        return {divergence<F>(rules.variance, gap * part, m, complement),
                divergence<F>(rules.variance, -gap * rest, m, complement), m, complement};
    }

    double first_guess() {
        const double best = arms[leader].mean, cost = arms[leader].cost;
        double z = 0.0;
        for (int a = 0; a < K; a++)
            if (a != leader) {
                const double mean = arms[a].mean, gap = best - mean;
                const double forth = divergence<F>(rules.variance, gap, mean, 1.0 - mean);
                double back = divergence<F>(rules.variance, -gap, best, 1.0 - best);
                if (!(back < INF)) {
                    const Halves d = halves(arms[a], 1.0);
                    back = (d.d_1 + d.d_a) * (d.d_1 + d.d_a) / d.d_a;
                }
                arms[a].memo_1 = 1.0 / forth, arms[a].memo_2 = back;
                z = larger(z, 1.0 / forth + std::sqrt(arms[a].cost / cost) / back);
            }
        for (int a = 0; a < K; a++)
            if (a != leader) arms[a].memo = (z - arms[a].memo_1) * arms[a].memo_2;
        return z;
    }

    double solve_jointly(double z) {
        const double per_cost = 1.0 / arms[leader].cost;
        for (int i = 0; i < 12; i++) {
            double phi = 0.0, drift = 0.0, slope = 0.0;
            for (int a = 0; a < K; a++)
                if (a != leader) {
                    Arm &arm = arms[a];
                    const double u = arm.memo;
                    const Halves d = halves(arm, u);
                    const double part = 1.0 / (1.0 + u), gap = arms[leader].mean - arm.mean;
                    const double turn = gap * part * part / variance_at<F>(rules.variance, d.m, d.complement);
                    const double s = gap * part * turn;
                    const double whole = u * d.d_1 + d.d_a, per_d_a = 1.0 / d.d_a;
                    const double e = d.d_1 / whole, k = u * s * per_d_a;
                    const double weight = arm.cost * per_cost;
                    const double steepness = -weight * s * whole * per_d_a * per_d_a;
                    const double per_z = whole * whole * per_d_a, missing = (z * whole - u) * whole * per_d_a;
                    phi += weight * d.d_1 * per_d_a;
                    drift += steepness * missing;
                    slope += steepness * per_z;
                    arm.memo_1 = missing, arm.memo_2 = per_z, arm.bend = e - 0.5 * k;
                    arm.twist = 0.5 * steepness * (3.0 * (k - e + part) + variance_slope<F>(d.m) * turn);
                }
            const double missed = 1.0 - std::sqrt(phi), per_slope = 1.0 / slope;
            const double step = (2.0 * phi * missed - drift) * per_slope;
            if (!(std::fabs(step) < INF)) return 0.0;
            double second = 3.0 * phi * missed * missed;
            for (int a = 0; a < K; a++)
                if (a != leader) {
                    arms[a].memo_1 += step * arms[a].memo_2;
                    second += arms[a].twist * arms[a].memo_1 * arms[a].memo_1;
                }
            const double further = second * per_slope;
            double moved = 0.0, corrected = 0.0;
            for (int a = 0; a < K; a++)
                if (a != leader) {
                    Arm &arm = arms[a];
                    const double u = arm.memo, change = arm.memo_1;
                    const double correction = arm.bend * change * change + further * arm.memo_2;
                    moved = larger(moved, std::fabs(change) / u);
                    corrected = larger(corrected, std::fabs(correction) / u);
                    arm.memo = larger(u + change + correction, 0.125 * u);
                }
            z += step + further;
            if (!(z > 0.0)) return 0.0;
            if (moved * corrected <= rules.tolerance && moved <= 0.25 && std::fabs(step) <= 0.25 * z) return z;
        }
        return 0.0;
    }

    static double between(double low, double high, double last) {
        return high == INF ? 4.0 * last : low == 0.0 ? 0.25 * last : std::sqrt(low) * std::sqrt(high);
    }

    double solve_rival(const Arm &arm, double z) const {
        double low = 0.0, high = INF, u = 1.0;
        for (int i = 0; i < 3000; i++) {
            const Halves d = halves(arm, u);
            (z * (u * d.d_1 + d.d_a) > u ? low : high) = u;
            u = between(low, high, u);
            if (!(low < u && u < high)) break;
        }
        return u;
    }

    double solve_nested() {
        double least = 0.0, above = 0.0;
        for (int a = 0; a < K; a++)
            if (a != leader) {
                const Halves one = halves(arms[a], 1.0);
                least = larger(least, 1.0 / halves(arms[a], 0.0).d_1);
                above = larger(above, 1.0 / (one.d_1 + one.d_a));
            }
        double low = 0.0, high = INF;
        for (int i = 0; i < 3000; i++) {
            double phi = 0.0;
            for (int a = 0; a < K; a++)
                if (a != leader) {
                    arms[a].memo = solve_rival(arms[a], least + above);
                    const Halves d = halves(arms[a], arms[a].memo);
                    phi += arms[a].cost / arms[leader].cost * d.d_1 / d.d_a;
                }
            (!(phi <= 1.0) ? low : high) = above;
            above = between(low, high, above);
            if (!(low < above && above < high)) break;
        }
        return least + above;
    }

    // d-LUCB

    bool stop_d_lucb() {
        if (note >= 0) return false;
        const double beta = required();
        double highest = -INF;
        for (int a = 0; a < K; a++)
            if (a != leader) {
                const double end = upper_end<F>(rules.variance, arms[a].mean, beta / double(arms[a].pulls));
                if (end > highest) rival = a, highest = end;
            }
        const Arm &best = arms[leader];
        return best.mean > highest && lower_end<F>(rules.variance, best.mean, beta / double(best.pulls)) > highest;
    }

    int choose_d_lucb() {
        if (note >= 0) {
            const int second = note;
            note = -1;
            return second;
        }
        note = rival;
        return leader;
    }

    bool stop() {
        if (P == CO) return stop_co();
        if (P == DLUCB) return stop_d_lucb();
        return stop_by_evidence();
    }

    int choose() {
        if (P == CO) return choose_co();
        if (P == DLUCB) return choose_d_lucb();
        if (P == UNIFORM) return int(t % K);
        return choose_tracking();
    }
};

struct Results {
    int64_t *decisions;
    double *costs;
    int64_t *steps;
};

template <Family F, Policy P>
void run(std::vector<Arm> &arms, const Rules &rules, uint64_t seed, int64_t trajectories, int64_t max_pulls,
         const Results &to) {
    Trajectory<F, P> run(arms, rules);
    for (int64_t i = 0; i < trajectories; i++) {
        run.begin(seed, uint64_t(i));
        bool stopped;
        while (!(stopped = run.stop()) && run.t < max_pulls) run.pull(run.choose());
        to.decisions[i] = stopped ? run.leader : -1;
        to.costs[i] = run.paid;
        to.steps[i] = run.t;
    }
}

template <Family F, typename... Args> void run_family(int policy, Args &...args) {
    switch (policy) {
    case CO: return run<F, CO>(args...);
    case CTAS: return run<F, CTAS>(args...);
    case TAS: return run<F, TAS>(args...);
    case DLUCB: return run<F, DLUCB>(args...);
    default: return run<F, UNIFORM>(args...);
    }
}

}  // namespace

extern "C" void simulate(int family, int policy, int64_t K, const double *means, const double *true_costs,
                         const double *spreads, const double *numbers, const double *edge, const double *height,
                         uint64_t seed, int64_t trajectories, int64_t max_pulls, int64_t *decisions, double *costs,
                         int64_t *steps) {
    std::vector<Arm> arms(K);
    for (int64_t a = 0; a < K; a++) {
        arms[a].true_mean = means[a];
        arms[a].true_cost = true_costs[a];
        arms[a].spread = spreads[a];
    }
    const Rules rules{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], edge, height, edge[1]};
    const Results to{decisions, costs, steps};
    switch (family) {
    case GAUSSIAN: return run_family<GAUSSIAN>(policy, arms, rules, seed, trajectories, max_pulls, to);
    case BERNOULLI: return run_family<BERNOULLI>(policy, arms, rules, seed, trajectories, max_pulls, to);
    default: return run_family<POISSON>(policy, arms, rules, seed, trajectories, max_pulls, to);
    }
}
