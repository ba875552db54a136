//! llama.cpp's server in each of its settings, on the same prompts.

use std::path::Path;

use anyhow::{Result, ensure};
use serde::Serialize;
use spec_figures::{Spread, geometric_mean, ratios};

use super::client::{Client, Mode};
use super::throughput::{Subject, prompts, rate};
use crate::engine::Models;
use crate::http::Endpoint;
use crate::launcher::Launcher;
use crate::progress::Progress;
use crate::server::{Server, free_port};

pub(super) const PROGRAM: &str = "llama-server";
/// Positions for each client.
pub(super) const CONTEXT: usize = 4096;

/// A way to start it.
struct Setting {
    name: &'static str,
    arguments: &'static [&'static str],
    needs_draft: bool,
}

#[rustfmt::skip]
const SETTINGS: &[Setting] = &[
    Setting { name: "plain", arguments: &[], needs_draft: false },
    Setting { name: "draft 3", arguments: &["--spec-type", "draft-simple", "--spec-draft-n-max", "3"], needs_draft: true },
    Setting { name: "draft 8", arguments: &["--spec-type", "draft-simple", "--spec-draft-n-max", "8"], needs_draft: true },
    Setting { name: "ngram-simple 4/8", arguments: &["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "4", "--spec-ngram-simple-size-m", "8"], needs_draft: false },
    Setting { name: "ngram-mod", arguments: &["--spec-type", "ngram-mod"], needs_draft: false },
];

/// What starting it takes.
pub(super) struct Start<'a> {
    pub(super) programs: &'a Path,
    pub(super) launcher: Launcher,
    pub(super) threads: usize,
    pub(super) models: &'a Models,
    /// Where its messages go.
    pub(super) out: &'a Path,
}

/// What is compared, and with how many clients.
pub(super) struct Peer<'a> {
    start: Start<'a>,
    clients: usize,
    /// Tokens per second by setting, prompt and round.
    theirs: Vec<Vec<Vec<f64>>>,
    /// By prompt and round.
    ours: Vec<Vec<f64>>,
    failures: Vec<(&'static str, String)>,
}

#[derive(Serialize)]
pub(super) struct Figures {
    pub(super) prompt: String,
    pub(super) clients: usize,
    pub(super) ours: Spread,
    /// Of their best setting on this prompt.
    pub(super) setting: &'static str,
    pub(super) theirs: Spread,
    pub(super) ratio: Spread,
}

impl<'a> Peer<'a> {
    pub(super) fn new(start: Start<'a>, clients: usize, prompts: usize) -> Result<Self> {
        let program = start.programs.join(PROGRAM);
        ensure!(program.is_file(), "{} is not there; leave --llama-programs out to have it built", program.display());
        Ok(Self {
            start,
            clients,
            theirs: vec![vec![Vec::new(); prompts]; SETTINGS.len()],
            ours: vec![Vec::new(); prompts],
            failures: Vec::new(),
        })
    }

    /// Runs that one round makes.
    pub(super) fn runs(has_draft: bool, prompts: usize) -> usize {
        prompts * (1 + SETTINGS.iter().filter(|setting| has_draft || !setting.needs_draft).count())
    }

    pub(super) fn round(
        &mut self,
        ours: &Endpoint,
        subjects: &[Subject],
        round: usize,
        max_tokens: usize,
        progress: &mut Progress,
    ) -> Result<()> {
        for (at, setting) in SETTINGS.iter().enumerate() {
            let failed = self.failures.iter().any(|(name, _)| *name == setting.name);
            if failed || (setting.needs_draft && self.start.models.draft.is_none()) {
                continue;
            }
            match self.rates(setting, subjects, round, max_tokens, progress) {
                Ok(rates) => {
                    for (of_prompt, rate) in self.theirs[at].iter_mut().zip(rates) {
                        of_prompt.push(rate);
                    }
                }
                // Plain serving has to run; a setting that does not is shown as such.
                Err(error) if at == 0 => return Err(error),
                Err(error) => {
                    eprintln!("llama.cpp, {}: {error:#}", setting.name);
                    self.failures.push((setting.name, format!("{error:#}")));
                }
            }
        }
        let client = Client::of(ours, Mode::Speculative);
        for (at, subject) in subjects.iter().enumerate() {
            // Rounds of their own, so that the throughput's prompts are no prefix of these.
            let (rate, _) = rate(&client, &prompts(&subject.text, 1000 + round, self.clients), max_tokens)?;
            progress.done(&format!("{}, ours, {} at once: {rate:.1} tokens/s", subject.name, self.clients));
            self.ours[at].push(rate);
        }
        Ok(())
    }

    fn rates(
        &self,
        setting: &Setting,
        subjects: &[Subject],
        round: usize,
        max_tokens: usize,
        progress: &mut Progress,
    ) -> Result<Vec<f64>> {
        let server = self.start.server(setting, self.clients)?;
        let client = Client::of_peer(&server.endpoint);
        subjects
            .iter()
            .map(|subject| {
                let (rate, _) = rate(&client, &prompts(&subject.text, 1000 + round, self.clients), max_tokens)?;
                let (name, clients) = (&subject.name, self.clients);
                progress.done(&format!("{name}, llama.cpp, {}, {clients} at once: {rate:.1} tokens/s", setting.name));
                Ok(rate)
            })
            .collect()
    }

    /// By prompt, beside the setting with the highest median there.
    pub(super) fn figures(&self, subjects: &[Subject]) -> Vec<Figures> {
        let best = |prompt: usize| {
            let medians =
                self.theirs.iter().enumerate().filter_map(|(at, rates)| Some((at, Spread::of(&rates[prompt])?)));
            medians.max_by(|(_, one), (_, other)| one.median.total_cmp(&other.median))
        };
        let figures = |(at, subject): (usize, &Subject)| {
            let (setting, theirs) = best(at)?;
            Some(Figures {
                prompt: subject.name.clone(),
                clients: self.clients,
                ours: Spread::of(&self.ours[at])?,
                setting: SETTINGS[setting].name,
                theirs,
                ratio: Spread::of(&ratios(&self.ours[at], &self.theirs[setting][at]))?,
            })
        };
        subjects.iter().enumerate().filter_map(figures).collect()
    }

    pub(super) fn failures(&self) -> &[(&'static str, String)] {
        &self.failures
    }
}

impl Start<'_> {
    fn server(&self, setting: &Setting, clients: usize) -> Result<Server> {
        let port = free_port()?;
        let mut command = self.launcher.command(&self.programs.join(PROGRAM));
        let threads = self.threads.to_string();
        command.arg("--model").arg(&self.models.target).args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--parallel", &clients.to_string(), "--ctx-size", &(CONTEXT * clients).to_string()]);
        command.args(["--threads", &threads, "--threads-batch", &threads]).args(setting.arguments);
        if let Some(draft) = self.models.draft.as_ref().filter(|_| setting.needs_draft) {
            command.arg("--spec-draft-model").arg(draft).args(["--spec-draft-threads", &threads]);
        }
        Server::start_on(&mut command, &self.out.join("llama-server.log"), "/health", port)
    }
}

/// Over all prompts.
pub(super) fn mean(figures: &[Figures]) -> Option<f64> {
    geometric_mean(&figures.iter().map(|figure| figure.ratio.median).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::{PROGRAM, Peer, SETTINGS, Start, mean};
    use crate::engine::Models;
    use crate::launcher::Launcher;
    use crate::serve::throughput::Subject;

    #[test]
    fn ours_stands_beside_their_best_setting_on_each_prompt() {
        let folder = tempfile::tempdir().unwrap();
        let models = Models { target: folder.path().join("m"), draft: None };
        let start = || Start {
            programs: folder.path(),
            launcher: Launcher::default(),
            threads: 1,
            models: &models,
            out: folder.path(),
        };
        assert!(Peer::new(start(), 8, 2).err().unwrap().to_string().contains(PROGRAM));
        std::fs::write(folder.path().join(PROGRAM), "").unwrap();
        let mut peer = Peer::new(start(), 8, 2).unwrap();
        peer.theirs[0] = vec![vec![10.0, 5.0], vec![10.0, 5.0]];
        peer.theirs[1] = vec![vec![20.0, 10.0], vec![1.0, 1.0]];
        peer.ours = vec![vec![40.0, 20.0], vec![80.0, 40.0]];
        let subjects = ["a", "b"].map(|name| Subject::new(name.into(), String::new(), &[8]));
        let figures = peer.figures(&subjects);
        assert_eq!((figures[0].setting, figures[0].ratio.median), (SETTINGS[1].name, 2.0));
        assert_eq!((figures[1].setting, figures[1].ratio.least), (SETTINGS[0].name, 8.0));
        assert!((mean(&figures).unwrap() - 4.0).abs() < 1e-9);
        assert_eq!((Peer::runs(true, 2), Peer::runs(false, 2)), (12, 8));
    }
}
