//! The document in `docs/` says what the server does.

/// Writes it anew where this is set.
const WRITE: &str = "SPEC_WRITE_OPENAPI";

#[test]
fn the_openapi_document_is_that_of_the_tables() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let document = format!("{:#}\n", spec_server::openapi::document());
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &document).expect("the document can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == document, "docs/openapi.json is stale: run this test with {WRITE}=1 and commit what it writes");
}
