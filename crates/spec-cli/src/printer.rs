//! The answer on its way to the user.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use spec_core::Token;
use spec_runtime::{CancelToken, Emitted, TokenText};

use crate::args::OutputKind;
use crate::color::{self, Shown};

/// Streams an answer from a thread of its own: rounds never wait for a terminal or a pipe.
pub(crate) struct Printer {
    output: OutputKind,
    first: bool,
    at_line_start: bool,
    /// How drafts show, and what their texts are.
    shown: Option<(Shown, Arc<dyn TokenText>)>,
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
        Ok(Self { output, first: true, at_line_start: true, shown: None, texts, writer })
    }

    /// Colours text by what each token is to its draft.
    pub(crate) fn show(&mut self, shown: Shown, vocabulary: Arc<dyn TokenText>) {
        self.shown = Some((shown, vocabulary));
    }

    pub(crate) fn print(&mut self, emitted: &Emitted) {
        let text = match self.output {
            OutputKind::Text => self.colored(emitted),
            OutputKind::Ids if !emitted.shown => return,
            OutputKind::Ids if self.first => emitted.token.to_string(),
            OutputKind::Ids => format!(",{}", emitted.token),
        };
        if text.is_empty() {
            return;
        }
        self.first = false;
        self.at_line_start = emitted.text.ends_with('\n') && self.output == OutputKind::Text;
        // The thread that receives ends early only on a failure, which `finish` reports.
        let _ = self.texts.send(text);
    }

    fn colored(&self, emitted: &Emitted) -> String {
        let Some((shown, vocabulary)) = &self.shown else { return emitted.text.clone() };
        let mut text = String::new();
        if *shown == Shown::All && !emitted.rejected.is_empty() {
            let bytes = |&token: &Token| vocabulary.bytes(token).into_owned();
            let rejected: Vec<u8> = emitted.rejected.iter().flat_map(bytes).collect();
            text += &color::rejected(&String::from_utf8_lossy(&rejected));
        }
        text + &color::token(emitted.source, &emitted.text)
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
    use std::sync::Mutex;

    use spec_runtime::TokenSource;
    use spec_testing::Letters;

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
    fn drafts_show_in_colours_and_rejected_ones_only_when_asked_for() {
        let said = |shown: Option<Shown>| {
            let (_, gate) = channel();
            let written = Arc::default();
            let sink = Gated { gate, written: Arc::clone(&written) };
            let mut printer = Printer::new(OutputKind::Text, sink, CancelToken::new()).unwrap();
            if let Some(shown) = shown {
                printer.show(shown, Arc::new(Letters(26)));
            }
            printer.print(&emitted(0, "one "));
            printer.print(&Emitted { source: TokenSource::Accepted, ..emitted(0, "two ") });
            let rejected = vec![1, 2];
            printer.print(&Emitted { source: TokenSource::Corrected, rejected, ..emitted(0, "three") });
            printer.finish(false).unwrap();
            String::from_utf8(written.lock().unwrap().clone()).unwrap()
        };
        assert_eq!(said(None), "one two three");
        let kept = said(Some(Shown::Kept));
        let accepted = color::token(TokenSource::Accepted, "two ");
        let corrected = color::token(TokenSource::Corrected, "three");
        assert_eq!(kept, format!("one {accepted}{corrected}"));
        let rejected = Letters(26).bytes(1).into_owned().into_iter().chain(Letters(26).bytes(2).into_owned());
        let rejected = color::rejected(&String::from_utf8(rejected.collect()).unwrap());
        assert_eq!(said(Some(Shown::All)), format!("one {accepted}{rejected}{corrected}"));
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
