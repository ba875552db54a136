//! Faults on demand: `name:nth:action`.
//!
//! The name is an exported function, and the fault happens when it is called; or an operation or copy as streams name
//! it (`Linear`, `aclrtMemcpyAsync`), behind `task.`, and the fault happens when a stream gets to it; `task.*` is any.
//! `nth` is a number, counted from 1, a number and `+` for that one and all later ones, or `*` for all. The action is a
//! status to return or to fail with, `hang`, or `lost`: the device is gone from then on.

use crate::failure::{Failure, Outcome};
use acl_sys::Status;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Fail(Status),
    Hang,
    Lost,
}

#[derive(Clone, Debug)]
struct Rule {
    name: String,
    first: u64,
    last: u64,
    action: Action,
}

/// Rules, and how often each name has come up.
#[derive(Default)]
pub(crate) struct Faults {
    rules: Mutex<(Vec<Rule>, HashMap<String, u64>)>,
    /// Whether there is anything to look up.
    any: AtomicBool,
    lost: AtomicBool,
    driver_old: AtomicBool,
}

/// What works without a device, so that a program can clean up after it is lost.
const WITHOUT_DEVICE: &[&str] = &[
    "aclrtFree",
    "aclrtFreeHost",
    "aclrtResetDevice",
    "aclrtResetDeviceForce",
    "aclrtDestroyStream",
    "aclrtDestroyStreamForce",
    "aclrtDestroyEvent",
    "aclrtDestroyContext",
    "aclrtGetLastError",
    "aclrtPeekAtLastError",
    "aclrtGetSocName",
    "aclrtGetVersion",
];

fn parse(text: &str) -> Result<Rule, String> {
    let error = || format!("fault `{text}` is not of the form name:nth:action");
    let mut parts = text.split(':');
    let (Some(name), Some(nth), Some(action), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(error());
    };
    let (first, last) = match nth.strip_suffix('+') {
        _ if nth == "*" => (1, u64::MAX),
        Some(first) => (first.parse().map_err(|_| error())?, u64::MAX),
        None => nth.parse().map(|nth| (nth, nth)).map_err(|_| error())?,
    };
    let action = match action {
        "hang" => Action::Hang,
        "lost" => Action::Lost,
        code => Action::Fail(Status(code.parse().map_err(|_| error())?)),
    };
    if action == Action::Hang && !name.starts_with("task.") {
        return Err(format!("fault `{text}`: only tasks hang"));
    }
    Ok(Rule { name: name.to_owned(), first, last, action })
}

impl Faults {
    /// Replaces all rules; counting starts again, and a lost device is back.
    pub(crate) fn configure(&self, rules: &[String], driver_old: bool) -> Result<(), String> {
        let rules: Vec<Rule> = rules.iter().map(|rule| parse(rule)).collect::<Result<_, _>>()?;
        self.any.store(!rules.is_empty(), Ordering::SeqCst);
        self.lost.store(false, Ordering::SeqCst);
        self.driver_old.store(driver_old, Ordering::SeqCst);
        *self.rules.lock() = (rules, HashMap::new());
        Ok(())
    }

    fn due(&self, names: &[&str]) -> Option<Action> {
        if !self.any.load(Ordering::SeqCst) {
            return None;
        }
        let (rules, counts) = &mut *self.rules.lock();
        let mut action = None;
        for name in names {
            let count = counts.entry((*name).to_owned()).or_default();
            *count += 1;
            let due = rules.iter().find(|rule| rule.name == *name && (rule.first..=rule.last).contains(count));
            action = action.or(due.map(|rule| rule.action));
        }
        action
    }

    /// Fails when a call of an exported function is to fail.
    pub(crate) fn enter(&self, function: &str) -> Outcome {
        if self.driver_old.load(Ordering::SeqCst) && function == "aclInit" {
            let text = "driver version capability is insufficient: upgrade the driver, or use an older CANN";
            return Err(Failure::new(Status::ACL_ERROR_RT_FEATURE_NOT_SUPPORT, text));
        }
        match self.due(&[function]) {
            Some(Action::Fail(status)) => return Err(Failure::new(status, "a fault that was asked for")),
            Some(Action::Lost) => self.lose(),
            Some(Action::Hang) | None => {}
        }
        if function.starts_with("aclrt") && !WITHOUT_DEVICE.contains(&function) { self.alive() } else { Ok(()) }
    }

    /// What is to happen to a task that a stream has come to.
    pub(crate) fn task(&self, name: &str) -> Option<Action> {
        self.due(&[&format!("task.{name}"), "task.*"])
    }

    /// Takes the device away.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
    }

    /// Fails when the device was lost.
    pub(crate) fn alive(&self) -> Outcome {
        if !self.lost.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(Failure::new(Status::ACL_ERROR_RT_LOST_HEARTBEAT, "the device is lost: its heartbeat stopped"))
    }
}
