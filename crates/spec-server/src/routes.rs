//! What is answered at which path.

use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use futures_util::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use spec_runtime::audit::ShadowStatus;
use spec_runtime::{Service, Status};
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::timeout;

use crate::answers::{Answers, Event};
use crate::compose::{Composed, Composer};
use crate::fields::{Body as Fields, Field};
use crate::loading::Progress;
use crate::metrics::Metrics;
use crate::protocol::{CHAT, COMPLETION, DETOKENIZE, GENERATION, TOKENIZE};
use crate::write::{Api, Part, Totals, Writer};
use crate::{ApiError, ServerOptions, openapi, page};

/// Chunks that wait for the connection to take them; more wait as tokens.
const CHUNKS_AHEAD: usize = 16;
/// Who comes without a key.
const OPEN: [&str; 5] = ["/", "/health", "/ready", "/metrics", "/openapi.json"];

/// What all requests share.
pub(crate) struct App {
    /// Not there while the model is loaded.
    pub(crate) served: OnceLock<Served>,
    pub(crate) progress: Progress,
    /// The model will not come.
    pub(crate) given_up: Notify,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) options: ServerOptions,
    pub(crate) is_draining: AtomicBool,
    /// Seconds since 1970.
    created: u64,
}

/// What a model answers with.
pub(crate) struct Served {
    pub(crate) composer: Composer,
    pub(crate) service: Service,
}

impl App {
    /// Without a model, which is still to come.
    pub(crate) fn new(options: ServerOptions) -> Self {
        Self {
            served: OnceLock::new(),
            progress: Progress::new(),
            given_up: Notify::new(),
            metrics: Arc::new(Metrics::default()),
            options,
            is_draining: AtomicBool::new(false),
            created: seconds_now(),
        }
    }

    /// What answers, if it is there already.
    fn served(&self) -> Result<&Served, ApiError> {
        self.served.get().ok_or_else(|| self.progress.refusal())
    }

    /// While there is no model: what is said of that at `/health` and `/ready`.
    fn loading(&self) -> Option<Response<Body>> {
        self.served.get().is_none().then(|| {
            let mut response = json_response(&self.progress.body());
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response.headers_mut().insert(header::RETRY_AFTER, self.progress.retry_after().into());
            response
        })
    }
}

type Shared = State<Arc<App>>;
type Answer = Result<Response<Body>, ApiError>;

/// All routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/completions", post(|app, request| generate(app, request, Api::Completion)))
        .route("/v1/chat/completions", post(|app, request| generate(app, request, Api::Chat)))
        .route("/v1/models", get(models))
        .route("/v1/models/{*id}", get(model))
        .route("/tokenize", post(tokenize))
        .route("/detokenize", post(detokenize))
        .route("/health", get(health))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(|| async { json_response(&openapi::document()) }))
        .fallback(|| async { ApiError::new(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "this path takes another method")
        })
        .layer(from_fn_with_state(Arc::clone(&app), guard))
        .merge(page::router())
        .with_state(app)
}

/// Lets in who may come, and keeps a handler that panics from taking the connection with it.
async fn guard(State(app): Shared, mut request: Request, next: Next) -> Response<Body> {
    if let Some(keys) = &app.options.keys
        && !OPEN.contains(&request.uri().path())
    {
        let Some(tenant) = bearer(request.headers()).and_then(|key| keys.tenant(key)) else {
            let message = "a key is needed: send the header `Authorization: Bearer KEY`";
            return ApiError::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message).response();
        };
        request.extensions_mut().insert(Tenant(tenant));
    }
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            let message = "the server failed on this request; its standard error says where";
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message).response()
        }
    }
}

/// Whose key a request came with.
#[derive(Clone, Copy, Debug)]
struct Tenant(u64);

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
}

fn json_response(value: &Value) -> Response<Body> {
    typed(value.to_string().into(), "application/json")
}

fn typed(body: Body, kind: &'static str) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The body of a request, within its limits of size and time.
async fn body_of(app: &App, request: Request) -> Result<Vec<u8>, ApiError> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    // What a page of another origin can send without being asked for permission is of another kind.
    if !kind.trim().to_ascii_lowercase().starts_with("application/json") {
        let message = "the body's Content-Type must be application/json";
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
    }
    let limit = app.options.max_body_bytes;
    let too_large = || {
        let message = format!("the body has more than the {limit} bytes that this server takes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
    };
    let announced =
        request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > limit) {
        return Err(too_large());
    }
    let read = async {
        let mut stream = request.into_body().into_data_stream();
        let mut bytes = Vec::new();
        while let Some(part) = stream.next().await {
            let part = part.map_err(|error| {
                ApiError::new(StatusCode::BAD_REQUEST, "body_cut_off", format!("the body cannot be read: {error}"))
            })?;
            if bytes.len() + part.len() > limit {
                return Err(too_large());
            }
            bytes.extend_from_slice(&part);
        }
        Ok(bytes)
    };
    timeout(app.options.body_timeout, read).await.unwrap_or_else(|_| {
        let seconds = app.options.body_timeout.as_secs_f64();
        Err(ApiError::new(
            StatusCode::REQUEST_TIMEOUT,
            "body_timeout",
            format!("the body was not there within {seconds} s"),
        ))
    })
}

/// Does work that takes a processor, such as splitting a long text, where it keeps nobody waiting.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> Result<T, ApiError> + Send + 'static) -> Result<T, ApiError> {
    /// Bodies and grammars take many times their bytes while they are read.
    static PLACES: Semaphore = Semaphore::const_new(4);
    // An error would mean that it was closed, which nobody can do to a static of this function.
    let place = PLACES.acquire().await.expect("nobody closes it");
    let work = move || {
        // Held by the work, which goes on when its client has left.
        let _place = place;
        work()
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "stopping", "the server is shutting down")),
        },
    }
}

async fn fields_of(app: &App, request: Request, fields: &'static [&'static [Field]]) -> Result<Fields, ApiError> {
    let bytes = body_of(app, request).await?;
    if app.options.log_prompts {
        tracing::info!("asked: {}", String::from_utf8_lossy(&bytes));
    }
    apart(move || Fields::read(&bytes, fields)).await
}

async fn generate(State(app): Shared, request: Request, api: Api) -> Answer {
    let table: &'static [&'static [Field]] = match api {
        Api::Completion => &[GENERATION, COMPLETION],
        Api::Chat => &[GENERATION, CHAT],
    };
    // Before the body is read, which a client may hold back until it hears of us.
    app.served()?;
    let tenant = request.extensions().get::<Tenant>().map(|&Tenant(tenant)| tenant);
    let fields = fields_of(&app, request, table).await?;
    let composing = Arc::clone(&app);
    let composed = apart(move || match api {
        Api::Completion => composing.served()?.composer.completion(&fields),
        Api::Chat => composing.served()?.composer.chat(&fields),
    });
    let Composed { mut requests, prompt_tokens, stream, include_usage, spec_info, effective, tools } = composed.await?;
    // Without keys all are one.
    requests.iter_mut().for_each(|request| request.tenant = Some(tenant.unwrap_or(0)));
    tracing::debug!(tenant, prompt_tokens, choices = requests.len(), "a request begins");
    let choices = requests.len();
    let Served { composer, service } = app.served()?;
    let answers = Answers::begin(service, &app.metrics, requests).await?;
    let id = fresh_id(api);
    let parser = |choice: usize| tools.as_ref().and_then(|tools| tools.parser(&format!("{id}_{choice}")));
    let parts: Vec<(Part, String)> = (0..choices).map(|choice| (Part::of(parser(choice)), String::new())).collect();
    let writer = Writer {
        api,
        language: Arc::clone(&composer.language),
        id,
        created: seconds_now(),
        model: app.options.served_model_name.clone(),
        prompt_tokens,
        spec_info,
        effective,
        totals: Totals::default(),
    };
    match stream {
        true => Ok(streamed(&app, answers, writer, parts, include_usage)),
        false => whole(answers, writer, parts).await,
    }
}

/// The answers in one piece.
async fn whole(mut answers: Answers, mut writer: Writer, mut parts: Vec<(Part, String)>) -> Answer {
    while let Some((choice, event)) = answers.next().await {
        match event {
            Event::Piece(piece) => parts[choice].0.add(piece, &writer),
            Event::Done(completion, queued) => {
                parts[choice].1 = parts[choice].0.end(completion.finish.name()).to_owned();
                writer.totals.add(&completion, queued);
            }
            Event::Failed(error) => return Err(error),
        }
    }
    Ok(json_response(&writer.whole(&mut parts)))
}

/// The answers as they come.
fn streamed(
    app: &App,
    mut answers: Answers,
    mut writer: Writer,
    mut parts: Vec<(Part, String)>,
    include_usage: bool,
) -> Response<Body> {
    let (sender, receiver) = mpsc::channel::<Bytes>(CHUNKS_AHEAD);
    let patience = app.options.body_timeout;
    // Ends with the answers, or when the connection does; the answers are cancelled when it drops them.
    tokio::spawn(async move {
        let mut left = parts.len();
        let send = async |value: String| {
            let line = Bytes::from(format!("data: {value}\n\n"));
            matches!(timeout(patience, sender.send(line)).await, Ok(Ok(())))
        };
        loop {
            let next = tokio::select! {
                next = answers.next() => next,
                () = sender.closed() => return,
            };
            let Some((choice, event)) = next else { break };
            let chunk = match event {
                Event::Piece(piece) => {
                    let part = &mut parts[choice].0;
                    part.add(piece, &writer);
                    if part.is_empty() {
                        continue;
                    }
                    writer.chunk(choice, part)
                }
                Event::Done(completion, queued) => {
                    left -= 1;
                    writer.totals.add(&completion, queued);
                    let part = &mut parts[choice].0;
                    let finish = part.end(completion.finish.name());
                    writer.last_chunk(choice, part, finish, left == 0)
                }
                Event::Failed(error) => {
                    send(error.body().to_string()).await;
                    return;
                }
            };
            if !send(chunk.to_string()).await {
                return;
            }
        }
        if include_usage && !send(writer.usage_chunk().to_string()).await {
            return;
        }
        send("[DONE]".to_owned()).await;
    });
    let chunks = stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|chunk| (Ok::<_, Infallible>(chunk), receiver))
    });
    let mut response = typed(Body::from_stream(chunks), "text/event-stream");
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn fresh_id(api: Api) -> String {
    let prefix = if api == Api::Chat { "chatcmpl" } else { "cmpl" };
    format!("{prefix}-{:016x}", RandomState::new().hash_one(prefix))
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn description(app: &App) -> Result<Value, ApiError> {
    Ok(json!({
        "id": app.options.served_model_name,
        "object": "model",
        "created": app.created,
        "owned_by": "spec",
        "max_model_len": app.served()?.composer.limits.context,
    }))
}

async fn models(State(app): Shared) -> Answer {
    Ok(json_response(&json!({ "object": "list", "data": [description(&app)?] })))
}

/// With one model served, every name means it.
async fn model(State(app): Shared, Path(_): Path<String>) -> Answer {
    Ok(json_response(&description(&app)?))
}

async fn tokenize(State(app): Shared, request: Request) -> Answer {
    app.served()?;
    let fields = fields_of(&app, request, &[TOKENIZE]).await?;
    let tokens = apart({
        let app = Arc::clone(&app);
        move || {
            let text = fields.text("prompt").ok_or_else(|| ApiError::field("prompt", "prompt: it is missing"))?;
            let special = fields.get("add_special_tokens").and_then(Value::as_bool).unwrap_or(true);
            app.served()?.composer.encode("prompt", text, special)
        }
    });
    let tokens = tokens.await?;
    let count = tokens.len();
    let context = app.served()?.composer.limits.context;
    Ok(json_response(&json!({ "tokens": tokens, "count": count, "max_model_len": context })))
}

async fn detokenize(State(app): Shared, request: Request) -> Answer {
    let Served { composer, .. } = app.served()?;
    let fields = fields_of(&app, request, &[DETOKENIZE]).await?;
    let Some(Value::Array(items)) = fields.get("tokens") else {
        return Err(ApiError::field("tokens", "tokens: a list of token ids is expected"));
    };
    let ids = composer.ids("tokens", items)?;
    Ok(json_response(&json!({ "prompt": composer.language.decode(&ids) })))
}

async fn health(State(app): Shared) -> Response<Body> {
    if let Some(loading) = app.loading() {
        return loading;
    }
    let status = status(&app);
    let mut response = json_response(&json!({
        "status": if status.device_lost.is_some() { "device lost" } else { "ok" },
        "reason": status.device_lost,
        "running": status.running,
        "queued": status.queued,
        "audit": audit(&app).map(|audit| {
            let ShadowStatus { generations, tokens, impossible, p_value, alarmed, .. } = audit;
            json!({
                "generations": generations, "tokens": tokens, "impossible": impossible, "p_value": p_value, "alarm": alarmed,
            })
        }),
    }));
    if status.device_lost.is_some() {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

async fn ready(State(app): Shared) -> Response<Body> {
    if let Some(loading) = app.loading() {
        return loading;
    }
    let stops = app.is_draining.load(Ordering::Relaxed) || status(&app).device_lost.is_some();
    let mut response = json_response(&json!({ "ready": !stops }));
    if stops {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

/// Where things stand; while the model is loaded, at nothing.
fn status(app: &App) -> Status {
    app.served.get().map(|served| served.service.status()).unwrap_or_default()
}

/// What the audit of answers has seen, where there is one.
fn audit(app: &App) -> Option<ShadowStatus> {
    Some(app.served.get()?.composer.audit.as_ref()?.status())
}

async fn metrics(State(app): Shared) -> impl IntoResponse {
    typed(app.metrics.text(&status(&app), audit(&app)).into(), "text/plain; version=0.0.4; charset=utf-8")
}
