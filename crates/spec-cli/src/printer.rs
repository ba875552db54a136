//! The answer on its way to the user.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use spec_runtime::{CancelToken, Emitted};

use crate::args::OutputKind;

/// Streams an answer from a thread of its own: rounds never wait for a terminal or a pipe.
pub(crate) struct Printer {
    output: OutputKind,
    first: bool,
    at_line_start: bool,
    texts: Sender<String>,
    writer: JoinHandle<io::Result<()>>,
}

impl Printer {
    /// Writes to `sink`; the first failure ends the generation through `cancel`.
    pub(crate) fn new(output: OutputKind, sink: impl Write + Send + 'static, cancel: CancelToken) -> Result<Self> {
        let (texts, received) = channel();
        let writer = std::thread::Builder::new()
            .name("spec-printer".into())
            .spawn(move || write_all(sink, &received).inspect_err(|_| cancel.cancel()))
            .context("starting the thread that prints")?;
        Ok(Self { output, first: true, at_line_start: true, texts, writer })
    }

    pub(crate) fn print(&mut self, emitted: &Emitted) {
        let text = match self.output {
            OutputKind::Text => emitted.text.clone(),
            OutputKind::Ids if !emitted.shown => return,
            OutputKind::Ids if self.first => emitted.token.to_string(),
            OutputKind::Ids => format!(",{}", emitted.token),
        };
        if text.is_empty() {
            return;
        }
        self.first = false;
        self.at_line_start = text.ends_with('\n');
        // The thread that receives ends early only on a failure, which `finish` reports.
        let _ = self.texts.send(text);
    }

    /// Waits until all is written. `terminal`: its cursor goes to a fresh line, where a file or pipe gets the answer and
    /// nothing else.
    pub(crate) fn finish(self, terminal: bool) -> Result<()> {
        if !self.at_line_start && (self.output == OutputKind::Ids || terminal) {
            let _ = self.texts.send("\n".to_owned());
        }
        drop(self.texts);
        match self.writer.join() {
            Ok(written) => written.context("writing the answer"),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Writes what has arrived at once, and shows it.
fn write_all(mut sink: impl Write, texts: &Receiver<String>) -> io::Result<()> {
    while let Ok(mut text) = texts.recv() {
        text.extend(texts.try_iter());
        sink.write_all(text.as_bytes())?;
        sink.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Writes nothing until the gate opens.
    struct Gated {
        gate: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.gate.recv();
            self.written.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Full;

    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::new(io::ErrorKind::StorageFull, "no room"))
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn emitted(token: u32, text: &str) -> Emitted {
        Emitted { token, text: text.into(), shown: true, ..Emitted::default() }
    }

    #[test]
    fn a_stalled_reader_does_not_hold_up_the_generation() {
        let (open, gate) = channel();
        let written = Arc::default();
        let sink = Gated { gate, written: Arc::clone(&written) };
        let mut printer = Printer::new(OutputKind::Text, sink, CancelToken::new()).unwrap();
        for token in 0..1000 {
            printer.print(&emitted(token, "ab"));
        }
        assert!(written.lock().unwrap().is_empty(), "a thousand tokens are out before the first is read");
        drop(open);
        printer.finish(true).unwrap();
        assert_eq!(String::from_utf8(written.lock().unwrap().clone()).unwrap(), "ab".repeat(1000) + "\n");
    }

    #[test]
    fn ids_are_one_line() {
        let (_, gate) = channel();
        let written = Arc::default();
        let sink = Gated { gate, written: Arc::clone(&written) };
        let mut printer = Printer::new(OutputKind::Ids, sink, CancelToken::new()).unwrap();
        (5..8).for_each(|token| printer.print(&emitted(token, "x")));
        printer.print(&Emitted { shown: false, ..emitted(9, "") });
        printer.finish(false).unwrap();
        assert_eq!(*written.lock().unwrap(), b"5,6,7\n");
    }

    #[test]
    fn a_failure_to_write_cancels_and_is_reported() {
        let cancel = CancelToken::new();
        let mut printer = Printer::new(OutputKind::Text, Full, cancel.clone()).unwrap();
        printer.print(&emitted(1, "a"));
        let message = format!("{:#}", printer.finish(false).unwrap_err());
        assert!(cancel.is_cancelled());
        assert!(message.contains("writing the answer") && message.contains("no room"), "{message}");
    }
}
