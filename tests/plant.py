"""Plant small faults, one at a time, and see whether the tests notice: python tests/plant.py [--only WORDS] [--list]

Each fault is a file of src/cabai, a text that occurs there once, what to put in its place, and the tests that should
fail: files, or one test of a file. A fault is planted in a copy of this clone, which is then tested; the clone itself
stays as it is. Printed are the CPU time and the first test that failed. A test that takes too long has failed too.
The exit status is 1 if a fault was missed, or no longer applies since the source has changed: then change it too.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
LIMIT = 900  # seconds for the tests of one fault: the machine may be busy


class Fault(NamedTuple):
    file: str
    old: str
    new: str
    tests: str

    @property
    def applies(self) -> bool:
        path = ROOT / "src" / "cabai" / self.file
        return path.exists() and path.read_text(encoding="utf-8").count(self.old) == 1


FAULTS = [Fault(*each) for each in [
    # families: what a reward is
    ("families/bernoulli.py", "psi(-difference / complement)", "psi(difference / complement)",
     "test_families::test_divergence_is_accurate_to_1e_12"),
    ("families/bernoulli.py", "return 1.0 - 2.0 * q", "return 2.0 * q - 1.0",
     "test_families::test_the_slope_of_the_variance_is_its_derivative"),
    ("families/bernoulli.py", "1.0 if uniform(arm) < arm.mean else 0.0", "1.0 if uniform(arm) > arm.mean else 0.0",
     "test_sampling::test_rewards_follow_their_law[bernoulli-0.3]"),
    ("families/poisson.py", "return q * psi(difference / q)", "return psi(difference / q)",
     "test_families::test_divergence_is_accurate_to_1e_12"),
    ("families/poisson.py", "return gamma(record, 1.0 + total) / n", "return gamma(record, 0.5 + total) / n",
     "test_field::test_means_are_drawn_from_their_posterior"),
    ("families/mirrored.py", "return -draw_mean(rules, record, n, -total)",
     "return -draw_mean(rules, record, n, total)", "test_field::test_means_are_drawn_from_their_posterior"),
    ("families/mirrored.py", "return remainder(rules, n, -total)", "return remainder(rules, n, total)",
     "test_families::test_prices_and_evidence_are_the_familys_with_the_arms_swapped"),
    ("families/gaussian.py", "return mean - math.sqrt(2.0 * rules.variance * level)",
     "return mean - math.sqrt(rules.variance * level)",
     "test_families::test_interval_ends_are_where_the_divergence_is_the_level"),
    ("families/gaussian.py", "return arm.mean + arm.spread * normal(arm)", "return arm.mean + normal(arm)",
     "test_sampling::test_rewards_follow_their_law[gaussian(variance=0.04)--3.0]"),
    ("families/gaussian.py", "(2.0 * rules.variance * (n_a + n_b))", "(rules.variance * (n_a + n_b))",
     "test_evidence::test_evidence_is_exact_on_random_data_of_one_to_a_billion_pulls"),
    ("families/gaussian.py", "leader.pulls * (leader.cost / challenger.cost)",
     "leader.pulls * (challenger.cost / leader.cost)",
     "test_exactness::test_top_two_makes_the_same_pulls_with_many_arms_at_the_edges[gaussian-top-two]"),
    ("families/gaussian.py", "n_a * (mean_a - epsilon)", "n_a * (mean_a + epsilon)",
     "test_epsilon::test_evidence_within_epsilon_is_the_least_of_all"),
    # core: evidence, leader, stopping, shares
    ("core/evidence.py", "to_a, to_b = gap * (n_b / n), -gap * (n_a / n)",
     "to_a, to_b = gap * (n_a / n), -gap * (n_b / n)",
     "test_evidence::test_evidence_is_exact_on_random_data_of_one_to_a_billion_pulls"),
    ("core/evidence.py", "if not a.tested_mean > b.tested_mean:", "if a.tested_mean == b.tested_mean:",
     "test_evidence::test_evidence_is_exact_on_random_data_of_one_to_a_billion_pulls"),
    ("core/evidence.py", "(part_b / V_b + part_a / V_a))", "0.5 * (part_b / V_b + part_a / V_a))",
     "test_evidence::test_the_bounds_without_logarithms_hold_in_exact_arithmetic"),
    ("core/evidence.py", "TWO_THIRDS = 2.0 / 3.0", "TWO_THIRDS = 1.0 / 3.0",
     "test_evidence::test_the_bounds_without_logarithms_hold_in_exact_arithmetic"),
    ("core/evidence.py", "(1.0 - b.tested_mean) + to_b)", "1.0 - m)",
     "test_evidence::test_the_bounds_without_logarithms_hold_in_exact_arithmetic"),
    ("core/observe.py", "arm.mean = arm.rewards / arm.pulls", "arm.mean = arm.rewards / (arm.pulls + 1)",
     "test_exactness::test_same_pulls_as_the_reference[co-gaussian]"),
    ("core/observe.py", "charged\n    run.spent += cost\n", "charged\n    run.spent += charged\n",
     "test_exactness::test_same_pulls_as_the_reference[racing-bernoulli]"),
    ("core/observe.py", "if mean > best or (mean == best and changed < run.leader):", "if mean >= best:",
     "test_evidence::test_observing_pull_by_pull_keeps_the_state_that_statistics_has_from_the_sums"),
    ("core/observe.py", "    elif not mean > run.second:", "    elif mean < run.second - 1.0:",
     "test_evidence::test_observing_pull_by_pull_keeps_the_state_that_statistics_has_from_the_sums"),
    ("core/stopping.py", "return z > rules.level and z > required(t, rules)", "return z > rules.level",
     "test_thresholds::test_b_beats_a_exactly_when_the_reference_says_so"),
    ("core/stopping.py", "evidence(rules, b, a) - b.price - a.price - required(t, rules)",
     "evidence(rules, b, a) - b.price - required(t, rules)",
     "test_study_status::test_evidence_and_what_is_required_of_it_are_those_of_the_closest_rival"),
    ("core/stopping.py",
     "        if a != run.leader and not is_settled(rules, run.t, leader, arms[a]):\n            run.rival = a",
     "        if a > run.leader and not is_settled(rules, run.t, leader, arms[a]):\n            run.rival = a",
     "test_exactness::test_same_pulls_as_the_reference[uniform-poisson]"),
    ("core/shares.py", "arm.share = math.sqrt(arm.cost) if arm.mean == leader.mean else 0.0",
     "arm.share = arm.cost if arm.mean == leader.mean else 0.0",
     "test_bound::test_arms_tied_for_the_best_share_by_the_root_of_their_costs"),
    ("core/shares.py", "arm.share = arm.cost / arm.u", "arm.share = 1.0 / arm.u",
     "test_bound::test_hard_means_and_costs_agree_with_direct_optimisation"),
    # the lower bound
    ("bound.py", "(1 - 2 * delta) * (math.log1p(-delta)", "(1 - delta) * (math.log1p(-delta)",
     "test_bound::test_the_least_cost_is_hardness_times_kl"),
    ("bound.py", "if chance >= 0.5:", "if chance > 0.5:", "test_bound::test_what_has_no_bound_is_refused"),
    ("bound.py", "means, means - slack)", "means, means + slack)",
     "test_bound::test_with_an_epsilon_the_best_arm_is_told_from_arms_that_are_better_by_epsilon"),
    # thresholds: when one arm beats another
    ("thresholds/evalue.py", "math.log((arms - 1) / delta)", "math.log(1 / delta)",
     "test_thresholds::test_b_beats_a_exactly_when_the_reference_says_so"),
    ("thresholds/evalue.py", "arm.tested = arm.pulls - 1", "arm.tested = arm.pulls",
     "test_thresholds::test_log_e_is_exact_for_few_pulls"),
    ("thresholds/evalue.py", "arm.price = lost - remainder", "arm.price = -remainder",
     "test_thresholds::test_log_e_is_exact_for_few_pulls"),
    ("thresholds/evalue.py", "math.log(arms / (arms - 1))", "math.log((arms - 1) / arms)",
     "test_thresholds::test_the_intervals_of_all_arms_share_delta"),
    ("thresholds/paper.py", "math.log(2 * arms) if self.alpha == 1", "math.log(arms) if self.alpha == 1",
     "test_thresholds::test_what_is_required_equals_the_reference"),
    ("thresholds/paper.py", "log_B - math.log(delta) + alpha * log_t", "log_B + alpha * log_t",
     "test_thresholds::test_B_is_the_smallest_for_which_the_proof_holds"),
    ("thresholds/paper.py", "return False  # whether a given B", "return True  # whether a given B",
     "test_thresholds::test_a_threshold_is_proven_for"),
    ("thresholds/rivals.py", "if n_a * lead(arms, rules, b, third, next_best - last) > n_a + n:",
     "if n_a * lead(arms, rules, b, third, next_best - last) > n_a:",
     "test_champion::test_what_counts_is_what_the_rule_says_and_depends_on_the_past_only"),
    ("thresholds/hedged.py", "other[STAKED] -= v * reward", "other[STAKED] += v * reward",
     "test_champion::test_stakes_are_those_of_the_page_and_do_not_look_at_rewards"),
    ("thresholds/hedged.py", "up, d_up = log_h(rules, worth(stakes_b, m, m + epsilon)",
     "up, d_up = log_h(rules, worth(stakes_b, m, m)", "test_champion::test_the_least_e_is_never_above_a_scan"),
    ("thresholds/champion.py", "SHARE, MOST_ARMS = 0.3, 4", "SHARE, MOST_ARMS = 0.3, 5",
     "test_champion::test_for_pairs_and_other_numbers_of_arms_it_is_contrast_and_nothing_is_staked"),
    ("study/state/sampled.py", "self.setup.bound(credit)(arms, run, rules, a, pulls, seen(pulls, reward))",
     "self.setup.bound(credit)(arms, run, rules, a, 1, seen(pulls, reward))",
     "test_champion::test_a_period_counts_as_was_clear_before_it"),
    # policies: what to pull next
    ("policies/co.py", "return arms[a].costs * arms[a].pulls", "return arms[a].pulls * arms[a].pulls",
     "test_exactness::test_same_pulls_as_the_reference[co-gaussian]"),
    ("policies/co.py", "            run.left -= 1\n", "",
     "test_exactness::test_same_pulls_as_the_reference_with_the_bernoulli_threshold[co]"),
    ("policies/co.py", "if leader == run.dropped_for and last != leader:", "if last != leader:",
     "test_epsilon::test_a_new_leader_drops_every_arm_that_it_beats"),
    ("policies/ctas.py", "run.counted * arm.share - arm.costs", "run.counted * arm.share + arm.costs",
     "test_exactness::test_same_pulls_as_the_reference[ctas-bounded]"),
    ("policies/tracking.py", "math.sqrt(run.t) - rules.slack", "math.sqrt(run.t) + rules.slack", "test_exactness"),
    ("policies/top_two.py", "uniform(run) * (h_l + h_c) < h_l else c", "uniform(run) * (h_l + h_c) < h_c else c",
     "test_exactness::test_same_pulls_as_the_reference[top-two-exponential]"),
    ("policies/top_two.py", "level = math.log(run.t)", "level = math.log(run.t + 1)",
     "test_exactness::test_same_pulls_as_the_reference[top-two-exponential]"),
    ("policies/top_two.py", "if abs(arm.known) - arm.price <= least:", "if abs(arm.known) - arm.price < least:",
     "test_exactness::test_of_equally_close_rivals_top_two_takes_the_first"),
    ("policies/d_lucb.py", "run.waiting = run.rival", "run.waiting = -1",
     "test_exactness::test_same_pulls_as_the_reference[d-lucb-exponential]"),
    ("policies/d_lucb.py", "highest_rival(arms, run, rules) - rules.epsilon", "highest_rival(arms, run, rules)",
     "test_epsilon::test_tied_arms_end_a_run"),
    # simulation
    ("simulation/truth.py", "truth[a].cost_stream = mix(start)", "truth[a].cost_stream = truth[a].stream",
     "test_sampling::test_the_rewards_of_an_arm_are_independent_of"),
    ("simulation/truth.py", "return arm.cost * (0.5 + next_uniform(arm))",
     "return arm.cost * (0.6 + next_uniform(arm))", "test_sampling::test_random_costs_follow_their_law"),
    ("simulation/loop.py", "if run.t >= max_pulls or run.spent >= max_cost:",
     "if run.t > max_pulls or run.spent >= max_cost:", "test_simulation::test_limits_leave_a_trajectory_unfinished"),
    ("simulation/sums.py", "getattr(self, name) + getattr(other, name)", "getattr(self, name)",
     "test_engines::test_sums_do_not_depend_on_how_trajectories_are_cut_nor_on_their_order"),
    ("simulation/sums.py", "total += exact_sum(whole) << shift", "total += int(whole.sum()) << shift",
     "test_engines::test_sums_and_quantiles_are_exact"),
    ("simulation/results.py", 'se_cost=counted["std_cost"] / math.sqrt(', 'se_cost=counted["std_cost"] / (',
     "test_simulation::test_summary_agrees_with_the_arrays"),
    ("simulation/work.py", "largest = max(instances", "largest = min(instances",
     "test_simulation::test_instances_simulated_together_are_drawn_as_the_one_with_the_largest_mean_needs"),
    ("simulation/parallel.py", "if part.done != count:", "if part.done > count:",
     "test_engines::test_a_task_that_stops_early_and_a_worker_of_another_version_are_errors"),
    # datasets: races and readers
    ("datasets/board.py", "carry += (total - more) + share", "carry += (more - total) + share",
     "test_race::test_sums_are_rounded_once"),
    ("datasets/board.py", "mine > others or (mine == others and costs[a] < costs[b])",
     "mine > others or (mine == others and costs[a] > costs[b])",
     "test_race::test_each_pull_is_that_of_the_plain_version"),
    ("datasets/board.py", "return alone or finished", "return alone",
     "test_race::test_each_pull_is_that_of_the_plain_version"),
    ("datasets/capital.py", "if not -1.0 < m < 1.0:", "if not -1.0 < m < 2.0:",
     "test_race::test_evidence_is_the_same_to_the_last_bit_whatever_the_order_of_arrival_and_the_form_of_the_code"),
    ("datasets/capital.py", "return items * (ROUNDING - board.epsilons[test]) - lead < 1.0 - (items - j)",
     "return items * (ROUNDING - board.epsilons[test]) - lead < 2.0 - (items - j)",
     "test_race::test_each_pull_is_that_of_the_plain_version"),
    ("datasets/champion.py", "sums[a, j + 1] > sums[ahead, j + 1]", "sums[a, j + 1] < sums[ahead, j + 1]",
     "test_race::test_each_pull_is_that_of_the_plain_version"),
    ("datasets/champion.py", "finished = finished and (board.out[a] or board.prefix[a] > j)",
     "finished = finished and (board.out[a] or board.prefix[a] >= j)",
     "test_race::test_each_pull_is_that_of_the_plain_version"),
    ("datasets/pairs.py", "epsilons, wrong / delta, math.log", "epsilons, 1 / delta, math.log",
     "test_race::test_each_pull_is_that_of_the_plain_version"),
    ("datasets/pairs.py", "board.out[a] = board.beaten[a] and left > 0", "board.out[a] = board.beaten[a]",
     "test_race::test_none_is_out_if_each_is_beaten"),
    ("datasets/race.py", "if lead > 0 or (lead == 0 and costs[a] < costs[best]):", "if lead > 0:",
     "test_race::test_exact_ties_end_with_everything_and_the_cheapest"),
    ("datasets/race.py", "((high - scores) if minimize", "((scores - low) if minimize",
     "test_race::test_the_smallest_scores_can_be_wanted_and_the_range_declared"),
    ("datasets/sheets.py", 'if "_" in text:', 'if "__" in text:',
     "test_replay::test_a_table_that_could_be_misread_is_refused_with_the_place"),
    ("datasets/sheets.py", "utf-8-sig", "utf-8", "test_replay::test_every_form_of_a_table_is_read_alike"),
    ("datasets/sheets.py", "(np.bincount(numbers) > 1).any():", "(np.bincount(numbers) > 2).any():",
     "test_replay::test_a_table_that_could_be_misread_is_refused_with_the_place"),
    ("datasets/logs.py", "each.id is None or each.id != other.id", "each.id is None",
     "test_readers::test_a_second_try_brings_its_copies_along_and_other_doubles_are_refused"),
    ("datasets/reading.py", "if not np.nansum(costs) > 0:", "if np.nansum(costs) < 0:",
     "test_replay::test_costs_that_are_missing_or_wrong_are_refused"),
    # planning
    ("planning/results.py", "within = self.decided & (self.costs <= budget * (1 + 1e-12))",
     "within = self.costs <= budget * (1 + 1e-12)", "test_plan::test_what_was_cut_is_never_told_as_a_bill"),
    ("planning/results.py", "np.where(self.decided | self.cut, self.costs, math.inf)", "self.costs",
     "test_plan::test_what_was_cut_is_never_told_as_a_bill"),
    ("planning/truths.py", "random.beta(0.5 + good, 0.5 + n - good, draws)",
     "random.beta(0.5 + n - good, 0.5 + good, draws)", "test_plan::test_a_pilot_says_what_its_posterior_says"),
    ("planning/truths.py", "= self.next_best + gap", "= goodness.max(axis=1) + gap",
     "test_plan::test_a_gap_is_that_of_the_best_arm_and_the_next"),
    ("planning/answers.py", "np.minimum(bills.costs[:count], limit) - np.minimum(less.costs, limit)",
     "bills.costs[:count] - less.costs",
     "test_plan::test_an_arm_that_is_never_best_adds_to_the_bill"),
    # calibration
    ("calibration/binomial.py", "(n - i + 1) / i", "(n - i) / i",
     "test_calibration::test_the_most_errors_that_certify_a_rate_are_those_of_the_exact_binomial_test"),
    ("calibration/binomial.py", "if log_cdf(middle, n, delta) <= math.log(alpha) else (low, middle)",
     "if log_cdf(middle, n, delta) <= math.log(2 * alpha) else (low, middle)",
     "test_calibration::test_the_most_errors_that_certify_a_rate_are_those_of_the_exact_binomial_test"),
    # a live study: its state
    ("study/state/accounts.py", "expires = event.time + self.settings.lease", "expires = event.time",
     "test_study_order::test_a_lapsed_pull_is_offered_first_also_while_the_results_in_hand_decide"),
    ("study/state/accounts.py", "pulls >= most.max_pulls", "pulls > most.max_pulls",
     "test_study::test_a_pull_under_way_counts_toward_the_number_of_pulls"),
    ("study/state/accounts.py", "self.told + self.in_sums + len(self.pulls), self.settings",
     "self.told + self.in_sums, self.settings",
     "test_study::test_a_pull_under_way_counts_toward_the_number_of_pulls"),
    ("study/state/accounts.py",
     'pending = self.settings.max_cost, self.live + self.gone',
     'pending = self.settings.max_cost, self.live.copy()',
     "test_study::test_what_is_left_for_pulls_of_a_dropped_arm_that_nobody_tells_does_not_block_a_study"),
    ("study/state/accounts.py", "bool(self.bill >= limit * (1 - ROUNDING))", "bool(self.bill > limit)",
     "test_study::test_a_budget_that_is_used_up_ends_a_study_though_the_next_pull_is_free"),
    ("study/state/accounts.py", "(self.gone if pull.withdrawn else self.live)[a] -= 1", "self.live[a] -= 1",
     "test_study_arms::test_pulls_under_way_of_a_dropped_arm_are_withdrawn_and_what_waited_for_them_counts"),
    ("study/state/sampled.py", "while self.waiting and self.waiting[0][0] < missing:",
     "while self.waiting:", "test_study_order::test_what_is_told_early_waits_and_is_shown"),
    ("study/state/sampled.py", "self.through > certified", "self.through > certified + 1",
     "test_study_status::test_a_study_that_an_older_version_let_run_past_its_certificate_claims_nothing"),
    ("study/state/sampled.py", 'arms["costs"] += pending * arms["cost"]', 'arms["costs"] += pending',
     "test_study::test_pulls_under_way_count_as_pulled_when_choosing"),
    ("study/state/accounts.py", "for name in self.OF_ARMS:", "for name in list(self.OF_ARMS)[:-1]:",
     "test_study_log::test_imported_results_and_sums_are_folded_from_a_snapshot_too"),
    ("study/state/race.py", "        for pull in self.waited_for():\n", "        for pull in ():\n",
     "test_study_log::test_a_state_from_a_snapshot_is_the_fold_of_all_events_at_every_event"),
    ("study/state/evidence.py", "if self.summed[a] and self.settings.family.sets_first_aside:", "if False:",
     "test_study_counts::test_sums_count_as_the_single_results_would"),
    ("study/levels.py", "math.log(settings.first_arms - 1) + drops", "math.log(settings.first_arms) + drops",
     "test_study_arms::test_the_level_is_that_of_the_formula"),
    ("study/levels.py", "return math.log(2 * k) + k * math.log(2)", "return math.log(2 * k)",
     "test_study_arms::test_the_level_is_that_of_the_formula"),
    # a live study: its rules
    ("study/rules/asking.py", "and pull.expires > transaction.now\n", "\n",
     "test_study::test_a_lapsed_pull_is_offered_again_also_to_the_request_that_had_it"),
    ("study/rules/asking.py", "if len(handed) < asked.pulls and state.affords(pull.arm, without=1):",
     "if len(handed) < asked.pulls:",
     "test_study_order::test_lost_pulls_that_the_budget_does_not_pay_for_again_are_not_counted_past"),
    ("study/rules/asking.py", "        if not state.affords(arm):\n", "        if False:\n",
     "test_study::test_known_costs_are_never_overdrawn_by_any_number_of_workers"),
    ("study/rules/telling.py", "if (told.reward, told.cost, told.words) != (result.reward, cost, result.failed):",
     "if told.reward != result.reward:",
     "test_server::test_a_pull_is_renewed_and_released_by_who_has_it_and_told_once"),
    ("study/rules/telling.py", "held.worker not in (None, worker)", "False",
     "test_study::test_a_worker_whose_pull_was_offered_again_can_no_longer_renew_it_or_give_it_back"),
    ("study/rules/amending.py", "len(before.arms) - len(before.dropped) == 2",
     "len(before.arms) - len(before.dropped) == 1",
     "test_study_arms::test_two_arms_must_be_left_and_a_drop_made_again_is_none"),
    ("study/rules/amending.py", "2 * before.delta >= 1:", "2 * before.delta > 1:",
     "test_study_arms::test_an_arm_is_not_dropped_where_the_bound_would_say_nothing"),
    ("study/rules/counts.py", "if total >= MOST_SUMMED:", "if total > 2 * MOST_SUMMED:",
     "test_study_counts::test_the_pulls_of_all_periods_together_are_limited"),
    ("study/given.py", "if is_learned else not_negative(cost", "if not is_learned else not_negative(cost",
     "test_study_refusals::test_a_tell_that_makes_no_sense_is_refused_and_writes_nothing"),
    # a live study: its storage
    ("study/current.py", "if digest == digest_of(content):", "if True:",
     "test_study_damage::test_whatever_happens_to_a_snapshot_changes_nothing"),
    ("study/current.py", "        if kind in MAY_DECIDE:\n            self.decide()\n", "",
     "test_study::test_a_study_never_undecides"),
    ("study/current.py", "            if len(transaction.events) > before:\n                raise\n", "",
     "test_study_broken::test_ctrl_c_while_a_refusal_is_undone_leaves_nothing_of_it"),
    ("study/log/sqlite.py", '"BEGIN IMMEDIATE"', '"BEGIN"',
     "test_study_durability::test_threads_of_several_processes_on_one_study"),
    ("study/log/sqlite.py", "PRAGMA synchronous = FULL", "PRAGMA synchronous = OFF",
     "test_study_durability::test_sqlite_waits_for_the_disk"),
    ("study/log/postgres.py", "if len(self.made) > CONNECTIONS:", "if False:",
     "test_study_broken::test_threads_that_come_at_the_same_time_have_no_more_connections_than_are_allowed"),
    ("study/log/tables.py", '    "DEALLOCATE ALL",', '    "SELECT 1",',
     "test_study_broken::test_statements_that_were_prepared_only_in_part_are_prepared_again"),
    ("study/catalogue.py", "else found.id == row.id", "else False",
     "test_study_durability::test_what_is_created_imported_or_deleted_as_the_connection_breaks_is_so_once"),
    # server
    ("server/access.py", "if digest(tokens[READ]) == digest(tokens[WORK]):", "if False:",
     "test_server::test_tokens_come_from_a_file_which_only_its_owner_can_read"),
    ("server/access.py", "Rates(ATTEMPTS / WINDOW, ATTEMPTS)", "Rates(ATTEMPTS / WINDOW, 2 * ATTEMPTS)",
     "test_server::test_wrong_tokens_are_limited_and_a_right_one_is_let_in_all_the_same"),
    ("server/access.py", "if left < 1:", "if left < 0:", "../src/cabai/server/access"),
    # support
    ("support/validation.py", "if not 0 < result < 1:", "if not 0 <= result < 1:",
     "test_simulation::test_bad_input_is_refused_by_name"),
    ("support/validation.py", "isinstance(value, (int, np.integer)) or value < least:",
     "isinstance(value, (int, np.integer)) or value < least - 1:",
     "test_simulation::test_bad_input_is_refused_by_name"),
    ("support/files.py", "partial.replace(target)", "target.write_bytes(content)",
     "test_files "
     "test_reproduce::test_a_write_that_fails_leaves_the_old_file_whole_and_nothing_else"),
    ("support/streams.py", "if x < EDGE[layer + 1]:", "if x < EDGE[layer]:",
     "test_sampling::test_rewards_follow_their_law[gaussian-0.0]"),
    ("support/specialise.py", "target = functions.get(value.slot, value)", "target = value",
     "test_exactness::test_same_pulls_as_the_reference[co-gaussian]"),
]]  # fmt: skip


def copied(to: Path) -> None:
    """A copy of this clone, as git lists it."""
    listed = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines():
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)


def caught_by(fault: Fault, clone: Path) -> str | None:
    """The first of its tests that fails."""
    path = clone / "src" / "cabai" / fault.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(fault.old, fault.new), encoding="utf-8")
    names = [name.partition("::") for name in fault.tests.split()]
    tests = [f"tests/{file}.py{colons}{test}" for file, colons, test in names]
    options = ["-x", "-q", "--tb=no", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider"]
    options += ["-o", f"faulthandler_timeout={LIMIT / 3:g}"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests], cwd=clone, timeout=LIMIT, capture_output=True,
            env=os.environ | {"PYTHONPATH": str(clone / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return None
    finally:
        path.write_text(whole, encoding="utf-8")
    if done.returncode not in (0, 1, 2):
        raise RuntimeError(done.stdout.decode()[-2000:] + done.stderr.decode()[-2000:])
    if b"Timeout (" in done.stderr:
        return "a limit of time"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout.decode(), re.MULTILINE)
    return failed[1].removeprefix("tests/") if failed else None


def cpu_seconds() -> float:
    """Of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="faults in files whose name contains this")
    parser.add_argument("--list", action="store_true", help="only say which faults apply")
    given = parser.parse_args()
    chosen = [fault for fault in FAULTS if given.only in fault.file]
    lost = [fault for fault in chosen if not fault.applies]
    for fault in lost:
        print(f"does not apply  {fault.file}: {fault.old!r}")
    print(f"{len(chosen) - len(lost)} of {len(chosen)} faults apply.")
    if given.list:
        return bool(lost)
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copied(Path(folder))
        for fault in (fault for fault in chosen if fault.applies):
            before = cpu_seconds()
            found = caught_by(fault, Path(folder))
            missed += [] if found else [fault]
            said = f"{fault.file}: {fault.old.strip()!r} -> {fault.new.strip()!r}"
            print(f"{cpu_seconds() - before:4.0f} s  {found or 'MISSED'}  {said}", flush=True)
    print(f"{len(chosen) - len(lost) - len(missed)} caught, {len(missed)} missed, {len(lost)} do not apply.")
    return bool(missed or lost)


if __name__ == "__main__":
    sys.exit(main())
