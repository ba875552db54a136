//! Connections: how many, how long, and how they end.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use spec_runtime::{RoundObserver, Service};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::compose::Composer;
use crate::metrics::Metrics;
use crate::routes::{App, router, seconds_now};
use crate::{Keys, Language, RequestLimits, ServerError};

/// Headers of a request: as many, and so many bytes of them.
const MOST_HEADERS: usize = 64;
const MOST_HEADER_BYTES: usize = 64 << 10;
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
    /// Connections at once; more wait to be accepted.
    pub max_connections: usize,
    /// Whether bodies of requests are logged.
    pub log_prompts: bool,
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
            observers: None,
        }
    }
}

/// An address that is taken. Who connects waits until there is a [`Server`].
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
        let app = Arc::new(App {
            composer: Composer::new(language, limits, options.observers.clone()),
            service,
            metrics: Arc::new(Metrics::default()),
            options,
            is_draining: AtomicBool::new(false),
            created: seconds_now(),
        });
        Self { listening, app }
    }

    /// Serves until the process is told to end (SIGTERM, SIGINT), and then until the answers under way are out. A second signal
    /// ends it at once.
    ///
    /// # Errors
    /// When the system gives no threads, or the address cannot be used.
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
                _ = terminate.recv() => Ok(()),
                _ = interrupt.recv() => Ok(()),
            }
        });
        runtime.shutdown_background();
        outcome
    }

    /// Serves until `stop` is ready, and then until the answers under way are out; idle connections are closed.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), ServerError> {
        let Self { listening, app } = self;
        let listener = tokio::net::TcpListener::from_std(listening.0)
            .map_err(|source| ServerError::System { what: "listening", source })?;
        let places = Arc::new(Semaphore::new(app.options.max_connections));
        let graceful = GracefulShutdown::new();
        let routes = router(Arc::clone(&app));
        let mut protocol = http1::Builder::new();
        protocol
            .timer(TokioTimer::new())
            .header_read_timeout(app.options.header_timeout)
            .max_headers(MOST_HEADERS)
            .max_buf_size(MOST_HEADER_BYTES);
        tokio::pin!(stop);
        loop {
            let accept = async {
                // The semaphore is never closed.
                let place = Arc::clone(&places).acquire_owned().await.ok();
                (place, listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                accepted = accept => accepted,
                () = &mut stop => break,
            };
            let socket = match accepted {
                Ok((socket, _)) => socket,
                Err(error) => {
                    tracing::warn!("a connection could not be accepted: {error}");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            // A delta is sent when it is there; a failure costs time only.
            let _ = socket.set_nodelay(true);
            let connection = protocol.serve_connection(TokioIo::new(socket), TowerToHyperService::new(routes.clone()));
            let connection = graceful.watch(connection);
            tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!("a connection ended: {error}");
                }
                drop(place);
            });
        }
        drop(listener);
        app.is_draining.store(true, Ordering::Relaxed);
        app.service.drain();
        graceful.shutdown().await;
        Ok(())
    }
}
