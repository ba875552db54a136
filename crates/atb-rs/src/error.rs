//! What can go wrong, said so that the next step is clear.

use acl_sys::Status;

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The library was called and refused. The status displays with its name, meaning and advice.
    #[error("{attempt}: {function} returned {status}{detail}")]
    Call {
        /// The C function.
        function: &'static str,
        /// What was attempted, with the operation and the sizes.
        attempt: String,
        /// What it returned.
        status: Status,
        /// The library's own words, on a line of their own; empty when it had none.
        detail: String,
    },

    /// The library could not be called.
    #[error("{attempt}: {source}")]
    Unavailable {
        /// What was attempted.
        attempt: String,
        /// Why not, with the lines to paste.
        source: acl_sys::Error,
    },

    /// A parameter of an operation is outside of what ATB documents.
    #[error("{operation}: {rule}")]
    Parameter {
        /// The operation.
        operation: &'static str,
        /// The limit, and the value that is outside of it.
        rule: String,
    },

    /// A tensor does not fit its operation.
    #[error("{operation}: {tensor} {rule}")]
    Tensor {
        /// The operation.
        operation: &'static str,
        /// Which of its tensors, by the name in ATB's documentation.
        tensor: String,
        /// What it has to be, and what it is.
        rule: String,
    },

    /// Work on one stream would touch memory that another stream may still be using.
    #[error(
        "{attempt}: stream {other} may still be {using} {what}; record an event on stream {other} after that work, and \
         let stream {stream} wait for it"
    )]
    Unordered {
        /// What was attempted.
        attempt: String,
        /// The memory.
        what: String,
        /// `reading` or `writing`.
        using: &'static str,
        /// The stream that was to touch it.
        stream: u64,
        /// The stream whose work is not known to be over.
        other: u64,
    },

    /// The host would touch memory that a stream may still be using.
    #[error(
        "{attempt}: stream {stream} may still be {using} {what}; synchronise the stream, or an event recorded after \
         that work, first"
    )]
    InUse {
        /// What was attempted.
        attempt: String,
        /// The memory.
        what: String,
        /// `reading` or `writing`.
        using: &'static str,
        /// The stream whose work is not known to be over.
        stream: u64,
    },

    /// Lengths of sequences changed between setup and execution.
    #[error(
        "{operation}: the lengths given as {tensor} changed since its setup, which planned with the old ones; set it \
         up again"
    )]
    LengthsChanged {
        /// The operation.
        operation: &'static str,
        /// Which of its tensors.
        tensor: String,
    },

    /// An operation needs more workspace than is allowed.
    #[error(
        "{operation}: needs {needed} bytes of workspace, and the ceiling is {ceiling}; raise it, or run fewer \
         tokens at once"
    )]
    WorkspaceCeiling {
        /// The operation.
        operation: &'static str,
        /// Bytes.
        needed: u64,
        /// Bytes.
        ceiling: u64,
    },

    /// The environment names a ceiling for workspaces that is no number of megabytes.
    #[error(
        "SPEC_ATB_MAX_WS_SIZE is `{value}`, and has to be a whole number of megabytes, 1 at least; unset it, or mend it"
    )]
    CeilingUnreadable {
        /// What it is.
        value: String,
    },

    /// Bytes that do not exist would be touched.
    #[error("{attempt}: bytes {start} to {end} are outside of {what}, which has {length}")]
    OutOfRange {
        /// What was attempted.
        attempt: String,
        /// The memory.
        what: String,
        /// First byte.
        start: usize,
        /// Byte after the last.
        end: usize,
        /// Bytes there are.
        length: usize,
    },

    /// Two things of different contexts were put together.
    #[error("{attempt}: {what} belongs to another context; make it in the context of the stream it is used on")]
    OtherContext {
        /// What was attempted.
        attempt: String,
        /// The thing.
        what: String,
    },

    /// An event was used before it was recorded.
    #[error("{attempt}: the event was never recorded; record it on a stream first")]
    EventNotRecorded {
        /// What was attempted.
        attempt: String,
    },

    /// A time was asked of an event that has none.
    #[error("{attempt}: the event keeps no time; make it with Event::timed")]
    EventNotTimed {
        /// What was attempted.
        attempt: String,
    },

    /// A graph that ATB would refuse, or that would not mean what it says.
    #[error("graph {graph}: {rule}")]
    Graph {
        /// Its name.
        graph: String,
        /// What is wrong.
        rule: String,
    },

    /// AscendCL is started once per process.
    #[error("AscendCL is started already in this process; clone that Runtime instead of starting another")]
    AlreadyStarted,

    /// Something still uses the runtime that was to be shut down.
    #[error("{holders} devices, contexts or clones still use the runtime; drop them, then shut it down")]
    StillInUse {
        /// How many.
        holders: usize,
    },

    /// Something failed while it was dropped, before this call, which did nothing.
    #[error("reported late, from a drop before this call: {0}")]
    Dropped(Box<Error>),
}

impl Error {
    /// The status of the call that failed, if it was a call.
    pub fn status(&self) -> Option<Status> {
        match self {
            Error::Call { status, .. } | Error::Unavailable { source: acl_sys::Error::Status(status), .. } => {
                Some(*status)
            }
            Error::Dropped(error) => error.status(),
            _ => None,
        }
    }
}
