//! Ctrl-C: ends an answer when there is one, and the program when there is none.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use spec_runtime::CancelToken;

/// What a shell takes for a program that SIGINT ended.
const INTERRUPTED: i32 = 130;

/// Flags that the signal's handler reads and sets, which is all that a handler may do.
pub(super) struct Interrupt {
    /// Whether the signal ends the program.
    ends: Arc<AtomicBool>,
    pressed: Arc<AtomicBool>,
    at_terminal: bool,
}

impl Interrupt {
    /// Takes the signal over. It still ends the program, until something is answered.
    pub(super) fn new(at_terminal: bool) -> Result<Self> {
        let (ends, pressed) = (Arc::new(AtomicBool::new(true)), Arc::default());
        flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(&ends))
            .and_then(|_| flag::register(SIGINT, Arc::clone(&pressed)))
            .context("taking over Ctrl-C")?;
        Ok(Self { ends, pressed, at_terminal })
    }

    /// The program waits for a turn. On a terminal Ctrl-C is a key then, and a signal that comes just before is one too late for
    /// the answer.
    pub(super) fn waiting(&self) {
        self.ends.store(!self.at_terminal, Ordering::SeqCst);
    }

    /// From here to the next wait the signal cancels what the token is given to, and does nothing else.
    pub(super) fn answering(&self) -> CancelToken {
        self.ends.store(false, Ordering::SeqCst);
        self.pressed.store(false, Ordering::SeqCst);
        CancelToken::from(Arc::clone(&self.pressed))
    }
}
