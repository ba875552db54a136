//! The page at `/`: files that are part of the program, and the headers that keep them to themselves.

use axum::Router;
use axum::http::{HeaderName, HeaderValue};
use axum::response::IntoResponse;
use axum::routing::get;

/// A file of the page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asset {
    /// Where it is served.
    pub path: &'static str,
    /// Its media type.
    pub media_type: &'static str,
    /// Its content.
    pub body: &'static str,
}

/// Every file of the page. There is nothing beside them: no build step made them, and they ask no other host for anything.
pub const ASSETS: [Asset; 6] = [
    Asset { path: "/", media_type: "text/html; charset=utf-8", body: include_str!("index.html") },
    Asset { path: "/page/page.css", media_type: "text/css; charset=utf-8", body: include_str!("page.css") },
    script("/page/page.mjs", include_str!("page.mjs")),
    script("/page/stream.mjs", include_str!("stream.mjs")),
    script("/page/rounds.mjs", include_str!("rounds.mjs")),
    script("/page/chart.mjs", include_str!("chart.mjs")),
];

const fn script(path: &'static str, body: &'static str) -> Asset {
    Asset { path, media_type: "text/javascript; charset=utf-8", body }
}

/// Headers of every file of the page: scripts and styles from this server alone, requests to this server alone, in no frame.
pub const HEADERS: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    // The files change with the program, and nothing in their names tells.
    ("cache-control", "no-cache"),
];

/// The file served at `path`.
pub fn asset(path: &str) -> Option<Asset> {
    ASSETS.into_iter().find(|asset| asset.path == path)
}

/// Routes of the page, for everybody: it holds nothing, and what it asks for asks for the key.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    ASSETS.into_iter().fold(Router::new(), |router, Asset { path, media_type, body }| {
        router.route(
            path,
            get(move || async move {
                let mut response = body.into_response();
                for (name, value) in HEADERS.into_iter().chain([("content-type", media_type)]) {
                    response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
                }
                response
            }),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_the_page_names_is_served() {
        let text: String = ASSETS.iter().map(|asset| asset.body).collect();
        let named: Vec<&str> = text.split(['"', '\'']).filter(|word| word.starts_with("/page/")).collect();
        assert!(named.len() >= 5, "{named:?}");
        for path in named {
            assert!(asset(path).is_some(), "{path} is named and not served");
        }
    }

    #[test]
    fn no_text_becomes_markup_and_nothing_is_inline() {
        for Asset { path, body, .. } in ASSETS {
            for way in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", " style=", " onclick="]
            {
                assert!(!body.contains(way), "{path} has {way}");
            }
        }
    }

    #[test]
    fn the_rules_that_can_be_chosen_exist() {
        let html = ASSETS[0].body;
        let select =
            html.split("id=\"rule\"").nth(1).and_then(|rest| rest.split("</select>").next()).expect("a choice");
        let values: Vec<&str> = select.split("value=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert!(values.len() > 3 && values.contains(&"coupled"), "{values:?}");
        for name in values.into_iter().filter(|name| !name.is_empty()) {
            let rule: spec_core::RuleName = name.parse().expect("a rule of the table");
            assert!(rule.entry().lossless, "{name}");
        }
    }
}
