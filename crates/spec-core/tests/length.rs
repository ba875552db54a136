//! Length policies, the measuring one on a scripted cost model with a virtual clock.

use std::time::Duration;

use spec_core::{
    Additive, Ask, ByPromptLength, DraftCost, Fixed, Gate, Goodput, LENGTH_POLICIES, LengthPolicy, LengthPolicyName,
    Prices, Round, Start,
};

fn round(drafted: usize, accepted: usize) -> Round {
    Round { drafted, accepted, emitted: accepted + 1, ..Round::default() }
}

#[test]
fn a_fixed_length_stays_whatever_is_accepted() {
    let mut policy = Fixed(5);
    policy.observe(&round(5, 0));
    policy.observe(&round(5, 5));
    assert_eq!(policy.next(), 5);
}

#[test]
fn the_additive_length_rises_above_four_fifths_and_falls_else_within_its_limits() {
    let mut policy = Additive::new(5, 8);
    let mut lengths = Vec::new();
    for _ in 0..5 {
        let drafted = policy.next();
        policy.observe(&round(drafted, drafted));
        lengths.push(policy.next());
    }
    assert_eq!(lengths, [6, 7, 8, 8, 8]);
    // Exactly four fifths is not more than that.
    let mut policy = Additive::new(5, 8);
    policy.observe(&round(5, 4));
    assert_eq!(policy.next(), 4);
    for _ in 0..20 {
        let drafted = policy.next();
        policy.observe(&round(drafted, 0));
    }
    assert_eq!(policy.next(), 1);
    // One bad round leaves the window after as many rounds as it is long.
    for _ in 0..Additive::WINDOW {
        policy.observe(&round(1, 1));
    }
    assert!(policy.next() > 1);
    // A round without a draft says nothing.
    let before = policy.clone();
    policy.observe(&round(0, 0));
    assert_eq!(policy, before);
}

#[test]
fn the_prompt_decides_between_three_and_five() {
    let mut policy = ByPromptLength::new(100);
    for (prompt_len, length) in [(99, 3), (100, 5), (5, 3)] {
        policy.start(Start { prompt_len, drafter: DraftCost::Free });
        assert_eq!(policy.next(), length);
    }
}

#[test]
fn policies_are_found_by_name_and_mistakes_list_the_names() {
    for entry in &LENGTH_POLICIES {
        let name: LengthPolicyName = entry.name.parse().expect("a name of the table");
        assert_eq!(name.entry(), entry);
        name.build().next();
    }
    assert_eq!("fixed:3".parse::<LengthPolicyName>().map(|name| name.build().next()), Ok(3));
    let error = |text: &str| text.parse::<LengthPolicyName>().expect_err("not a policy").to_string();
    assert_eq!(
        error("godput"),
        "no length policy is called `godput`; there are: goodput:x, fixed:x, additive:x, by-prompt-length:x, survey:x"
    );
    assert_eq!(
        error("fixed:x"),
        "length policy fixed: `x` is not a value for it; it takes a number of tokens from 0 to 64"
    );
    assert!(error("fixed:65").contains("from 0 to 64") && error("goodput:0").contains("from 1 to 64"));
}

/// A machine whose costs are given, in units of a plain pass. Tokens are accepted up to a length that a script names.
struct Machine {
    /// Cost of a drafted token, and of one that a draft model catches up on.
    draft: f64,
    catch_up: f64,
    /// Tokens that the drafter has not seen.
    behind: usize,
    spent: f64,
    emitted: usize,
}

/// Cost of a pass by rows, of the 4-bit kernels measured on two cores: 21.2, 21.2, 24.5, 46 ms for 1, 4, 8, 16 rows.
fn pass(rows: usize) -> f64 {
    let points = [(1, 21.2), (4, 21.2), (8, 24.5), (16, 46.0), (32, 92.0)];
    let above = points.iter().position(|&(r, _)| r >= rows).expect("at most 32 rows");
    let (high, cost) = points[above];
    let (low, base) = points[above.saturating_sub(1)];
    let share = if high == low { 1.0 } else { (rows - low) as f64 / (high - low) as f64 };
    (base + (cost - base) * share) / 21.2
}

/// Cost of a pass that rises from the second row on, to 1.6 at eight.
fn steep_pass(rows: usize) -> f64 {
    1.0 + 0.6 / 7.0 * (rows as f64 - 1.0)
}

impl Machine {
    fn new(drafter: DraftCost, prompt_len: usize) -> Self {
        let model = drafter == DraftCost::Model;
        let (draft, catch_up) = if model { (0.40, 0.0285) } else { (0.0, 0.0) };
        Self { draft, catch_up, behind: prompt_len, spent: 0.0, emitted: 0 }
    }

    /// One round; `accepts` gives how many of the drafted tokens are kept.
    fn step(&mut self, policy: &mut Goodput, pass: fn(usize) -> f64, accepts: impl FnOnce(usize) -> usize) -> usize {
        let length = policy.next();
        let mut draft = 0.0;
        if length > 0 {
            let behind = self.behind.min(policy.context().unwrap_or(usize::MAX));
            draft = self.draft * length as f64 + self.catch_up * behind as f64;
        }
        let accepted = accepts(length).min(length);
        let verify = pass(1 + length);
        self.spent += draft + verify;
        self.emitted += accepted + 1;
        self.behind = match policy.context() {
            None if length > 0 => 0,
            _ => self.behind + accepted + 1,
        };
        let time = |cost: f64| Duration::from_secs_f64(cost * 0.05);
        let (draft, verify) = (time(draft), time(verify));
        policy.observe(&Round { drafted: length, accepted, emitted: accepted + 1, draft, verify, ..Round::default() });
        length
    }
}

fn started(drafter: DraftCost, prompt_len: usize) -> (Goodput, Machine) {
    let mut policy = Goodput::default();
    policy.start(Start { prompt_len, drafter });
    (policy, Machine::new(drafter, prompt_len))
}

#[test]
fn a_drafter_that_never_helps_costs_little() {
    for drafter in [DraftCost::Free, DraftCost::Model] {
        for prompt_len in [1, 30, 200, 4000] {
            for pass in [pass as fn(usize) -> f64, steep_pass] {
                let (mut policy, mut machine) = started(drafter, prompt_len);
                let (mut drafted, mut early) = (0, None);
                while machine.emitted < 512 {
                    drafted += machine.step(&mut policy, pass, |_| 0);
                    if machine.emitted == 128 {
                        early = Some(machine.spent / 128.0);
                    }
                }
                let early = early.expect("one token a round");
                let what = format!("{drafter:?}, prompt {prompt_len}");
                assert!(early <= 1.06, "{what}: {early} over the first 128");
                assert!(machine.spent / 512.0 <= 1.03, "{what}: {} over 512", machine.spent / 512.0);
                assert!(drafted > 4, "{what}: it was tried");
            }
        }
    }
}

#[test]
fn drafting_returns_soon_after_it_begins_to_help() {
    for drafter in [DraftCost::Free, DraftCost::Model] {
        for helps_from in [20, 47, 64, 100, 130, 200, 333, 500, 900] {
            for kept in [2, 3, 16] {
                let (mut policy, mut machine) = started(drafter, 100);
                while machine.emitted < helps_from {
                    machine.step(&mut policy, pass, |_| 0);
                }
                // Tokens until the first of three rounds in succession that draft.
                let (mut streak, mut since) = (0, 0);
                while streak < 3 {
                    let before = machine.emitted;
                    let length = machine.step(&mut policy, pass, |_| kept);
                    since = if streak == 0 { before } else { since };
                    streak = if length > 0 { streak + 1 } else { 0 };
                    assert!(machine.emitted < 5000, "it never returns");
                }
                let back = since - helps_from;
                let allowed = match drafter {
                    DraftCost::Free | DraftCost::Weighed => 32,
                    DraftCost::Model => 32.max(helps_from / 2),
                };
                assert!(back <= allowed, "{drafter:?} from {helps_from}, {kept} kept: back after {back}");
            }
        }
    }
}

/// A sequence of kept lengths in which each token is kept with probability `rate`, independently.
fn kept_lengths(rate: f64, seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move |length| {
        let mut uniform = || {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..length).take_while(|_| uniform() < rate).count()
    }
}

#[test]
fn goodput_comes_near_the_best_fixed_length() {
    for (drafter, rate) in [
        (DraftCost::Model, 0.95f64),
        (DraftCost::Model, 0.85),
        (DraftCost::Model, 0.7),
        (DraftCost::Model, 0.3),
        (DraftCost::Free, 0.9),
        (DraftCost::Free, 0.5),
        (DraftCost::Free, 0.1),
    ] {
        let tokens = 4000;
        let best = (0..=10)
            .map(|length: usize| {
                let expected: f64 = (0..=length).map(|j| rate.powi(j as i32)).sum();
                let draft = if drafter == DraftCost::Model { 0.40 } else { 0.0 };
                (draft * length as f64 + pass(1 + length)) / expected
            })
            .fold(f64::INFINITY, f64::min);
        let mut policy = Goodput::new(10);
        policy.start(Start { prompt_len: 50, drafter });
        let mut machine = Machine::new(drafter, 50);
        let mut accepts = kept_lengths(rate, 5);
        while machine.emitted < tokens {
            machine.step(&mut policy, pass, &mut accepts);
        }
        let cost = machine.spent / machine.emitted as f64;
        assert!(cost < best * 1.08, "{drafter:?}, {rate}: {cost} a token, a fixed length has {best}");
    }
}

#[test]
fn a_drafter_without_a_proposal_is_asked_again_and_costs_nothing() {
    let (mut policy, _) = started(DraftCost::Free, 10);
    policy.next();
    policy.observe(&Round { emitted: 1, verify: Duration::from_millis(50), ..Round::default() });
    for _ in 0..100 {
        assert!(policy.next() > 0);
        policy.observe(&Round { emitted: 1, verify: Duration::from_millis(50), ..Round::default() });
    }
}

#[test]
fn a_slow_target_pass_of_many_rows_makes_the_draft_short() {
    // Mean length over the last hundred rounds.
    let mean = |slope: f64| {
        let mut policy = Goodput::default();
        policy.start(Start { prompt_len: 10, drafter: DraftCost::Free });
        let mut sum = 0;
        for index in 0..200 {
            let length = policy.next();
            sum += if index < 100 { 0 } else { length };
            let verify = Duration::from_secs_f64(0.05 * (1.0 + slope * length as f64));
            let accepted = length.min(3);
            policy.observe(&Round { drafted: length, accepted, emitted: accepted + 1, verify, ..Round::default() });
        }
        sum as f64 / 100.0
    };
    assert!((2.9..4.5).contains(&mean(0.05)), "three are kept: {}", mean(0.05));
    assert!(mean(3.0) < 0.5, "a row that costs more than a pass is hardly ever tried: {}", mean(3.0));
}

#[test]
fn goodput_knows_what_hidden_drafts_cost() {
    // Mean length over the last rounds, on a machine where a drafted token takes `draft` of a pass and `rate` of the tokens stand.
    let mean = |draft: f64, rate: f64, overlaps: bool| {
        let mut policy = Goodput::new(12);
        policy.start(Start { prompt_len: 10, drafter: DraftCost::Model });
        let mut accepts = kept_lengths(rate, 9);
        let (mut sum, mut made_ahead) = (0, false);
        for index in 0..3000 {
            let length = policy.next();
            sum += if index < 500 { 0 } else { length };
            let late = ((length + 1) as f64 * draft - 1.0).max(0.0);
            let (waited, hidden) = match (made_ahead, length) {
                (_, 0) => (0.0, 0.0),
                (true, _) => (late, (length + 1) as f64 * draft - late),
                (false, _) => (length as f64 * draft, 0.0),
            };
            let time = |cost: f64| Duration::from_secs_f64(cost * 0.05);
            // One token more than the draft: the guess has to be right too.
            let stood = accepts(length + 1);
            made_ahead = overlaps && length > 0 && stood > length;
            policy.observe(&Round {
                drafted: length,
                company: 0,
                accepted: stood.min(length),
                emitted: stood.min(length) + 1,
                draft: time(waited),
                ahead: overlaps.then(|| time(hidden)),
                verify: time(1.0),
            });
        }
        sum as f64 / 2500.0
    };
    // Drafts that nearly always stand grow until their passes take as long as the target's; one by one they go on growing.
    let (one_by_one, hidden) = (mean(0.2, 0.97, false), mean(0.2, 0.97, true));
    assert!(one_by_one > 6.0, "{one_by_one} one by one");
    assert!((3.5..6.0).contains(&hidden), "five passes take as long as the target's: {hidden}");
}

#[test]
fn a_long_text_is_read_for_a_draft_model_that_has_proven_itself_and_for_answers_that_go_on() {
    let mut prices = Prices::new(16);
    prices.enter_pass(1, Duration::from_millis(40));
    let pass = 0.016;
    let ask = |gate: &mut Gate, reading: f64, left: usize| gate.ask_reader(&prices, pass, reading, left);
    let fresh = || {
        let mut gate = Gate::new(DraftCost::Model);
        gate.advance(1);
        gate
    };

    let mut gate = fresh();
    assert!(matches!(ask(&mut gate, 0.4, 500), Ask::Try { .. }));
    gate.tried(1);
    assert_eq!(ask(&mut gate, 0.05, 500), Ask::Yes, "a short text costs less than more trials");
    // Ten tokens' time: two more accepted tokens.
    for accepted in [1, 1] {
        assert!(matches!(ask(&mut gate, 0.4, 500), Ask::Try { .. }));
        gate.tried(accepted);
    }
    assert_eq!(ask(&mut gate, 0.4, 500), Ask::Yes);
    assert_eq!(ask(&mut gate, 0.4, 40), Ask::No, "a fifth of what is left is eight tokens");
    gate.rest();
    gate.advance(Gate::MODEL_GAP);
    assert!(matches!(ask(&mut gate, 0.0, 500), Ask::Try { .. }));
    gate.tried(2);
    assert!(matches!(ask(&mut gate, 0.4, 500), Ask::Try { .. }), "what was proven before a rest is forgotten");

    assert_eq!(ask(&mut fresh(), 0.0, 5), Ask::No, "a trial of 48 ms for five tokens");
    assert!(matches!(ask(&mut fresh(), 0.0, 6), Ask::Try { .. }));
}

#[test]
fn a_draft_model_waits_where_the_target_is_unsure_of_its_own_tokens() {
    /// Tokens until the first and the second trial of a draft model that takes two fifths of a pass, in an answer of 400, where the target gives
    /// its tokens such probabilities, in turn, and none of the model's stands.
    fn trials(probabilities: &[f64]) -> Vec<usize> {
        let mut policy = Goodput::new(8);
        let mut prices = Prices::new(16);
        prices.enter_pass(1, Duration::from_millis(40));
        policy.learn(&prices);
        policy.start(Start { prompt_len: 20, drafter: DraftCost::Weighed });
        let mut gate = Gate::new(DraftCost::Model);
        assert!(policy.listens());
        let tried = (1..400).filter(|&generated| {
            policy.hear(probabilities[generated % probabilities.len()]);
            gate.advance(1);
            let prices = policy.prices().expect("it names prices");
            let tries = matches!(gate.ask_reader(prices, 0.016, 0.0, 400 - generated), Ask::Try { .. });
            if tries {
                gate.tried(0);
            }
            tries
        });
        tried.take(2).collect()
    }
    let gap = Gate::MODEL_GAP;
    assert_eq!(trials(&[0.95]), [1, 1 + gap]);
    let (mixed, unsure) = (trials(&[1.0, 0.3]), trials(&[0.85, 0.2]));
    assert!(
        (5..=gap).contains(&mixed[0]) && (mixed[0] + gap + 10..150).contains(&mixed[1]),
        "tokens of 0.65: {mixed:?}"
    );
    assert_eq!(unsure[0], 1 + gap, "tokens of 0.53: it may be that the drafter knows better");
    assert!((150..=300).contains(&unsure[1]), "late, but not never: {unsure:?}");
    assert_eq!(trials(&[0.1]), [1 + gap, 1 + gap + 8 * gap]);
    // It is the text of late that counts.
    let mut turns = vec![0.5; 80];
    turns.extend([0.98; 319]);
    let turned = trials(&turns)[1];
    assert!((82..110).contains(&turned), "soon behind token 80: {turned}");

    let mut policy = Goodput::new(8);
    policy.start(Start { prompt_len: 20, drafter: DraftCost::Weighed });
    (0..50).for_each(|_| policy.hear(0.1));
    let reluctance = |policy: &Goodput| policy.prices().map(|prices| prices.reluctance(0.4));
    assert_eq!(reluctance(&policy), Some(8.0));
    let verify = Duration::from_secs(7);
    policy.observe(&Round { drafted: 200, accepted: 199, emitted: 200, verify, ..Round::default() });
    assert!(reluctance(&policy) < Some(1.5), "what was copied since is of another kind, perhaps");
    policy.start(Start { prompt_len: 20, drafter: DraftCost::Weighed });
    assert_eq!(reluctance(&policy), Some(1.0), "the next text is another");
}

#[test]
fn a_pass_that_was_disturbed_is_refuted_by_a_longer_one_that_took_less() {
    let mut prices = Prices::new(16);
    let mut enter = |rows: usize, milliseconds: u64| {
        prices.enter_pass(rows, Duration::from_millis(milliseconds));
        [1, 3, 5, 8].map(|rows| (prices.target(rows) * 1e3).round())
    };
    let [alone, ..] = enter(1, 80);
    assert_eq!(alone, 80.0, "nothing says otherwise");
    assert_eq!(enter(5, 50), [50.0, 50.0, 50.0, 54.0], "five rows took less later, so one row does");
    assert_eq!(enter(3, 44), [44.0, 44.0, 50.0, 54.0]);
    assert_eq!(enter(8, 60), [44.0, 44.0, 50.0, 60.0], "what fits stays");
    // The text gets longer, and so do its passes: what longer ones took before is out of date.
    assert_eq!(enter(1, 88)[0], 82.0, "a quarter of the way from 80");
    assert_eq!(enter(1, 88), [84.0, 84.0, 84.0, 84.0]);
    assert_eq!(enter(5, 100), [63.0, 63.0, 63.0, 84.0], "an average of 50 and 100, and later than one row's");
}

#[test]
fn goodput_stops_drafting_in_vain_although_its_one_plain_pass_was_disturbed() {
    let mut policy = Goodput::new(8);
    policy.start(Start { prompt_len: 20, drafter: DraftCost::Free });
    let pass = |drafted: usize, milliseconds: u64| Round {
        drafted,
        emitted: 1,
        verify: Duration::from_millis(milliseconds),
        ..Round::default()
    };
    assert_eq!(policy.next(), 0);
    policy.observe(&pass(0, 80));
    let drafted: usize = (0..60)
        .map(|_| {
            let length = policy.next();
            policy.observe(&pass(length, 40 + length as u64));
            length
        })
        .sum();
    assert!((4..=20).contains(&drafted), "trials only: {drafted}");
}
