//! What every setting would have come to on the texts of a record.

use serde::Serialize;
use spec_core::{DraftCost, Goodput, LengthPolicyName};

use super::costs::Costs;
use super::replay::{Course, replay};
use super::text::{Depth, Guess, Habits, Text, survival};
use crate::record::{ModelFacts, Record, RequestRecord, Run};

/// Positions that a record leaves open are filled so many times, by chance.
const FILLINGS: u64 = 16;
/// The longest fixed length that is tried.
const LONGEST: usize = 8;
/// Below this many tokens figures are rough.
const FEW: usize = 200;

/// What one drafter's records say.
#[derive(Debug)]
pub(super) struct Evaluation {
    pub(super) run: Run,
    pub(super) texts: usize,
    pub(super) tokens: usize,
    /// Share of positions of which the record says nothing.
    pub(super) open: f64,
    pub(super) costs: Costs,
    pub(super) survival: Vec<Depth>,
    pub(super) recorded: Recorded,
    /// Plain decoding first.
    pub(super) settings: Vec<Setting>,
    pub(super) notes: Vec<String>,
}

/// How fast the recorded rounds were, and how fast a replay under their own policy is: what replays are worth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Recorded {
    pub(super) tokens_per_second: f64,
    /// `None` where records of several policies are looked at.
    pub(super) replayed: Option<f64>,
}

/// A setting and what is expected of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Setting {
    pub(super) name: String,
    pub(super) flags: String,
    pub(super) tokens_per_second: f64,
    /// Over plain decoding; `None` where the record has no price for that.
    pub(super) speedup: Option<f64>,
    pub(super) acceptance_rate: f64,
    pub(super) tokens_per_round: f64,
    /// Whether the record has a price for all its rounds, rather than a guess.
    pub(super) is_known: bool,
}

impl Evaluation {
    /// The fastest setting that the record has prices for.
    pub(super) fn best(&self) -> Option<&Setting> {
        let known = self.settings.iter().filter(|setting| setting.is_known);
        // Of equals the first.
        known.reduce(|best, setting| if setting.tokens_per_second > best.tokens_per_second { setting } else { best })
    }
}

/// Requests of one drafter over one target.
struct Group<'a> {
    run: &'a Run,
    requests: Vec<Case<'a>>,
}

/// A request, and what ran it.
type Case<'a> = (&'a Run, &'a RequestRecord);

impl Group<'_> {
    /// Where passes cost the same.
    fn same_target(&self, other: &Run) -> bool {
        let machine = |run: &Run| -> (ModelFacts, Option<String>, String, Option<usize>) {
            let storage = run.storage.as_ref().map(|[target, _]| target.clone());
            (run.target.clone(), storage, run.device.clone(), run.threads)
        };
        machine(self.run) == machine(other)
    }

    /// Where drafts do too, and stand as often.
    fn same_drafter(&self, other: &Run) -> bool {
        let drafts = |run: &Run| {
            let storage = run.storage.as_ref().map(|[_, draft]| draft.clone());
            (run.drafter.clone(), run.draft.clone(), storage, run.rule.clone())
        };
        self.same_target(other) && drafts(self.run) == drafts(other)
    }
}

/// Whether drafts end for want of a guess, and not for what they would bring.
fn stops(run: &Run) -> bool {
    run.policy().is_none_or(|policy| policy.entry().name != "goodput")
}

/// Whether nobody was asked for drafts.
fn is_plain(request: &RequestRecord) -> bool {
    request.rounds.iter().all(|round| round.budget == 0 && round.by_depth.is_empty())
}

/// Evaluates records, one for each drafter.
pub(super) fn evaluate(records: &[Record]) -> Vec<Evaluation> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut plain: Vec<Case<'_>> = Vec::new();
    let requests =
        records.iter().flat_map(|record| record.requests.iter().map(|request| (&record.runs[request.run], request)));
    for (run, request) in requests {
        if is_plain(request) {
            plain.push((run, request));
            continue;
        }
        match groups.iter_mut().find(|group| group.same_drafter(run)) {
            Some(group) => group.requests.push((run, request)),
            None => groups.push(Group { run, requests: vec![(run, request)] }),
        }
    }
    groups
        .iter()
        .map(|group| {
            let all = groups.iter().flat_map(|other| &other.requests).chain(&plain);
            let passes = all.filter(|(run, _)| group.same_target(run)).map(|&(_, request)| request);
            let costs = Costs::of(passes, group.requests.iter().map(|&(_, request)| request));
            one(group, costs, records.iter().any(|record| record.is_cut))
        })
        .collect()
}

fn one(Group { run, requests }: &Group<'_>, costs: Costs, is_cut: bool) -> Evaluation {
    let texts: Vec<Text> = requests.iter().map(|&(run, request)| Text::of(request, stops(run))).collect();
    let texts: Vec<Text> = texts.into_iter().filter(|text| !text.guesses.is_empty()).collect();
    let tokens: usize = texts.iter().map(|text| text.guesses.len()).sum();
    let open = texts.iter().flat_map(|text| &text.guesses).filter(|&&guess| guess == Guess::Unknown).count();
    let habits = Habits::of(texts.iter());
    let mut random = uniform(1);
    let fillings: Vec<Vec<Text>> = (0..if open == 0 { 1 } else { FILLINGS })
        .map(|_| texts.iter().map(|text| habits.fill(text, &mut random)).collect())
        .collect();
    let drafter = if run.draft.is_some() { DraftCost::Model } else { DraftCost::Free };
    let course = |policy: LengthPolicyName| -> Course {
        let mut sum = Course { is_known: true, ..Course::default() };
        for texts in &fillings {
            let course = replay(texts, &costs, drafter, || policy.build());
            sum.tokens += course.tokens;
            sum.seconds += course.seconds;
            sum.rounds += course.rounds;
            sum.drafted += course.drafted;
            sum.accepted += course.accepted;
            sum.is_known &= course.is_known;
        }
        sum
    };
    let longest = costs.longest_known();
    let plain = course_of("fixed:0", &course);
    let settings = settings(longest)
        .into_iter()
        .filter_map(|(name, flags)| Some((course_of(&name, &course)?, name, flags)))
        .map(|(course, name, flags)| Setting {
            name,
            flags,
            tokens_per_second: course.tokens_per_second(),
            speedup: plain
                .filter(|plain| plain.is_known && plain.seconds > 0.0)
                .map(|plain| course.tokens_per_second() / plain.tokens_per_second()),
            acceptance_rate: course.acceptance_rate(),
            tokens_per_round: course.tokens as f64 / course.rounds.max(1) as f64,
            is_known: course.is_known,
        })
        .collect();
    let rounds = || requests.iter().flat_map(|(_, request)| &request.rounds).filter(|round| round.round > 0);
    let seconds: f64 = rounds().map(|round| round.seconds.round()).sum();
    let recorded = Recorded {
        tokens_per_second: rounds().map(|round| round.emitted).sum::<usize>() as f64 / seconds.max(f64::MIN_POSITIVE),
        replayed: run
            .policy()
            .filter(|_| requests.iter().all(|(other, _)| other.length_policy == run.length_policy))
            .map(|policy| course(policy).tokens_per_second()),
    };
    let share = |test: &dyn Fn(&crate::record::Round) -> bool| {
        let all = rounds().count().max(1) as f64;
        rounds().filter(|round| test(round)).count() as f64 / all
    };
    let mut notes = Vec::new();
    let mut note = |is_so: bool, text: String| notes.extend(is_so.then_some(text));
    note(
        !costs.pass.knows(1),
        "no plain round was recorded, so that speed-ups are not known: add a record made with --draft none, or record with \
         --length-policy survey"
            .to_owned(),
    );
    note(
        longest < LONGEST,
        format!("costs are known up to {longest} drafted tokens; --length-policy survey records all up to {LONGEST}"),
    );
    note(
        !requests.iter().all(|(run, _)| stops(run)),
        "goodput drafted where it expected to gain, so that fixed lengths look better than they are; --length-policy survey drafts \
         everywhere"
            .to_owned(),
    );
    let branching = share(&|round| round.by_depth.iter().any(|&nodes| nodes > 1));
    note(
        branching > 0.0,
        format!(
            "{:.0} % of the rounds drafted trees, which are judged as chains here; --draft-width 1 records chains",
            100.0 * branching
        ),
    );
    let shared = share(&|round| round.company > 0);
    note(
        shared > 0.0,
        format!("{:.0} % of the rounds shared their pass; figures are for one text at a time", 100.0 * shared),
    );
    let judged_by = |rule: &str| matches!(rule.split(':').next(), Some("greedy" | "coupled"));
    note(
        !requests.iter().all(|(run, _)| run.rule.as_deref().is_some_and(judged_by)),
        "some answers were judged by another rule than greedy or coupled, or by one that the record does not name: where their drafts ended \
         does not say that the next token would have failed"
            .to_owned(),
    );
    note(tokens < FEW, format!("{tokens} tokens are few: take the figures as rough"));
    note(is_cut, "a record was cut off; its last round is not in the figures".to_owned());
    Evaluation {
        run: (*run).clone(),
        texts: texts.len(),
        tokens,
        open: open as f64 / tokens.max(1) as f64,
        survival: survival(requests.iter().map(|&(run, request)| (request, stops(run)))),
        costs,
        recorded,
        settings,
        notes,
    }
}

fn course_of(name: &str, course: &impl Fn(LengthPolicyName) -> Course) -> Option<Course> {
    name.parse().ok().map(course)
}

/// Names of policies, and the flags that ask for them.
fn settings(longest: usize) -> Vec<(String, String)> {
    let mut settings = vec![("fixed:0".to_owned(), "--draft none".to_owned())];
    settings.extend((1..=LONGEST).map(|length| (format!("fixed:{length}"), format!("--draft-len {length}"))));
    let most = |usual: usize| usual.min(longest).max(1);
    for name in
        [format!("additive:{}", most(8)), "by-prompt-length:256".to_owned(), format!("goodput:{}", most(Goodput::MOST))]
    {
        let flags = format!("--length-policy {name}");
        settings.push((name, flags));
    }
    settings
}

/// Numbers from 0 to 1, the same for the same seed (splitmix64).
fn uniform(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
