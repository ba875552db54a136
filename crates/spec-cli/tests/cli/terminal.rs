//! A pseudo-terminal with the binary at its other end.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Debug builds on a busy machine are slow; what does not come within this does not come.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a line editor sends when it begins and ends to read a line: whether pasted text is to be told from typed keys.
const PASTE_ON: &str = "\x1b[?2004h";
const PASTE_OFF: &str = "\x1b[?2004l";

pub(crate) const CTRL_C: &str = "\x03";
pub(crate) const CTRL_D: &str = "\x04";

/// What somebody at a terminal sees and types.
pub(crate) struct Terminal {
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    /// Everything shown so far.
    seen: String,
    /// How much of it was waited for already.
    read: usize,
    child: Child,
}

impl Terminal {
    /// Starts a command in a session of its own, all three streams on the terminal.
    pub(crate) fn start(mut command: Command) -> Self {
        let (mut master, mut slave) = (0, 0);
        let size = libc::winsize { ws_row: 50, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: two integers to write to, no name, the default settings, a size that outlives the call.
        let opened = unsafe { libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size) };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: both were opened above and belong to nobody else.
        let (master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let stream = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.stdin(stream()).stdout(stream()).stderr(stream());
        if command.get_envs().all(|(name, _)| name != "TERM") {
            command.env("TERM", "xterm");
        }
        // SAFETY: both calls are allowed between fork and exec, and touch the child alone.
        unsafe {
            command.pre_exec(|| match libc::setsid() != -1 && libc::ioctl(0, libc::TIOCSCTTY, 0) != -1 {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            });
        }
        let child = command.spawn().expect("the binary starts");
        drop((command, slave));
        let keyboard = File::from(master);
        let mut output = keyboard.try_clone().expect("a descriptor");
        let (send, screen) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails once the other end is closed.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if send.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { keyboard, screen, seen: String::new(), read: 0, child }
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal is open");
    }

    /// Waits for the next prompt: what is typed earlier may be lost, as the terminal changes its mode then.
    #[track_caller]
    pub(crate) fn ready(&mut self) {
        self.wait_for(PASTE_ON);
    }

    /// Types a turn and waits until it is taken.
    #[track_caller]
    pub(crate) fn enter(&mut self, turn: &str) {
        self.press(turn);
        self.press("\r");
        self.wait_for(PASTE_OFF);
    }

    /// Waits until `text` is shown, and gives what came up to its end.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        self.wait(&format!("{text:?}"), |unread| unread.find(text).map(|at| at + text.len()))
    }

    /// Waits until so many bytes more are shown.
    #[track_caller]
    pub(crate) fn wait_for_bytes(&mut self, count: usize) {
        self.wait(&format!("{count} bytes"), |unread| (unread.len() >= count).then_some(unread.len()));
    }

    #[track_caller]
    fn wait(&mut self, what: &str, found: impl Fn(&str) -> Option<usize>) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(length) = found(&self.seen[self.read..]) {
                let part = self.seen[self.read..self.read + length].to_owned();
                self.read += length;
                return part;
            }
            match self.screen.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.seen += &String::from_utf8_lossy(&bytes),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("{what} never came; the terminal shows\n{}", self.seen)
                }
            }
        }
    }

    /// Waits for the command to end; gives all that was shown.
    #[track_caller]
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let end = Instant::now() + PATIENCE;
        loop {
            while let Ok(bytes) = self.screen.try_recv() {
                self.seen += &String::from_utf8_lossy(&bytes);
            }
            if let Some(status) = self.child.try_wait().expect("a child") {
                while let Ok(bytes) = self.screen.recv_timeout(Duration::from_millis(100)) {
                    self.seen += &String::from_utf8_lossy(&bytes);
                }
                return (status, std::mem::take(&mut self.seen));
            }
            assert!(Instant::now() < end, "the command does not end; the terminal shows\n{}", self.seen);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A test that failed leaves no process behind; one that has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
