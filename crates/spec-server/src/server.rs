//! Connections: how many, how long, and how they end.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use spec_runtime::{RoundObserver, Service};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep, timeout};

use crate::routes::{App, router};
use crate::{ApiError, Keys, Language, Loading, RequestLimits, ServerError};

/// Headers of a request: as many, and so many bytes of them.
const MOST_HEADERS: usize = 64;
const MOST_HEADER_BYTES: usize = 64 << 10;
/// Clients at once that are told that there is no place for them, and the time that each has to hear it.
const MOST_TURNED_AWAY: usize = 64;
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// Behind a failure to accept, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// Makes those who are told what the rounds of one generation do.
pub type Observers = Arc<dyn Fn() -> Vec<Box<dyn RoundObserver>> + Send + Sync>;

/// How the service is run.
#[derive(Clone)]
pub struct ServerOptions {
    /// The name of the model in answers.
    pub served_model_name: String,
    /// Who may ask; `None` lets all in.
    pub keys: Option<Keys>,
    /// Bytes of a request's body.
    pub max_body_bytes: usize,
    /// Time for a request's headers.
    pub header_timeout: Duration,
    /// Time for a request's body, and for a client to take a part of an answer.
    pub body_timeout: Duration,
    /// Connections at once; more are answered with 503.
    pub max_connections: usize,
    /// Whether bodies of requests are logged.
    pub log_prompts: bool,
    /// Share of the generations that are held against the target's law while they are given; 0 for none.
    pub audit_share: f64,
    /// Asked once for each generation; `None` has none observed.
    pub observers: Option<Observers>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            served_model_name: "spec".into(),
            keys: None,
            max_body_bytes: 4 << 20,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            max_connections: 512,
            log_prompts: false,
            audit_share: 0.0,
            observers: None,
        }
    }
}

/// An address that is taken. Who connects waits until a [`Server`] runs.
#[derive(Debug)]
pub struct Listening(TcpListener);

impl Listening {
    /// Takes an address; the port 0 stands for a free one.
    ///
    /// # Errors
    /// [`ServerError::Listen`].
    pub fn bind(host: &str, port: u16) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Listen { address: format!("{host}:{port}"), source };
        let listener = TcpListener::bind((host, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Self(listener))
    }

    /// Which address it is.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn address(&self) -> Result<SocketAddr, ServerError> {
        self.0.local_addr().map_err(|source| ServerError::System { what: "asking for the address", source })
    }
}

/// The service, ready to run.
pub struct Server {
    listening: Listening,
    app: Arc<App>,
}

impl Server {
    /// Puts together what serves at an address.
    pub fn new(
        listening: Listening,
        language: Arc<dyn Language>,
        service: Service,
        limits: RequestLimits,
        options: ServerOptions,
    ) -> Self {
        let (server, loading) = Self::loading(listening, options);
        loading.done(language, service, limits);
        server
    }

    /// A server that can run before its model is there. Until [`Loading::done`] `/health` and `/ready` answer 503 with how far it has
    /// come, and so is whatever needs the model, with the time to come again.
    pub fn loading(listening: Listening, options: ServerOptions) -> (Self, Loading) {
        let app = Arc::new(App::new(options));
        (Self { listening, app: Arc::clone(&app) }, Loading::new(app))
    }

    /// Serves until the process is told to end (SIGTERM, SIGINT), and then until the answers under way are out. A second signal
    /// ends it at once.
    ///
    /// # Errors
    /// When the system gives no threads, the address cannot be used, the model does not come ([`ServerError::NotLoaded`]), or a second
    /// signal ends it ([`ServerError::Interrupted`]).
    pub fn run(self) -> Result<(), ServerError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("spec-http")
            .enable_all()
            .build()
            .map_err(|source| ServerError::System { what: "starting threads for connections", source })?;
        let outcome = runtime.block_on(async {
            let system = |source| ServerError::System { what: "listening for signals", source };
            let mut terminate =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).map_err(system)?;
            let mut interrupt =
                tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt()).map_err(system)?;
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let serving = self.run_until(async move { _ = stopped.await });
            tokio::pin!(serving);
            tokio::select! {
                outcome = &mut serving => return outcome,
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("ending: answers under way go on; a second signal ends them");
            let _ = stop.send(());
            tokio::select! {
                outcome = &mut serving => outcome,
                _ = terminate.recv() => Err(ServerError::Interrupted),
                _ = interrupt.recv() => Err(ServerError::Interrupted),
            }
        });
        runtime.shutdown_background();
        outcome
    }

    /// Serves until `stop` is ready, and then until the answers under way are out; idle connections are closed.
    ///
    /// # Errors
    /// When the address cannot be used, or the model does not come ([`ServerError::NotLoaded`]).
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self { listening, app } = self;
        let listener = tokio::net::TcpListener::from_std(listening.0)
            .map_err(|source| ServerError::System { what: "listening", source })?;
        let places = Arc::new(Semaphore::new(app.options.max_connections));
        let being_told = Arc::new(Semaphore::new(MOST_TURNED_AWAY));
        let graceful = GracefulShutdown::new();
        let routes = router(Arc::clone(&app));
        let mut protocol = http1::Builder::new();
        protocol
            .timer(TokioTimer::new())
            .header_read_timeout(app.options.header_timeout)
            .max_headers(MOST_HEADERS)
            .max_buf_size(MOST_HEADER_BYTES);
        tokio::pin!(stop);
        let outcome = loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = app.given_up.notified() => break Err(ServerError::NotLoaded),
                () = &mut stop => break Ok(()),
            };
            let socket = match accepted {
                Ok((socket, _)) => socket,
                Err(error) => {
                    tracing::warn!("a connection could not be accepted: {error}");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                // Without a place for that either the connection is closed without a word.
                if let Ok(turn) = Arc::clone(&being_told).try_acquire_owned() {
                    tokio::spawn(async move {
                        turn_away(socket).await;
                        drop(turn);
                    });
                }
                continue;
            };
            // A delta is sent when it is there; a failure costs time only.
            let _ = socket.set_nodelay(true);
            let connection = {
                let socket = Impatient { socket, patience: app.options.body_timeout, waiting: None };
                protocol.serve_connection(TokioIo::new(socket), TowerToHyperService::new(routes.clone()))
            };
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!("a connection ended: {error}");
                }
                drop(place);
            });
        };
        drop(listener);
        app.is_draining.store(true, Ordering::Relaxed);
        if let Some(served) = app.served.get() {
            served.service.drain();
        }
        graceful.shutdown().await;
        outcome
    }
}

/// A connection that fails when its client takes nothing of an answer for a while: it would hold its place, and the end of the server, for ever.
struct Impatient {
    socket: TcpStream,
    patience: Duration,
    /// Since a write found no room.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl Impatient {
    /// What a write came to, or that it has waited for too long.
    fn within<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = None;
            return written;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(waiting.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads nothing")))
    }
}

impl AsyncRead for Impatient {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, bytes)
    }
}

impl AsyncWrite for Impatient {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.within(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, parts);
        self.within(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(context);
        self.within(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

/// Tells a client that there is no place for its connection, whatever it asks.
async fn turn_away(mut socket: TcpStream) {
    let error = ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too_many_connections",
        "the server has as many connections as it takes",
    );
    let body = error.body().to_string();
    let head =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 1\r\nConnection: close\r\n";
    let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let told = async {
        socket.write_all(answer.as_bytes()).await?;
        socket.shutdown().await?;
        // A socket that is closed over bytes that nobody has read takes back what was written.
        tokio::io::copy(&mut socket, &mut tokio::io::sink()).await
    };
    // Who has left, or listens to nothing, is not waited for.
    let _ = timeout(TOLD_WITHIN, told).await;
}
