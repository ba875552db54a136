//! The service without a network: what a request would be answered with, asked for by a caller in this process.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use spec_runtime::Service;
use tokio::runtime::{Builder, Runtime};

use crate::batch::Answer;
use crate::compose::Composer;
use crate::metrics::Metrics;
use crate::routes::{App, router, seconds_now};
use crate::{ApiError, Language, RequestLimits, ServerError, ServerOptions};

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
        let app = App {
            composer: Composer::new(language, limits, options.observers.clone()),
            service,
            metrics: Arc::new(Metrics::default()),
            options: ServerOptions { keys: None, ..options },
            is_draining: AtomicBool::new(false),
            created: seconds_now(),
        };
        Ok(Self { runtime, routes: TowerToHyperService::new(router(Arc::new(app))) })
    }

    /// The answer to a body posted to `url`. Waits for it; several threads may at once.
    pub fn answer(&self, url: &str, body: &Value) -> Answer {
        self.runtime.block_on(async {
            let request = Request::post(url).header(header::CONTENT_TYPE, "application/json");
            let failed = |message: String| {
                let error = ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", message);
                Answer { status: error.status.as_u16(), body: error.body() }
            };
            let request = match request.body(Body::from(body.to_string())) {
                Ok(request) => request,
                Err(error) => return failed(error.to_string()),
            };
            let (parts, body) = match self.routes.call(request).await {
                Ok(response) => response.into_parts(),
                Err(never) => match never {},
            };
            let body = match to_bytes(body, usize::MAX).await {
                Ok(bytes) => serde_json::from_slice(&bytes),
                Err(error) => return failed(error.to_string()),
            };
            body.map_or_else(|error| failed(error.to_string()), |body| Answer { status: parts.status.as_u16(), body })
        })
    }
}
