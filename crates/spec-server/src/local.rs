//! The service without a network: what a request would be answered with, asked for by a caller in this process.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use spec_runtime::Service;
use tokio::runtime::{Builder, Runtime};

use crate::batch::Answer;
use crate::routes::{App, router};
use crate::{ApiError, Language, Loading, RequestLimits, ServerError, ServerOptions};

/// The routes of the service, over the same engine, reading and writing alike.
pub struct Local {
    runtime: Runtime,
    routes: TowerToHyperService<Router>,
}

impl Local {
    /// Puts together what answers. Keys are not asked for: who calls is in the process already.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn new(
        language: Arc<dyn Language>,
        service: Service,
        limits: RequestLimits,
        options: ServerOptions,
    ) -> Result<Self, ServerError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("spec-batch")
            .enable_all()
            .build()
            .map_err(|source| ServerError::System { what: "starting threads for requests", source })?;
        let app = Arc::new(App::new(ServerOptions { keys: None, ..options }));
        Loading::new(Arc::clone(&app)).done(language, service, limits);
        Ok(Self { runtime, routes: TowerToHyperService::new(router(app)) })
    }

    /// The answer to a body posted to `url`, which asks for no stream. Waits for it; several threads may at once.
    pub fn answer(&self, url: &str, body: &Value) -> Answer {
        let (status, bytes) = self.exchange(url, body.to_string().into_bytes());
        match serde_json::from_slice(&bytes) {
            Ok(body) => Answer { status, body },
            Err(error) => {
                let error = failed(format!("the answer is no JSON: {error}"));
                Answer { status: error.status.as_u16(), body: error.body() }
            }
        }
    }

    /// Status and bytes of the answer to a body as it is, JSON or not; of a stream, all of it. Waits as [`answer`](Self::answer) does.
    pub fn exchange(&self, url: &str, body: Vec<u8>) -> (u16, Vec<u8>) {
        let refused = |error: ApiError| (error.status.as_u16(), error.body().to_string().into_bytes());
        self.runtime.block_on(async {
            let request = Request::post(url).header(header::CONTENT_TYPE, "application/json");
            let request = match request.body(Body::from(body)) {
                Ok(request) => request,
                Err(error) => return refused(failed(error.to_string())),
            };
            let (parts, body) = match self.routes.call(request).await {
                Ok(response) => response.into_parts(),
                Err(never) => match never {},
            };
            match to_bytes(body, usize::MAX).await {
                Ok(bytes) => (parts.status.as_u16(), bytes.into()),
                Err(error) => refused(failed(error.to_string())),
            }
        })
    }
}

fn failed(message: String) -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message)
}
